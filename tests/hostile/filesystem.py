"""What is no regular file: links, pipes, sockets, devices, folders in place of files; and names that bite."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

from parity.checkpoints import FILE
from tests.hostile.entry import Entry, Spoil, both
from tests.hostile.runs import META, Sandbox

DATA = {"torch": "state.pt", "jax": "params/manifest.ocdbt"}
FOLDER = {"torch": "more", "jax": "params"}

Act = Callable[[Sandbox, Path], None]


def _to(act: Act, files: dict[str, str] = META) -> Callable[[str], Spoil]:
    """Return, for a side, a spoiler of one file of the newest checkpoint."""
    return lambda side: lambda box: act(box, box.newest / files[side])


def _seal(act: Act) -> Callable[[str], Spoil]:
    return lambda side: lambda box: act(box, box.newest / FILE)


def link(box: Sandbox, path: Path) -> None:
    """Put the very bytes outside, and a link to them in their place: followed, nothing would be missed."""
    path.rename(box.outside / path.name)
    path.symlink_to(box.outside / path.name)


def _link_inside(box: Sandbox, path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to("other")


def _dangling(box: Sandbox, path: Path) -> None:
    path.unlink()
    path.symlink_to(box.outside / "none")


def _loop(box: Sandbox, path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def pipe(box: Sandbox, path: Path) -> None:
    """Put a pipe in place of a file: whoever opens it for reading waits for good."""
    path.unlink()
    os.mkfifo(path)


def _socket(box: Sandbox, path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(path.parent, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{here}/{path.name}")  # a path of more than 107 letters is none
        finally:
            os.close(here)


def _device(box: Sandbox, path: Path) -> None:
    """Put /dev/zero in place of a file, as a node where that is permitted, else as a link."""
    path.unlink()
    try:
        os.mknod(path, 0o20644, os.makedev(1, 5))
    except PermissionError:
        path.symlink_to("/dev/zero")


def _folder(box: Sandbox, path: Path) -> None:
    path.unlink()
    path.mkdir()


def _full_folder(box: Sandbox, path: Path) -> None:
    _folder(box, path)
    (path / "file").write_bytes(b"x")


def _folder_link(side: str) -> Spoil:
    """Put a folder of the checkpoint outside, and a link to it in its place."""

    def spoil(box: Sandbox) -> None:
        path = box.newest / FOLDER[side]
        path.mkdir(exist_ok=True)
        shutil.move(path, box.outside / path.name)
        path.symlink_to(box.outside / path.name)

    return spoil


def _whole_link(side: str) -> Spoil:
    def spoil(box: Sandbox) -> None:
        shutil.move(box.newest, box.outside / box.newest.name)
        box.newest.symlink_to(box.outside / box.newest.name)

    return spoil


def _whole(act: Act) -> Callable[[str], Spoil]:
    def spoil(box: Sandbox) -> None:
        shutil.rmtree(box.newest)
        box.newest.touch()
        act(box, box.newest)

    return lambda side: spoil


def _named(name: bytes) -> Callable[[str], Spoil]:
    return lambda side: (
        lambda box: Path(os.fsdecode(os.path.join(os.fsencode(box.newest), name))).write_bytes(b"x") and None
    )


def _deep(side: str) -> Spoil:
    def spoil(box: Sandbox) -> None:
        path = box.newest
        for _ in range(500):
            path = path / "x"
            path.mkdir()

    return spoil


def _many(side: str) -> Spoil:
    def spoil(box: Sandbox) -> None:
        (box.newest / "many").mkdir()
        here = os.open(box.newest / "many", os.O_RDONLY)
        for number in range(100_000 if side == "torch" else 1_000):
            os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.close(here)

    return spoil


def _file_for_folder(box: Sandbox) -> None:
    shutil.rmtree(box.newest / "params")
    (box.newest / "params").write_bytes(b"x")


def _emptied(box: Sandbox) -> None:
    """Leave nothing but the seal, which is then taken out."""
    for path in list(box.newest.iterdir()):
        if path.name != FILE:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _foreign(act: Act, files: dict[str, str]) -> list[Entry]:
    """Return entries without a seal, which nothing but the loader can refuse."""
    name = f"foreign-{act.__name__.strip('_')}-{'data' if files is DATA else 'meta'}"
    names = "|".join(file.replace("/", "(/| holds no )").replace(".", r"\.") for file in files.values())
    return both(name, "foreign", names, _to(act, files))


ACTS: tuple[Act, ...] = (link, _link_inside, _dangling, _loop, pipe, _socket, _device, _folder, _full_folder)

NAMES = {
    "newline": b"a\nb",
    "backslash": b"..\\..\\x",
    "not-utf8": b"\xff\xfe",
    "escape-sequence": b"\x1b[2J\x1b]0;owned\x07",
    "dots": b"...",
    "longest": b"a" * 255,
    "of-a-step": b"4",
    "right-to-left": "a\u202ebc".encode(),
}

ENTRIES = [
    *(
        entry
        for act in ACTS
        for entry in both(f"node-{act.__name__.strip('_')}", "damaged", r"meta\.json|meta/metadata|other", _to(act))
    ),
    *(
        entry
        for act in ACTS
        if act is not _dangling
        for entry in both(f"node-{act.__name__.strip('_')}-seal", "seal", r"seal\.json|checkpoints/4", _seal(act))
    ),
    *(entry for act in (link, _dangling, _loop, pipe, _socket, _device, _folder) for entry in _foreign(act, DATA)),
    *(entry for act in (link, pipe, _device, _folder) for entry in _foreign(act, META)),
    *both("foreign-empty", "foreign", r"meta\.json|meta/metadata", lambda side: _emptied),
    *both("node-link-to-a-folder", "damaged", r"more|params", _folder_link),
    *both("node-link-to-the-whole-checkpoint", "seal", "link", _whole_link),
    *both("node-pipe-for-the-whole-checkpoint", "seal", "4", _whole(pipe)),
    *both("node-file-for-the-whole-checkpoint", "seal", "4", _whole(lambda box, path: None)),
    *(
        entry
        for name, raw in NAMES.items()
        for entry in both(f"name-{name}", "damaged", "is not in the seal|is no name", _named(raw))
    ),
    *both("folders-500-deep", "damaged", "deeper than", _deep),
    *both("files-100000", "damaged", "many/", _many),
    Entry("node-file-for-a-folder-jax", "jax", "damaged", "params", _file_for_folder),
]

"""The folder of a run: which files change, which of them are checkpoints, copies at a kill, and what is in them."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from parity.contract.capture import Leaf, Walk
from parity.storage import digest_range

__all__ = ["SET_APART", "Listing", "Reader", "contents", "copy_folder", "hidden", "is_log", "list_folder"]

Listing = dict[str, tuple[int, int, int]]
"""Relative path to size, time of the last change in nanoseconds, inode."""

_LOG = re.compile(r"(\.(jsonl?|csv|tsv|log|txt|out|err|html|png|toml|ya?ml|md|tmp|lock)|tfevents\..*)$|(^|/)\.")
_JSON = re.compile(r"(state|trainer|optim|sched|best|latest|meta|index|checkpoint|ckpt|snapshot|progress).*\.json$")
SET_APART = "-left"
"""End of the name of a folder that was set apart: runs that resume from it may need its first name."""

Reader = Callable[[Path], Any]
"""Returns what a file or directory holds, or None if it is not of its kind."""


def list_folder(folder: Path) -> Listing:
    """Return the files below a folder; an absent one is empty."""
    found: Listing = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue
            found[os.path.relpath(path, folder)] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


def is_log(name: str) -> bool:
    """Return whether a file's name is that of a log, a table or a configuration: no checkpoint.

    Example:
        >>> is_log("metrics.csv"), is_log("step_40/model.pt"), is_log("trainer_state.json")
        (True, False, False)
    """
    return bool(_LOG.search(name)) and not _JSON.search(name)


def hidden(folder: Path) -> dict[str, str]:
    """Return what stands for the folder of a run in texts, and for those of the other runs beside it."""
    beside = [str(path) for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
    homes = [path.removesuffix(SET_APART) for path in beside]
    return dict.fromkeys(sorted({str(folder), *beside, *homes}, key=len, reverse=True), "FOLDER")


def copy_folder(folder: Path, to: Path) -> None:
    """Copy a folder as it is; links stay links, a file that vanishes meanwhile is left out.

    Args:
        folder: What is copied; an absent one is empty.
        to: Where its content goes; made if there is none.
    """
    to.mkdir(parents=True, exist_ok=True)
    for root, folders, names in os.walk(folder):
        below = to / os.path.relpath(root, folder)
        below.mkdir(exist_ok=True)
        for name in [n for n in folders if os.path.islink(os.path.join(root, n))] + names:
            source = os.path.join(root, name)
            try:
                if os.path.islink(source):
                    os.symlink(os.readlink(source), below / name)
                elif os.path.isfile(source):
                    shutil.copy2(source, below / name)
            except FileNotFoundError:
                continue


def contents(folder: Path, readers: Iterable[Reader]) -> dict[str, Leaf]:
    """Return the leaves of every checkpoint file: `name: path in it` to leaf.

    A file that no reader understands is one leaf, the digest of its bytes; nothing that is read is run.

    Args:
        folder: Folder of a run; logs, tables and configurations in it are left out.
        readers: Asked in turn for every directory and file; the first that returns something is believed, and one
            that raises is passed over.
    """
    walk = Walk(hidden(folder))
    read: list[Path] = []
    for root, _, _ in os.walk(folder):  # a checkpoint may be a directory, whose files have names of chance
        path = Path(root)
        if path == folder or any(parent in path.parents for parent in read):
            continue
        found = _first(readers, path)
        if found is not None:
            read.append(path)
            walk.root(f"{path.relative_to(folder)}: ", found)
    for name in sorted(list_folder(folder)):
        path = folder / name
        if is_log(name) or any(parent in path.parents for parent in read):
            continue
        if not path.is_file():  # to open a pipe is to wait for who writes; a socket cannot be opened
            kind = stat.filemode(path.lstat().st_mode)[0]
            walk.add(f"{name}:", Leaf("scalar", "checkpoint", f"special[{kind}]", kind), lambda: None)
            continue
        found = _first((*readers, _read_plain), path)
        if found is None:
            size = path.stat().st_size if path.is_file() else 0
            walk.add(
                f"{name}:", Leaf("scalar", "checkpoint", f"file[{size}]", digest_range(path, 0, size)), lambda: None
            )
        else:
            walk.root(f"{name}: ", found)
    return {path.replace(": .", ": ").replace(": [", ": ["): leaf for path, leaf in walk.finish().leaves.items()}


def _first(readers: Iterable[Reader], path: Path) -> Any:
    """Return what the first reader that knows a file or directory finds in it."""
    for reader in readers:
        try:
            found = reader(path)
        except Exception:  # not of this kind, or of classes that are gone: its bytes are compared
            continue
        if found is not None:
            return found
    return None


def _read_plain(path: Path) -> Any:
    if path.suffix in (".npz", ".npy"):
        loaded = np.load(path, allow_pickle=False)
        return dict(loaded) if path.suffix == ".npz" else loaded
    return json.loads(path.read_text()) if path.suffix == ".json" else None

"""The folder of a run: which files change, which are checkpoints, copies at a kill, and the path it is run at.

Every run of a check has a folder of its own. A trainer that keeps absolute paths in its state, such as Lightning's
`best_model_path`, takes a copy elsewhere for another run and forgets what it had kept: no loss of a resume in place.
So what resumes from such a copy runs at the path that was saved (`AtOriginalPath`).
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from parity.checks.running.run import Request, Runner, Trace
from parity.storage import digest_range

__all__ = [
    "SET_APART",
    "AtOriginalPath",
    "Listing",
    "LogGrowth",
    "copy_folder",
    "followed",
    "hidden",
    "is_log",
    "list_folder",
    "named_in",
    "set_apart",
    "wait_for_rest",
]

Listing = dict[str, tuple[int, int, int]]
"""Relative path to size, time of the last change in nanoseconds, inode."""

_LOG = re.compile(r"(\.(jsonl?|csv|tsv|log|txt|out|err|html|png|toml|ya?ml|md|tmp|lock)|tfevents\..*)$|(^|/)\.")
_JSON = re.compile(r"(state|trainer|optim|sched|best|latest|meta|index|checkpoint|ckpt|snapshot|progress).*\.json$")
SET_APART = "-left"
"""End of the name of a folder that was set apart: runs that resume from it may need its first name."""


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

    A thread that saves may give a directory its last name meanwhile, and the copy would have it under neither name:
    what changed while it was copied is copied again.

    Args:
        folder: What is copied; an absent one is empty.
        to: Where its content goes; made if there is none.
    """
    for _ in range(MOST_COPIES):
        new, before = not to.exists(), list_folder(folder)
        _copy(folder, to)
        if not new or list_folder(folder) == before:
            return
        shutil.rmtree(to)
    _copy(folder, to)


MOST_COPIES = 50
"""Times that a folder is copied while it changes; after that it is taken as it comes."""


def _copy(folder: Path, to: Path) -> None:
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


def wait_for_rest(folder: Path, others: Collection[threading.Thread]) -> None:
    """Wait until threads that save into a folder have come to an end with it, as far as its files tell.

    Steps of a small model last less than a save in a thread: a kill would mostly find nothing that is whole.

    Args:
        folder: Where they save.
        others: Threads that were there before the function ran, none of its own.
    """
    if set(others).issuperset(threading.enumerate()):
        return
    end, still, files = time.monotonic() + LONGEST_WAIT, 0, list_folder(folder)
    while still < LISTINGS and time.monotonic() < end:
        time.sleep(BETWEEN)
        before, files = files, list_folder(folder)
        still = still + 1 if files == before else 0


LISTINGS, BETWEEN, LONGEST_WAIT = 5, 0.04, 5.0
"""Equal listings after which a folder is at rest, seconds between two, and the longest wait in seconds."""


class LogGrowth:
    """Tells logs from checkpoints by how they are written: a log keeps what it held, and more is added to its end.

    A checkpoint that a thread writes grows meanwhile too: from nothing, or once by bytes that are no text.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, str]] = {}
        self._grown: dict[str, int] = {}
        self._begun: set[str] = set()

    def hold(self, folder: Path, names: Iterable[str]) -> None:
        """Take what files hold before a process begins: it may add to one that had a single line or record so far.

        Args:
            folder: The folder of the run.
            names: Names of files in it.
        """
        for name in names:
            path = folder / name
            try:
                size = path.stat().st_size if path.is_file() else 0
                if 0 < size <= MOST_LOG and (path.read_bytes().endswith(b"\n") or not _is_text(path)):
                    self._held[name] = size, digest_range(path, 0, size)
                    self._begun.add(name)
            except OSError:  # it is gone meanwhile
                continue

    def appended(self, folder: Path, changed: Iterable[str]) -> set[str]:
        """Return the files that did nothing but grow at their end, each time that they changed.

        Args:
            folder: The folder of the run.
            changed: Names of files in it that changed since the last call.
        """
        for name in changed:
            path, (size, held) = folder / name, self._held.get(name, (0, ""))
            try:
                now = path.stat().st_size if path.is_file() else MOST_LOG + 1
                if now > MOST_LOG:  # of a large file its content is not read for this
                    self._grown[name] = -(1 << 30)
                    continue
                keeps = size < now and digest_range(path, 0, size) == held
                self._held[name] = now, digest_range(path, 0, now)
            except OSError:  # it is gone meanwhile
                continue
            if size:
                sure = ENOUGH if keeps and (name in self._begun or _is_text(path)) else 1
                self._grown[name] = self._grown.get(name, 0) + sure if keeps else -(1 << 30)
        return {name for name, sure in self._grown.items() if sure >= ENOUGH}


def _is_text(path: Path) -> bool:
    """Return whether a file holds text and nothing else.

    The whole is asked, as few bytes of numbers may be text by chance: three times 5.61 are valid UTF-8.
    """
    with path.open("rb") as file:
        held = file.read(MOST_LOG)
    try:
        return "\0" not in held.decode("utf-8")
    except UnicodeDecodeError:
        return False


ENOUGH = 2
"""Times that a file has to grow by other bytes than text; text tells it at once."""

MOST_LOG = 4 << 20
"""Largest file that is taken for a log by its content."""


class AtOriginalPath:
    """Runs a function where its checkpoints were saved, if they say where; otherwise in the folder it is given.

    Args:
        runner: Runs it.
        root: Directory of the folders of the runs.
    """

    def __init__(self, runner: Runner, root: Path) -> None:
        self._runner, self._root = runner, root
        self.mode, self.parallel, self.ranks = runner.mode, runner.parallel, runner.ranks
        self._lock = threading.Lock()

    def stop(self) -> None:
        """End the runs that take place, and refuse others."""
        self._runner.stop()

    def run(self, folder: Path, request: Request) -> Trace:
        """Run it once; the folder has the other path meanwhile, so that such runs follow one another."""
        home = named_in(folder, self._root)
        if home is None or home.exists():
            return self._runner.run(folder, request)
        with self._lock:
            folder.rename(home)
            try:
                trace = self._runner.run(home, request)
            finally:
                home.rename(folder)
        trace.folder = folder
        return trace


def named_in(folder: Path, root: Path) -> Path | None:
    """Return the first name of a folder below `root` that was set apart, if files in a folder name it.

    Args:
        folder: Folder of a run; all files below it are searched for the path as bytes, and what links lead to.
        root: Directory of the folders of the runs.

    Returns:
        The path of that folder before it was set apart; None where no file names one.
    """
    homes = [path.with_name(path.name.removesuffix(SET_APART)) for path in root.glob(f"*{SET_APART}")]
    for target in _links(folder):
        for home in homes:
            if target == home or home in target.parents:
                return home
    for name in list_folder(folder):
        path = folder / name
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                for home in homes:
                    if content.find(os.fsencode(home)) >= 0:
                        return home
    return None


def _links(folder: Path) -> Iterator[Path]:
    """Yield what the links below a folder say that they lead to."""
    for root, folders, names in os.walk(folder):
        paths = (os.path.join(root, name) for name in (*folders, *names))
        yield from (Path(os.readlink(path)) for path in paths if os.path.islink(path))


def followed(path: Path, folder: Path) -> Path:
    """Return what a file of a run is read from: the end of a link, within this folder where it leads into the run's.

    A link by a full path leads to where the run was; its folder has another name since, and copies of it have theirs.

    Args:
        path: A file or a link.
        folder: Folder of the run, as it is called now.
    """
    for _ in range(MOST_LINKS):
        if not path.is_symlink():
            break
        target = Path(os.readlink(path))
        runs = folder.parent
        if target.is_absolute() and runs in target.parents:
            target = folder.joinpath(*target.relative_to(runs).parts[1:])
        path = path.parent / target
    return path


MOST_LINKS = 40
"""Links that follow one another; more are a circle."""


def set_apart(folder: Path) -> Path:
    """Give the folder of a killed run another path, so that runs that resume from it can have its own."""
    return folder.rename(folder.with_name(folder.name + SET_APART))

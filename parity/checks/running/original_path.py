"""Home of a checkpoint: the path at which it was saved, for a trainer that wrote that path into it.

Every run of a check has a folder of its own. A trainer that keeps absolute paths in its state, such as Lightning's
`best_model_path`, takes a copy elsewhere for another run and forgets what it had kept: no loss of a resume in place.
"""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

from parity.checks.running.folder import SET_APART, list_folder
from parity.checks.running.request import Request
from parity.checks.running.runner import Runner
from parity.checks.running.trace import Trace

__all__ = ["AtOriginalPath", "named_in", "set_apart"]


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
        folder: Folder of a run; all files below it are searched for the path as bytes.
        root: Directory of the folders of the runs.

    Returns:
        The path of that folder before it was set apart; None where no file names one.
    """
    homes = [path.with_name(path.name.removesuffix(SET_APART)) for path in root.glob(f"*{SET_APART}")]
    for name in list_folder(folder):
        path = folder / name
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                for home in homes:
                    if content.find(os.fsencode(home)) >= 0:
                        return home
    return None


def set_apart(folder: Path) -> Path:
    """Give the folder of a killed run another path, so that runs that resume from it can have its own."""
    return folder.rename(folder.with_name(folder.name + SET_APART))

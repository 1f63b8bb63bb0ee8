"""The process of one run: imports the training function, runs it, and kills itself where it is to be killed."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from typing import Any

from parity.checks.live.inline import run_function
from parity.checks.live.recorder import MarkError
from parity.checks.live.request import Request
from parity.checks.live.trace import TraceWriter
from parity.runs import end_with_parent

__all__ = ["ByFile", "run_child"]


@dataclass(frozen=True, slots=True)
class ByFile:
    """A function of a module that is found by its file alone, as pytest imports tests."""

    module: str
    file: str
    name: str

    def load(self) -> Any:
        """Import the module under its own name and return the function."""
        spec = importlib.util.spec_from_file_location(self.module, self.file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.file} is no module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.module] = module
        spec.loader.exec_module(module)
        return attrgetter(self.name)(module)


def run_child(rows: Connection, train: Any, folder: Path, request: Request, parent: int, log: Path) -> None:
    """Run a training function and send what it shows.

    Args:
        rows: Takes the rows of the trace.
        train: The function, or where it is.
        folder: Its folder.
        request: How far, and what is looked at.
        parent: Process ID of the check; this process ends with it.
        log: Takes what the run prints.
    """
    os.setpgid(0, 0)  # a kill takes workers along
    end_with_parent(parent)
    with log.open("wb") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    writer = TraceWriter(rows.send)
    try:
        function = train.load() if isinstance(train, ByFile) else train
        writer.end(run_function(function, folder, request, writer=writer, on_kill=_kill))
    except MarkError as error:
        rows.send(("refused", str(error)))


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

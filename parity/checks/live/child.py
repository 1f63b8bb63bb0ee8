"""The process of one run: imports the training function, runs it, and kills itself where it is to be killed."""

from __future__ import annotations

import importlib.util
import multiprocessing.spawn
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

from parity.checks.live.inline import run_function
from parity.checks.live.recorder import MarkError
from parity.checks.live.trace import TraceWriter
from parity.runs import end_with_parent

__all__ = ["main"]


def main(data: dict[str, Any]) -> None:
    """Run one job.

    Args:
        data: `work`: directory with the job; `parent`: process ID; `main`, or `module` and `file`: how the module of
            the function is found.
    """
    end_with_parent(data["parent"])
    work = Path(data["work"])
    if data.get("main"):
        multiprocessing.spawn.prepare(data["main"])
    elif data.get("file"):
        _load(data["module"], data["file"])
    train = pickle.loads((work / "train").read_bytes())
    folder, request = pickle.loads((work / "job").read_bytes())
    with (work / "trace").open("wb") as file:
        writer = TraceWriter(file)
        try:
            trace = run_function(train, folder, request, writer=writer, on_kill=_kill)
        except MarkError as error:
            (work / "refused").write_text(str(error))
            return
        writer.end(trace)


def _load(name: str, file: str) -> None:
    """Import a module from its file, under the name by which its functions were pickled."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

"""Runs of a training function in processes of their own, killed by SIGKILL."""

from __future__ import annotations

import importlib.util
import itertools
import json
import multiprocessing.spawn
import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from parity.checks.live.inline import Train
from parity.checks.live.recorder import MarkError, Request
from parity.checks.live.trace import Trace, read_trace
from parity.environment import usable_cpus
from parity.errors import TrainerError

__all__ = ["ProcessRunner", "why_not_importable"]

TIMEOUT_SECONDS = 1800.0
"""Longest that one run may take."""

_CHILD = (
    "import sys, json; data = json.loads(sys.argv[1]); sys.path[:] = data['path']; "
    "from parity.checks.live.child import main; main(data)"
)


def why_not_importable(train: Train) -> str:
    """Return why another process cannot import a function; empty if it can."""
    try:
        pickle.dumps(train)
    except Exception as error:  # pickle raises what the object's own code raises
        what = " ".join(str(error).split())
        return f"{getattr(train, '__qualname__', train)!s} is not at the top of a module ({what[:120]})"
    module = sys.modules.get(getattr(train, "__module__", "") or "")
    if module is not None and module.__name__ == "__main__" and not getattr(module, "__file__", None):
        return "it was typed at a prompt; put it into a file"
    return ""


class ProcessRunner:
    """Runs the function in a new process each time."""

    mode = "process"
    parallel = max(2, min(4, usable_cpus()))

    def __init__(self, train: Train, root: Path) -> None:
        self._train, self._root, self._count = train, root, itertools.count(1)

    def __enter__(self) -> ProcessRunner:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, folder: Path, request: Request) -> Trace:
        """Run it once.

        Raises:
            TrainerError: It takes too long, or its process cannot import it.
            MarkError: A mark cannot be used.
        """
        work = self._root / f"process-{next(self._count)}"
        work.mkdir(parents=True)
        (work / "job").write_bytes(pickle.dumps((folder, request)))
        (work / "train").write_bytes(pickle.dumps(self._train))
        data = {"path": sys.path, "work": str(work), "parent": os.getpid(), **_modules(self._train)}
        with (work / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, json.dumps(data)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0,
            )  # fmt: skip
        try:
            code = process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            raise TrainerError(f"a run took longer than {TIMEOUT_SECONDS:g} s:\n{_tail(work)}") from None
        finally:
            _end(process)
        trace = read_trace(work / "trace")
        trace.folder = folder
        if (work / "refused").exists():
            raise MarkError((work / "refused").read_text())
        if trace.end == "lost":
            asked = request.kill is not None or request.kill_step is not None
            if code == -signal.SIGKILL and asked:
                trace.end = "killed"
            else:
                trace.error = f"its process ended with {code}:\n{_tail(work)}"
        return trace


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _modules(train: Train) -> dict[str, Any]:
    """Return how the module of a function is found: as the main program, or by its file where no path leads to it."""
    module = sys.modules.get(getattr(train, "__module__", "") or "")
    if module is None or not isinstance(module, ModuleType):
        return {}
    if module.__name__ == "__main__":
        prepared = multiprocessing.spawn.get_preparation_data("parity")
        return {"main": {k: v for k, v in prepared.items() if k.startswith("init_main")}}
    try:
        found = importlib.util.find_spec(module.__name__)
    except (ImportError, ValueError, AttributeError):
        found = None
    file = getattr(module, "__file__", None)
    if file and (found is None or found.origin != file or module.__name__ not in sys.modules):
        return {"module": module.__name__, "file": str(Path(file).resolve())}
    return {"file": str(Path(file).resolve()), "module": module.__name__} if file and _only_loaded(module) else {}


def _only_loaded(module: ModuleType) -> bool:
    """Return whether no finder leads to a module: pytest's importlib mode leaves modules like that."""
    held = sys.modules.pop(module.__name__)
    try:
        return importlib.util.find_spec(module.__name__) is None
    except (ImportError, ValueError, AttributeError):
        return True
    finally:
        sys.modules[module.__name__] = held


def _tail(work: Path) -> str:
    return "\n".join((work / "log").read_text(errors="replace").splitlines()[-12:])

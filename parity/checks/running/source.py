"""The trainer's source: which files are the user's own, what their calls are named, which lines open files.

Names order observations and suspects, and decide nothing.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from parity.capture import is_library_file
from parity.checks.running.run import Trace

__all__ = ["EVALUATES", "SAVES", "called_name", "is_pythons", "is_users", "nested_locals", "writes"]

SAVES = re.compile(r"(^|_)(save\w*|checkpoint\w*|ckpt|dump\w*|export\w*|snapshot)($|_)", re.IGNORECASE)
EVALUATES = re.compile(r"(^|_)(eval\w*|valid\w*|val|test|estimate\w*)($|_)", re.IGNORECASE)
"""Words of calls that seem to save and to evaluate: they choose what is observed, and decide nothing."""


def called_name(call: ast.Call) -> str:
    """Return the last name of what is called; empty where it has none, as in `table[0]()`."""
    name: str = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return name


@functools.lru_cache(maxsize=64)
def nested_locals(tree: ast.Module) -> Mapping[int, frozenset[str]]:
    """Return, by its first line, the variables of its own of each function inside of another one.

    Args:
        tree: A module. Other names that such a function takes may be variables of the functions around it.
    """
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    found: dict[int, frozenset[str]] = {}
    for outer in (node for node in ast.walk(tree) if isinstance(node, kinds)):
        for one in ast.walk(outer):
            if one is outer or not isinstance(one, kinds):
                continue
            inside = list(ast.walk(one))
            own = {x.id for x in inside if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
            own |= {x.arg for x in inside if isinstance(x, ast.arg)}
            shared = {name for x in inside if isinstance(x, ast.Nonlocal) for name in x.names}
            first = min([one.lineno, *(d.lineno for d in getattr(one, "decorator_list", []))])
            found[first] = frozenset(own - shared)
    return found


def is_users(file: str) -> bool:
    """Return whether a source file is the user's: neither of Python, nor installed, nor of this suite."""
    return not (file.startswith(_SUITE) or is_library_file(file))


@functools.lru_cache(maxsize=1 << 10)
def is_pythons(file: str) -> bool:
    """Return whether a source file is of Python's standard library, as those of asyncio."""
    below = os.path.join(sysconfig.get_path("stdlib"), "")
    return file.startswith(below) and not set(Path(file).parts) & {"site-packages", "dist-packages"}


_ROOT = Path(__file__).parents[3]
_SUITE = ("<", *(os.path.join(path, "") for path in (_ROOT / "parity", *_ROOT.glob("*_side"))))
"""Beginnings of what is no file, and of the suite's files: in its checkout they lie where a user's would, and what
its adapters decide by while they look at a trainer is no decision of the trainer."""


class WatchedFolder(Protocol):
    """The run whose folder is watched."""

    trace: Trace
    folder: Path
    frame: FrameType | None

    def has_written(self, name: str) -> bool:
        """Return whether a file was written whole since the first mark."""


class WriteWatch:
    """Notes which files below the folder are opened: to write, with the line of the marked frame, or to read."""

    def __init__(self) -> None:
        self.recorder: WatchedFolder | None = None
        self._installed = False

    def start(self, recorder: WatchedFolder) -> None:
        """Watch for one run; the hook stays, as no audit hook can be taken away, and does nothing meanwhile."""
        self.recorder = recorder
        if not self._installed:
            self._installed = True
            sys.addaudithook(_of_files(self._note))

    def stop(self) -> None:
        """Watch no more."""
        self.recorder = None

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        recorder = self.recorder
        if recorder is None:
            return
        path = os.fspath(arguments[0]) if isinstance(arguments[0], str | os.PathLike) else None
        # not what lies beside it under a longer name, such as `run_logs` beside `run`
        if not isinstance(path, str) or not f"{path}{os.sep}".startswith(f"{recorder.folder}{os.sep}"):
            return
        trace, name = recorder.trace, os.path.relpath(path, recorder.folder)
        mode = arguments[1] if event == "open" else None
        if event in ("os.listdir", "os.scandir"):
            trace.reading = True
        elif event == "os.rename":
            trace.renamed.add(name)
        elif event != "open":
            trace.removed.append((max(0, len(trace.marks) - 1), name))
        elif isinstance(mode, str) and not set(mode) & set("wax+"):
            trace.reads.add(name)
            # what this very process wrote since it began cannot give back what it did not load
            trace.reading = trace.reading or not recorder.has_written(name)
        elif isinstance(mode, str) and recorder.frame is not None:
            for where in _lines(sys._getframe(2), recorder.frame):
                if where not in trace.writes:
                    trace.writes.append(where)


def _lines(frame: FrameType | None, marked: FrameType) -> Iterator[tuple[str, int]]:
    """Return where the trainer's own code stands, from a frame out to the marked one."""
    yield marked.f_code.co_filename, marked.f_lineno
    for _ in range(MOST_FRAMES):
        if frame is None or frame is marked:
            return
        if is_users(frame.f_code.co_filename):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


MOST_FRAMES = 60
"""Frames that are looked at when a file is opened."""

_EVENTS = frozenset({"open", "os.remove", "shutil.rmtree", "os.rename", "os.listdir", "os.scandir"})
"""Audit events that concern files of the folder."""


def _of_files(note: Callable[[str, tuple[Any, ...]], None]) -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook that passes on what concerns files.

    It is a plain function, as it stays and every `id` of the process calls it: 170 ns. Of a bound method CPython 3.11
    asks each time in vain whether it may be traced: 570 ns.
    """
    wanted = _EVENTS

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in wanted:
            note(event, arguments)

    return hook


writes = WriteWatch()
"""The one of this process."""

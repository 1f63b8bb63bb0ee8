"""Declared regions: what `parity.evaluation` and `parity.saving` enclose, compared before and after.

What a statement did to the state is by itself no loss: it may be training. Where the author of the loop says that it
evaluates or saves, it is. The state of this process that a check puts aside, and back after a region, is here too:
random generators that all code shares, settings of frameworks.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, Protocol

import numpy as np

from parity import sides
from parity.capture import Region, Scope, StateSnapshot, differing, outer_scopes, root_of
from parity.checks.running.run import Effect, Request, Trace

__all__ = ["RegionWatch", "fresh_process", "save_process_state", "seeds_on_import"]

MOST = 4
"""Times that one region is compared in a run."""


class WatchedRegions(Protocol):
    """The run whose regions are watched."""

    request: Request
    trace: Trace
    code: CodeType | None

    @property
    def told_state(self) -> Mapping[str, Any] | None:
        """Return what the last mark said the state is; None where it said nothing."""

    def snapshot(
        self, scopes: Sequence[Scope], state: Mapping[str, Any] | None, *, keep: Sequence[str] = ()
    ) -> StateSnapshot:
        """Capture what frames reach, with the values of some paths."""


class RegionWatch:
    """Compares the live state before and after the declared regions of one run."""

    def __init__(self, run: WatchedRegions) -> None:
        self._run = run
        self._times: dict[tuple[CodeType, int], int] = {}

    def enter(self, what: Region, frame: FrameType) -> Callable[[], None]:
        """Take the beginning of a region; what is returned takes its end."""
        run = self._run
        place = (frame.f_code, frame.f_lineno)
        if not run.trace.marks:  # before the first mark there is nothing that training could lose
            return _nothing
        if run.request.put_back:
            return save_process_state()
        self._times[place] = self._times.get(place, 0) + 1
        if not run.request.watch or self._times[place] > MOST:
            return _nothing
        before, step = self._now(frame), run.trace.marks[-1].step
        name, line = frame.f_code.co_filename, frame.f_lineno
        where = f"{os.path.basename(name)}:{line}: {linecache.getline(name, line).strip()}"

        def leave() -> None:
            after = self._now(frame)
            known = {root_of(path) for path in before.leaves}  # the others are made by the region for itself
            changed = {
                path: (before.leaves.get(path), after.leaves.get(path))
                for path in sorted(differing(before.leaves, after.leaves))
                if root_of(path) in known
            }
            run.trace.effects.append(Effect(what, step, where, changed, declared=True))

        return leave

    def _now(self, frame: FrameType) -> StateSnapshot:
        return self._run.snapshot(outer_scopes(frame, self._run.code), self._run.told_state)


def _nothing() -> None:
    """Take the end of a region that is not compared."""


def save_process_state() -> Callable[[], None]:
    """Return a function that puts generators and settings of this process back as they are now."""
    python, shared = random.getstate(), np.random.get_state()  # noqa: NPY002 - the state that all code shares
    frameworks = [adapter.set_aside() for adapter in sides.adapters().values()]
    arithmetic = save_arithmetic()

    def put_back() -> None:
        arithmetic()
        random.setstate(python)
        np.random.set_state(shared)  # noqa: NPY002
        for restore in frameworks:
            restore()

    return put_back


def save_arithmetic() -> Callable[[], None]:
    """Return a function that has NumPy answer to an overflow, a division by zero and the like as it does now."""
    errors = np.geterr()

    def put_back() -> None:
        np.seterr(**errors)

    return put_back


def fresh_process() -> None:
    """Seed what all code shares as a new process does: Python's and NumPy's generators from the system."""
    random.seed()
    np.random.seed()  # noqa: NPY002
    for adapter in sides.adapters().values():
        adapter.fresh_process()


def seeds_on_import(train: Any) -> bool:
    """Return whether the module of a function seeds a generator outside its functions: then each process does.

    Told from its source: a call there whose function has `seed` in its name, such as `torch.manual_seed(0)`.
    """
    try:
        source = inspect.getsource(sys.modules[train.__module__])
        return any("seed" in ast.unparse(call.func).rpartition(".")[2] for call in _calls(ast.parse(source)))
    except (AttributeError, KeyError, OSError, TypeError, SyntaxError):
        return False


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """Return the calls that importing a module makes itself."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)

"""Effects of statements: what saving and evaluating did to the live state, seen before and after the statement.

A save or an evaluation that changes training does so in the uninterrupted run too, so two curves never show it. The
statements are found in the source of the marked function by what they call, and by writing files below the folder.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal, Protocol

import numpy as np

from parity.capture import Leaf, Scope, StateSnapshot, live_names, root_of
from parity.checks.noise import EPSILON
from parity.checks.running.run import Effect, Request, Trace
from parity.checks.running.source import EVALUATES, SAVES, called_name

__all__ = ["Statement", "StatementWatch", "statements_of"]

MOST_PARAMS = 64
"""Parameters whose values are kept across a statement."""

MOST = 3
"""Times that one statement is watched."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that saves or evaluates, by its lines."""

    what: Literal["save", "evaluation"]
    first: int
    last: int


def statements_of(code: CodeType, writes: Sequence[tuple[str, int]] = ()) -> list[Statement]:
    """Return the statements of a function that save or evaluate; none where there is no source.

    Args:
        code: Code of the function.
        writes: Files and lines of code during which the folder was written to.
    """
    lines_written = {line for file, line in writes if file == code.co_filename}
    function = _parsed(code)
    if function is None:
        return []
    found: list[Statement] = []
    for node in ast.walk(function):
        if isinstance(node, ast.With) and any(
            _names(item.context_expr) & {"no_grad", "inference_mode"} for item in node.items
        ):
            found.append(Statement("evaluation", node.lineno, node.end_lineno or node.lineno))
        elif isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            first, last = node.lineno, node.end_lineno or node.lineno
            if _is_mode(node):
                continue
            called = {name for call in ast.walk(node) if isinstance(call, ast.Call) for name in _names(call.func)}
            if any(SAVES.search(name) for name in called) or any(first <= line <= last for line in lines_written):
                found.append(Statement("save", first, last))
            elif any(EVALUATES.search(name) for name in called):
                found.append(Statement("evaluation", first, last))
    losses = _losses(function)
    for node in ast.walk(function):  # what stands under one condition is swapped in and put back under it
        if isinstance(node, ast.If) and not _trains(node, losses):
            first, last = node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
            inside = {s.what for s in found if first <= s.first and s.last <= last}
            if inside:
                found.append(Statement("evaluation" if "evaluation" in inside else "save", first, last))
    return [s for s in found if not any(o != s and o.first <= s.first and s.last <= o.last for o in found)]


@lru_cache(maxsize=256)  # every run of a check asks for the same functions
def _parsed(code: CodeType) -> ast.AST | None:
    """Return the source of a function as a tree with the lines of its file; None where there is none."""
    try:
        lines, start = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None
    ast.increment_lineno(tree, max(start, 1) - 1)
    return tree.body[0] if tree.body else tree


def _is_mode(node: ast.AST) -> bool:
    """Return whether a statement is a lone `model.eval()`, which changes the mode and is meant to."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ("eval", "train")


_TRAINS = frozenset(
    {"step", "backward", "update", "apply_gradients", "train_step", "train_one_step", "apply_updates"}
)


def _losses(function: ast.AST) -> set[str]:
    """Return the variables of which a function takes the gradient, as by `(loss / 4).backward()`."""
    parts = [
        part
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "backward"
        for part in (call.func.value, *call.args)
    ]
    return {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}


def _trains(node: ast.AST, losses: set[str]) -> bool:
    """Return whether a block trains, adds to a loss, or holds the mark: it is more than a save or an evaluation."""
    if any(isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id in losses for n in ast.walk(node)):
        return True
    names = {called_name(n) for n in ast.walk(node) if isinstance(n, ast.Call)}
    return bool(names & _TRAINS) or any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(node))


def _names(node: ast.AST) -> set[str]:
    """Return the last names of a called expression: `torch.save` gives save and torch."""
    return {
        n.attr if isinstance(n, ast.Attribute) else n.id
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute | ast.Name)
    }


class WatchedStatements(Protocol):
    """The run whose statements are watched."""

    request: Request
    trace: Trace
    folder: Path
    frame: FrameType | None

    def snapshot(
        self, scopes: Sequence[Scope], state: Mapping[str, Any] | None, *, keep: Sequence[str] = ()
    ) -> StateSnapshot:
        """Capture what frames reach, with the values of some paths."""


class StatementWatch:
    """Compares the live state before and after the statements, within a run that is traced line by line."""

    def __init__(self, recorder: WatchedStatements) -> None:
        self.recorder = recorder
        self._statements: dict[CodeType, list[Statement]] = {}
        self._times: dict[tuple[CodeType, int], int] = {}
        self._open: tuple[FrameType, Statement, StateSnapshot] | None = None

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace function of the marked frames: called before each line of theirs."""
        if event == "line":
            self._leave(frame)
            if self._open is None:
                self._enter(frame)
        elif event == "return":
            self._leave(frame, returning=True)
        return self.trace

    def flush(self, scopes: Sequence[Scope], state: Mapping[str, Any] | None) -> None:
        """Close a statement that was open when the loop came to its mark."""
        if self._open is not None:
            self._close(self.recorder.snapshot(scopes, state))

    def _enter(self, frame: FrameType) -> None:
        code = frame.f_code
        if code not in self._statements:
            self._statements[code] = statements_of(code, self.recorder.request.writes)
        for statement in self._statements[code]:
            if frame.f_lineno == statement.first and self.recorder.trace.marks:
                times = self._times.get((code, statement.first), 0)
                if times < MOST:
                    self._times[(code, statement.first)] = times + 1
                    self._open = (frame, statement, self._now(frame))
                return

    def _leave(self, frame: FrameType, *, returning: bool = False) -> None:
        if self._open is None or self._open[0] is not frame:
            return
        statement = self._open[1]
        if returning or not statement.first <= frame.f_lineno <= statement.last:
            self._close(self._now(frame))

    def _now(self, frame: FrameType) -> StateSnapshot:
        scope = Scope("", frame.f_code, -1, dict(frame.f_locals), frame.f_globals)
        last = self.recorder.trace.marks[-1].snapshot.leaves
        params = [p for p, leaf in last.items() if leaf.component == "model.params"]
        return self.recorder.snapshot([scope], None, keep=params[:MOST_PARAMS])

    def _close(self, after: StateSnapshot) -> None:
        assert self._open is not None
        frame, statement, before = self._open
        self._open = None
        paths = {*before.leaves, *after.leaves}
        changed = {
            path: (before.leaves.get(path), after.leaves.get(path))
            for path in sorted(paths)
            if before.leaves.get(path) != after.leaves.get(path)
        }
        if statement.what == "evaluation" and _makes_data(frame, changed):
            return
        name = frame.f_code.co_filename
        where = f"{os.path.basename(name)}:{statement.first}: {linecache.getline(name, statement.first).strip()}"
        rounded = frozenset(p for p in changed if _is_rounding(before.values.get(p), after.values.get(p), before, p))
        step = self.recorder.trace.marks[-1].step
        self.recorder.trace.effects.append(Effect(statement.what, step, where, changed, rounded))


def _makes_data(frame: FrameType, changed: Mapping[str, tuple[Leaf | None, Leaf | None]]) -> bool:
    """Return whether a statement leaves arrays that the code reads later: a rollout, a batch, no evaluation."""
    live = live_names(frame.f_code, frame.f_lasti)
    return any(
        leaf is not None and leaf.role == "array" and leaf.component not in ("best", "ema") and root_of(path) in live
        for path, (_, leaf) in changed.items()
    )


def _is_rounding(before: Any, after: Any, snapshot: StateSnapshot, path: str) -> bool:
    """Return whether an array changed by a few units in the last place of its largest element."""
    if not isinstance(before, np.ndarray) or not isinstance(after, np.ndarray) or before.shape != after.shape:
        return False
    unit = EPSILON.get(snapshot.leaves[path].kind.partition("[")[0], 0.0)
    largest = float(np.abs(before.astype(np.float64)).max(initial=0.0))
    return float(np.abs(before.astype(np.float64) - after.astype(np.float64)).max(initial=0.0)) <= 8 * unit * largest

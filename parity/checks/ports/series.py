"""Series: the values of one trainer at the marks that are compared, of two equal runs and of nudged ones."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from parity.capture import Leaf, StateSnapshot
from parity.checks.judging import judge_same, varying
from parity.checks.running import Compute, Nudge, Request, Runner, Trace
from parity.errors import TrainerError

__all__ = ["NARROW_FIRST", "STATE", "Series", "Trained", "kept_steps", "scalar_of"]

STATE = ("model.params", "model.buffers", "optimizer.", "ema")
"""Components whose arrays are compared."""

CURVES = ("loss", "schedule.lr", "scaler.scale")
"""Components of which single numbers are compared, step by step."""

NARROW_FIRST: tuple[Compute, ...] = ("bfloat16", "float16", "float32", "float64")
"""Floating types, the narrowest first."""

MOST_BYTES = 1 << 30
"""Memory that the values of one series may take; above, fewer marks are kept."""


@dataclass
class Series:
    """Values at the marks of one run."""

    steps: list[int]
    """Completed steps at every mark, and one more for the state at the return if that was seen."""
    values: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Step to path to value: the curves at every step, the arrays where they were kept."""

    def curve(self, path: str) -> dict[int, float]:
        """Return step to number."""
        return {step: scalar_of(found[path]) for step, found in self.values.items() if path in found}

    def kept(self, paths: Sequence[str]) -> list[int]:
        """Return the steps at which all of the paths were kept."""
        return [step for step in self.steps if all(path in self.values.get(step, {}) for path in paths)]


class Trained:
    """One trainer of the pair: runs of it, and what its leaves are.

    Args:
        name: What it is called in messages.
        runner: Runs the function.
        root: Directory for the folders of its runs.
        steps: Steps of the whole run.
        options: Keyword arguments of the function.
    """

    def __init__(self, name: str, runner: Runner, root: Path, steps: int, options: Mapping[str, Any]) -> None:
        self.name, self.runner, self.root, self.steps, self.options = name, runner, root, steps, dict(options)
        self.reference = self._run("reference", Request(steps=steps, options=self.options, reference=True))
        marks = self.reference.marks
        if len(marks) < 3:
            raise TrainerError(f"{name}: the function made {len(marks)} marks in {steps} steps; yield the completed "
                               "steps, or call parity.mark, once per step")  # fmt: skip
        self._last = (self.reference.final or marks[-1].snapshot).leaves
        self.changing = varying(marks)
        self.leaves: Mapping[str, Leaf] = marks[-1].snapshot.leaves
        self.numbers = [
            p for p, leaf in self._last.items()
            if leaf.component in CURVES and _is_number(leaf)
            and (p in self.changing or ":" not in p)  # a constant of some module is no curve, whatever it is called
        ]  # fmt: skip
        self.state = [p for p, leaf in self.leaves.items() if _is_state(leaf) and not marks[-1].snapshot.is_dead(p)]

    @property
    def marked(self) -> list[int]:
        """Return the completed steps at the marks."""
        return self.reference.steps

    @property
    def size(self) -> int:
        """Return the bytes of all arrays that are compared, at one mark."""
        return sum(_bytes(self.leaves[path]) for path in self.state)

    def component(self, path: str) -> str:
        """Return what a leaf is."""
        return (self.leaves.get(path) or self._last[path]).component

    def series(self, name: str, paths: Sequence[str], steps: Sequence[int], *, folder: Path | None = None,
               nudge: Nudge | None = None, kill_step: int | None = None) -> tuple[Series, Trace]:  # fmt: skip
        """Run once and keep values.

        Args:
            name: Name of the run's folder.
            paths: Arrays to keep.
            steps: Completed steps at which they are kept, of a run from the start.
            folder: A folder to continue from, instead of a new one.
            nudge: How the start is moved.
            kill_step: Completed steps at which it is killed.
        """
        marks = self.marked
        asked = set(steps)
        wanted = {at for at, step in enumerate(marks) if folder is not None or step in asked}
        keep = {at: [*self.numbers, *(paths if at in wanted else ())] for at in range(len(marks))}
        keep[-1] = [*self.numbers, *paths]
        request = Request(steps=self.steps, options=self.options, keep=keep, nudge=nudge, kill_step=kill_step)
        trace = self._run(name, request, folder)
        found = Series([mark.step for mark in trace.marks])
        for mark in trace.marks:
            found.values.setdefault(mark.step, _values(mark.snapshot))
        if trace.final is not None and trace.marks and not trace.state_was_named:
            found.steps.append(trace.marks[-1].step + 1)
            found.values[trace.marks[-1].step + 1] = _values(trace.final)
        return found, trace

    def parts(self, again: Trace) -> str:
        """Return where an equal run parts from the first, and what to do; empty if it does not."""
        parted = judge_same(self.reference.marks, again.marks, self.changing)
        if parted is None:
            return ""
        where = f"at step {parted.step}: {parted.path} differs"
        return f"two equal runs of {self.name} part by themselves {where}: seed what is random, then compare"

    def precision(self, paths: Sequence[str]) -> Compute:
        """Return the narrowest floating type among leaves."""
        kinds = {self.leaves[path].kind.partition("[")[0] for path in paths if path in self.leaves}
        return next((one for one in NARROW_FIRST if one in kinds), "float32")

    def _run(self, name: str, request: Request, folder: Path | None = None) -> Trace:
        trace = self.runner.run(folder or self.root / name, request)
        if trace.end in ("failed", "lost", "late"):
            raise TrainerError(f"{self.name}: the function failed without being stopped:\n{trace.error}")
        return trace


def kept_steps(marked: Sequence[int], size: int) -> list[int]:
    """Return the steps at which arrays are kept: the first ones, then ever further apart, and the last.

    Args:
        marked: Completed steps at the marks.
        size: Bytes of all arrays at one mark.
    """
    most = max(3, MOST_BYTES // max(size, 1))
    if len(marked) <= min(most, 64):
        return list(marked)
    apart = [at for at in (1 << n for n in range(40)) if at < len(marked)]
    wanted = sorted({0, 1, 2, *apart, len(marked) - 1})
    while len(wanted) > most:
        del wanted[len(wanted) // 2]
    return [marked[at] for at in wanted]


def scalar_of(value: Any) -> float:
    """Return a kept value as a number; NaN if it is not one."""
    try:
        return float(np.asarray(value).reshape(-1)[0])
    except (TypeError, ValueError, IndexError):
        return float("nan")


def _is_number(leaf: Leaf) -> bool:
    return leaf.role in ("scalar", "state", "array") and (
        leaf.kind in ("float", "int")
        or (leaf.kind.endswith("[]") and "float" in leaf.kind)
        or leaf.kind.startswith("numpy.float")
    )


def _values(snapshot: StateSnapshot) -> dict[str, Any]:
    """Return what was kept; a path that was met as a second name of something stands for no value of its own."""
    return {p: value for p, value in snapshot.values.items() if snapshot.leaves[p].role != "alias"}


def _bytes(leaf: Leaf) -> int:
    shape = re.search(r"\[([\dx]*)\]", leaf.kind)
    sizes = [int(one) for one in (shape[1] if shape else "").split("x") if one]
    return 8 * math.prod(sizes)


def _is_state(leaf: Leaf) -> bool:
    array = re.match(r"b?float\d+\[\d", leaf.kind) is not None
    return leaf.role in ("state", "array") and array and leaf.component.startswith(STATE)

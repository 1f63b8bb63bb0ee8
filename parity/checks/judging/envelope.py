"""The envelope of a trainer that is not deterministic: how far equal runs differ, and how far a resumed one does.

Equal runs part by rounding where sums are added in no fixed order; all that rounding does not move is judged by bits.
A resumed run may part from them as far as they part from each other, and a little more; how much more is a limit with
a measured reason. Where equal runs differ by more than a step of training moves the values, a fault would hide among
them, and nothing is judged.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.capture import HARD, Leaf
from parity.checks.judging.evidence import LATER, Evidence, TwoStates, after_resume, both_runs
from parity.checks.noise import EPSILON, FLOOR_ULPS, distance
from parity.checks.running import Mark, Trace

__all__ = [
    "LIMIT",
    "RUNS",
    "EnvelopeJudgement",
    "EqualRunsEnvelope",
    "bytes_of",
    "choose_steps",
    "is_floating",
    "is_trained_number",
    "moved_by_rounding",
    "why_not_rounding",
]

DISCRETE = (
    "optimizer.step", "optimizer.hyperparameters", "optimizer.param_", "optimizer.identity", "schedule", "scaler",
    "counters", "data", "rng", "settings", "model.mode", "model.requires_grad", "model.hyperparameters",
)  # fmt: skip
"""Components that rounding does not move: where equal runs agree in them, a resumed run must agree bit by bit."""

_ARRAY = re.compile(r"(?:b?float|complex)(\d+)\w*\[([\dx]*)\]")


def is_floating(leaf: Leaf) -> bool:
    """Return whether a leaf holds floating numbers that rounding can move."""
    return "float" in leaf.kind and not leaf.component.startswith(DISCRETE)


def bytes_of(leaf: Leaf) -> int:
    """Return the size of a leaf's values.

    Example:
        >>> bytes_of(Leaf("state", "model.params", "float32[3x4]", ""))
        48
    """
    found = _ARRAY.match(leaf.kind)
    if found is None:
        return 8
    return int(found[1]) // 8 * math.prod(int(size) for size in found[2].split("x") if size)


def moved_by_rounding(marks: Sequence[Mark], noise: Collection[str], changing: Collection[str]) -> frozenset[str]:
    """Return the paths of a run whose numbers rounding moves, also where it happened to leave them equal.

    Args:
        marks: The uninterrupted run.
        noise: Paths that differ between equal runs.
        changing: Paths whose value changes while the run goes.
    """
    found = set()
    for mark in marks:
        for path, leaf in mark.snapshot.leaves.items():
            scalar_noise = leaf.role == "scalar" and path in noise  # a clock, a loss: no evidence even at the resume
            if path in changing and is_floating(leaf) and not scalar_noise:
                found.add(path)
    return frozenset(found)


def why_not_rounding(
    marks: Sequence[Mark], others: Iterable[Sequence[Mark]], parted: Evidence, changing: Collection[str]
) -> str:
    """Return what equal runs differ in that rounding does not explain; empty if it may be rounding.

    Args:
        marks: The uninterrupted run.
        others: Equal runs.
        parted: Where the first of them parts.
        changing: Paths whose value changes while the run goes.
    """
    if parted.step == marks[0].step:
        return "before the first step"
    if parted.component.startswith(DISCRETE):
        return parted.path
    for again in others:
        for both in both_runs(marks, again):
            for path in both.differing():
                leaf = both.leaf(path)
                trained = leaf.role in HARD and not leaf.component.startswith("rng") and path in changing
                if trained and not both.left.is_dead(path) and not is_floating(leaf):
                    return path
    return ""


def is_trained_number(path: str, marks: Sequence[Mark]) -> bool:
    """Return whether a path is, at the last mark, an array that training continues from.

    Args:
        path: The path.
        marks: The uninterrupted run, at least one mark.
    """
    last = marks[-1].snapshot
    leaf = last.leaves.get(path)
    return leaf is not None and leaf.role in ("state", "array") and not last.is_dead(path)


RUNS = 5
"""Equal runs from which an envelope is measured."""

LIMIT = 4.0
"""Largest multiple of the envelope that passes.

Clean runs reach at most 1.7. One step's update that is wrong by half is 9,000 times off with noise of one unit in
the last place of float32, 178 with 64, 11 with 1,024; its gradient wrong by half 270,000, 5,500 and 290 times. With
16,384 units nothing is judged (`tests/live/noisy_trainers.py`, faults `rate_late` and `gradient_late`).
"""

AROUND = 2
"""Marks before and after one, over which the envelope takes its largest spread: a spike may come a step sooner."""

FIRST = 3
"""Marks after a resume at which every component has to be within reach of the envelope, or nothing is judged."""

MOST_BYTES = 512 << 20
"""Most values of all runs together; above, fewer marks are compared, and the verdict says so."""

ValuesByStep = Mapping[int, Mapping[str, Any]]
"""Completed steps to path to value."""


@dataclass(kw_only=True)
class EnvelopeJudgement:
    """What an envelope says about one run."""

    multiple: float = 0.0
    """Largest deviation, as a multiple of the envelope, where it can judge."""
    broken: list[Evidence] = field(default_factory=list)
    too_wide: str = ""
    """Why nothing is judged; empty if it is."""


def choose_steps(marks: Sequence[Mark], paths: Collection[str], most_bytes: int = MOST_BYTES) -> list[int]:
    """Return the completed steps at which values are kept: all, or as many as the memory takes, evenly spread.

    Args:
        marks: The uninterrupted run, at least one mark.
        paths: Leaves whose values are kept; their sizes are those at the last mark.
        most_bytes: Most bytes of the values of `RUNS` + 1 runs together; four steps are kept even above it.
    """
    leaves = marks[-1].snapshot.leaves
    size = sum(bytes_of(leaves[path]) for path in paths if path in leaves)
    most = max(4, most_bytes // max(1, size * (RUNS + 1)))
    steps = list(dict.fromkeys(mark.step for mark in marks))
    if len(steps) <= most:
        return steps
    return [steps[round(at)] for at in np.linspace(0, len(steps) - 1, most)]


class EqualRunsEnvelope:
    """How far equal runs differ, leaf by leaf and step by step.

    Args:
        runs: Uninterrupted runs, with the values of the paths at the steps.
        paths: What is judged by it.
        steps: Completed steps at which values were kept.
    """

    def __init__(self, runs: Sequence[Trace], paths: Collection[str], steps: Sequence[int]) -> None:
        self.runs, self.paths, self._kept = len(runs), frozenset(paths), tuple(steps)
        self._values = [values_of(trace) for trace in runs]
        self.steps = sorted(set.intersection(*({*values} for values in self._values)))
        """Completed steps at which runs can be compared; the last is that of the state at the end."""
        self._last = runs[0].marks[-1].snapshot
        self._leaves = self._last.leaves
        self._spread = {step: self._spread_at(step) for step in self.steps}

    @property
    def keep(self) -> dict[int, tuple[str, ...]]:
        """Return what a run to be judged has to keep: completed steps to paths; -1 is the state at the end."""
        return dict.fromkeys((*self._kept, -1), tuple(sorted(self.paths)))

    def width(self, path: str, step: int) -> float:
        """Return the envelope's half-width, as the root mean square over the elements of a leaf."""
        return max(self._spread[one].get(path, 0.0) for one in self._near(step))

    def update(self, path: str, step: int) -> float:
        """Return how far one step of training moves a leaf: the size of an error that must not hide."""
        moved = [0.0]
        for before, after in itertools.pairwise(self._near(step)):
            old, new = (self._values[0].get(one, {}).get(path) for one in (before, after))
            if old is not None and new is not None:
                moved.append(_apart(old, new) / (after - before))
        return max(moved)

    def _near(self, step: int) -> list[int]:
        at = self.steps.index(step)
        return self.steps[max(0, at - AROUND) : at + AROUND + 1]

    def too_wide(self, after: int) -> str:
        """Return where equal runs differ by too much right after a step; empty if an error cannot hide there."""
        return self._too_wide([step for step in self.steps if step > after][:FIRST])

    def judge(self, trace: Trace, after: int) -> EnvelopeJudgement:
        """Judge a run by the envelope, from the first mark after a step on.

        Args:
            trace: The run, with the values that `keep` asks for.
            after: Completed steps at its resume; there it is compared bit by bit instead.
        """
        out, got = EnvelopeJudgement(), values_of(trace)
        steps = [step for step in self.steps if step > after and step in got]
        if not steps:
            out.too_wide = "no mark after the resume could be compared"
            return out
        out.too_wide = self._too_wide(steps[:FIRST])
        if out.too_wide:
            return out
        seen = False
        for step in steps:
            found = self._multiples(step, got[step])
            seen = seen or bool(found)
            out.multiple = max([out.multiple, *found.values()])
            if over := {path: multiple for path, multiple in found.items() if multiple > LIMIT}:
                paths = TwoStates(step, self._last, self._last).ranked(over, LATER)
                out.broken = [self._evidence(path, step, over[path], after) for path in paths]
                return out
        out.too_wide = "" if seen else "nothing that the envelope can judge changes after the resume"
        return out

    def _multiples(self, step: int, got: Mapping[str, Any]) -> dict[str, float]:
        """Return the deviation of each leaf at a step that the envelope can judge there."""
        found = {}
        for path, value in got.items():
            width = self.width(path, step)
            known = [run[step][path] for run in self._values if path in run.get(step, {})]
            if len(known) == self.runs and width and self.update(path, step) >= LIMIT * width:
                found[path] = float(np.median([_apart(one, value) for one in known])) / width
        return found

    def _too_wide(self, steps: Sequence[int]) -> str:
        """Return where equal runs differ by so much that an error of one step's size would hide; empty if nowhere."""
        for step in steps:
            sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
            for path in self._spread[step]:
                component = self._leaves[path].component if path in self._leaves else ""
                if component.startswith(_TRAINED):
                    size = bytes_of(self._leaves[path])
                    sums[component][0] += size * self.width(path, step) ** 2
                    sums[component][1] += size * self.update(path, step) ** 2
            for component, (width, update) in sorted(sums.items()):
                if update and LIMIT**2 * width > update:
                    ratio = (width / update) ** 0.5
                    return (
                        f"at step {step} {self.runs} equal runs differ in {component} by {ratio:.2g} of what a step "
                        f"of training moves it; {LIMIT:g} times that would hide the loss of a step"
                    )
        return ""

    def _spread_at(self, step: int) -> dict[str, float]:
        found = {}
        for path in self.paths:
            values = [run[step][path] for run in self._values if path in run.get(step, {})]
            if len(values) == self.runs:
                pairs = itertools.combinations(values, 2)
                found[path] = max(self._floor(path, values[0]), *(_apart(a, b) for a, b in pairs))
        return found

    def _floor(self, path: str, value: Any) -> float:
        kind = self._leaves[path].kind if path in self._leaves else ""
        unit = EPSILON.get(kind.partition("[")[0], EPSILON["float32"])
        return FLOOR_ULPS * unit * _rms(np.abs(np.asarray(value, np.float64)))

    def _evidence(self, path: str, step: int, multiple: float, after: int) -> Evidence:
        expected = f"within {LIMIT:g} times the envelope of {self.runs} equal runs"
        when = after_resume(sum(after < one <= step for one in self.steps))
        return Evidence(self._leaves[path].component, path, step, expected, f"{multiple:.3g} times", when)


_TRAINED = ("model.params", "optimizer", "ema", "model.buffers")


def values_of(trace: Trace) -> dict[int, dict[str, Any]]:
    """Return what a run kept: completed steps to path to value."""
    found = {mark.step: mark.snapshot.values for mark in trace.marks if mark.snapshot.values}
    if trace.final is not None and trace.final.values and trace.end == "finished":
        found[trace.marks[-1].step + 1] = trace.final.values
    return found


def _apart(a: Any, b: Any) -> float:
    left, right = (np.asarray(value, np.float64) for value in (a, b))
    return _rms(distance(left, right)) if left.shape == right.shape else float("inf")


def _rms(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0

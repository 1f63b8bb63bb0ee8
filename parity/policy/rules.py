"""Which checkpoints stay, and which are best and latest: one pure function that both sides obey.

Latest is for resuming: the newest by step, whatever its metric. Best is for shipping: the best by metric, whatever
its age. Neither rule ever removes what the other one keeps. The rules are numbered in docs/policy.md; the table of
cases in `policy_cases.py` is their specification.

A run applies `kept` at every save to what is on disk then, not to all it ever saved. That gives the same, since no
rule looks at a checkpoint that it would not keep itself: whatever is kept of a set is kept of every subset that holds
it, so nothing has to be remembered over a restart or after a kill between two removals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "INT32",
    "RANGES",
    "Mode",
    "Reason",
    "Rules",
    "Saved",
    "Which",
    "best",
    "is_new_best",
    "kept",
    "latest",
    "mode_of",
    "reasons",
]

INT32 = 2**31 - 1
"""Largest step, and largest integer of a spec: steps and counts are int32 on devices."""

Mode = Literal["max", "min"]
Which = Literal["latest", "best"] | int
"""What to resume from: the newest whole checkpoint, the best one, or a step."""
Reason = Literal["latest", "best", "every", "time"]
"""The rule by which a checkpoint stays."""

RANGES: dict[str, tuple[float, float]] = {"accuracy": (0.0, 1.0), "loss": (0.0, math.inf)}
"""Metric to the smallest and largest value that it can have; of a loss, infinity itself is none."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One checkpoint, as far as the policy cares."""

    step: int
    metric: float | None
    """Validation metric of this very step; None when it was not measured. Only finite ones count."""
    saved_at: float = 0.0
    """When it was saved, seconds since the epoch."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a run keeps; a checkpoint stays if any rule keeps it."""

    mode: Mode
    keep_latest: int = 3
    """The n newest by step; at least 1, since nothing else is sure to be left to resume from."""
    keep_best: int = 1
    """The m best by metric, counted over all checkpoints, the newest included; 0 for none."""
    keep_every: int = 0
    """Every checkpoint whose step is a multiple of this; 0 for none."""
    keep_seconds: float = 0.0
    """The first checkpoint, and each that was saved at least so many seconds after the one before that this rule
    kept; 0 for none. Seconds of the clock: a pause counts."""

    def __post_init__(self) -> None:
        others = (self.keep_best, self.keep_every, self.keep_seconds)
        if self.keep_latest < 1 or not all(value >= 0 for value in others):  # NaN is refused too
            raise ValueError(f"keep_latest must be at least 1 and no other rule negative, got {self}")


def mode_of(metric: str) -> Mode:
    """Return whether a metric is better when larger or when smaller."""
    return "max" if metric == "accuracy" else "min"


def latest(saved: Iterable[Saved]) -> Saved | None:
    """Return the newest checkpoint by step."""
    return max(saved, key=lambda s: s.step, default=None)


def best(saved: Iterable[Saved], mode: Mode) -> Saved | None:
    """Return the checkpoint with the best metric; ties go to the newer, non-finite and missing ones are never best.

    Example:
        >>> best([Saved(step=1, metric=0.9), Saved(step=2, metric=0.9), Saved(step=3, metric=None)], "max").step
        2
    """
    return max(_measured(saved), key=lambda s: _rank(s, mode), default=None)


def is_new_best(known: Iterable[Saved], new: Saved, mode: Mode) -> bool:
    """Tell whether a checkpoint would be the best beside those that are known.

    Example:
        >>> is_new_best([Saved(step=10, metric=0.9)], Saved(step=15, metric=0.95), "max")
        True
    """
    return best([*known, new], mode) is new


def kept(saved: Iterable[Saved], rules: Rules) -> set[int]:
    """Return the steps that stay: those that at least one rule keeps.

    Example:
        >>> run = [Saved(step=10, metric=0.9), Saved(step=20, metric=0.5), Saved(step=30, metric=0.6)]
        >>> sorted(kept(run, Rules(mode="max", keep_latest=1, keep_best=1)))
        [10, 30]
    """
    return set(reasons(saved, rules))


def reasons(saved: Iterable[Saved], rules: Rules) -> dict[int, tuple[Reason, ...]]:
    """Return by which rules each step stays, in step order; a step that no rule keeps is left out.

    Example:
        >>> run = [Saved(step=10, metric=0.9), Saved(step=20, metric=0.5), Saved(step=30, metric=None)]
        >>> reasons(run, Rules(mode="max", keep_latest=1, keep_best=1, keep_every=30))
        {10: ('best',), 30: ('latest', 'every')}
    """
    by_step = sorted(saved, key=lambda s: s.step)
    by_metric = sorted(_measured(by_step), key=lambda s: _rank(s, rules.mode), reverse=True)
    chosen: dict[Reason, set[int]] = {
        "latest": {s.step for s in by_step[-rules.keep_latest :]},
        "best": {s.step for s in by_metric[: rules.keep_best]},
        "every": {s.step for s in by_step if rules.keep_every and s.step % rules.keep_every == 0},
        "time": _spaced(by_step, rules.keep_seconds) if rules.keep_seconds else set(),
    }
    found = {s.step: tuple(name for name, steps in chosen.items() if s.step in steps) for s in by_step}
    return {step: why for step, why in found.items() if why}


def _spaced(by_step: list[Saved], seconds: float) -> set[int]:
    """Return the steps that the time rule keeps.

    A time before that of the one kept last means that the clock was set back, perhaps by a restart on another host.
    The count starts anew there, and that checkpoint is kept: without it a clock that once ran a year ahead would
    switch the rule off for a year, and a start that is not itself kept would not be known at the next save.
    """
    steps: set[int] = set()
    last = -math.inf
    for one in by_step:
        if one.saved_at >= last + seconds or one.saved_at < last:
            steps.add(one.step)
            last = one.saved_at
    return steps


def _measured(saved: Iterable[Saved]) -> list[Saved]:
    return [s for s in saved if s.metric is not None and math.isfinite(s.metric)]


def _rank(saved: Saved, mode: Mode) -> tuple[float, int]:
    assert saved.metric is not None
    return (saved.metric if mode == "max" else -saved.metric, saved.step)

"""The checkpoint policy as pure functions: which checkpoints stay, which one is the best and which one the latest.

The latest is for resuming: the newest checkpoint by step, independent of its metric. The best is for shipping: the
best by metric, independent of its age. Neither rule removes a checkpoint that the other keeps. docs/policy.md numbers
the rules; the table in `cases.txt` specifies them.

A run applies `kept` at every save to the checkpoints that are on disk then, not to all that it ever saved. The result
is the same, because a checkpoint that stays among a set of them also stays among every subset that contains it. So a
restart, or a kill between two removals, needs no further record.
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
"""The checkpoint to resume from: the newest whole one, the best one, or that of a step."""
Reason = Literal["latest", "best", "every", "time"]
"""A rule that keeps a checkpoint."""

RANGES: dict[str, tuple[float, float]] = {"accuracy": (0.0, 1.0), "loss": (0.0, math.inf)}
"""Metric to its smallest and largest value; the infinite bound of a loss is exclusive."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The facts about a checkpoint that the policy uses."""

    step: int
    metric: float | None
    """Validation metric at this step; None if it was not measured. Only finite values count."""
    saved_at: float = 0.0
    """Time of the save, in seconds since the epoch."""


class _Default(int):
    """The default of `keep_best`, which is told from the same number that somebody asked for."""


BEST = _Default(1)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of a run; a checkpoint stays if at least one of them keeps it.

    Raises:
        ValueError: `mode` is neither, or is missing where the best were asked for; `keep_latest` is below 1, or
            another rule is negative or NaN.

    Example:
        >>> Rules(keep_latest=2).keep_best, Rules(mode="max").keep_best
        (0, 1)
    """

    mode: Mode | None = None
    """Whether a larger metric is better (`max`) or a smaller one (`min`); None where no best is asked for. A manager
    then takes no metric either: nothing would say what it means."""
    keep_latest: int = 3
    """Number of newest checkpoints that stay, by step; at least 1, since no other rule ensures that one remains to
    resume from."""
    keep_best: int = BEST
    """Number of best checkpoints that stay, by metric, counted over all, the newest included; 0 for none, the default
    without a mode."""
    keep_every: int = 0
    """Every checkpoint whose step is a multiple of this stays; 0 for none."""
    keep_seconds: float = 0.0
    """The first checkpoint stays, and each that was saved at least this many seconds after the previous one that this
    rule kept; 0 for none. Wall-clock time: pauses between processes count."""

    def __post_init__(self) -> None:
        if self.mode not in ("min", "max", None):
            raise ValueError(f"mode must be min or max, got {self.mode!r}")
        if isinstance(self.keep_best, _Default):
            object.__setattr__(self, "keep_best", 0 if self.mode is None else 1)
        if self.mode is None and self.keep_best:
            raise ValueError(f"keep_best={self.keep_best} needs a mode: min or max, which says what is better")
        others = (self.keep_best, self.keep_every, self.keep_seconds)
        if self.keep_latest < 1 or not all(value >= 0 for value in others):  # false for NaN
            raise ValueError(f"keep_latest must be at least 1 and no other rule negative or NaN, got {self}")


def mode_of(metric: str) -> Mode:
    """Return `max` for `accuracy`, where larger is better, and `min` for a loss."""
    return "max" if metric == "accuracy" else "min"


def latest(saved: Iterable[Saved]) -> Saved | None:
    """Return the newest checkpoint by step; None if there is none."""
    return max(saved, key=lambda s: s.step, default=None)


def best(saved: Iterable[Saved], mode: Mode | None) -> Saved | None:
    """Return the checkpoint with the best metric; None if none has a finite metric, or there is no mode.

    Of equal metrics, that of the newer step is better. A missing, infinite or NaN metric is never the best.

    Args:
        saved: The checkpoints that exist, in any order.
        mode: Whether a larger metric is better, or a smaller one.

    Example:
        >>> best([Saved(step=1, metric=0.9), Saved(step=2, metric=0.9), Saved(step=3, metric=None)], "max").step
        2
    """
    return None if mode is None else max(_measured(saved), key=lambda s: _rank(s, mode), default=None)


def is_new_best(known: Iterable[Saved], new: Saved, mode: Mode | None) -> bool:
    """Return whether a new checkpoint is better than all known ones; an equal metric of a newer step is.

    Args:
        known: The checkpoints that exist, without the new one.
        new: The new one; without a finite metric it is not the best.
        mode: Whether a larger metric is better, or a smaller one.

    Example:
        >>> is_new_best([Saved(step=10, metric=0.9)], Saved(step=15, metric=0.95), "max")
        True
    """
    return best([*known, new], mode) is new


def kept(saved: Iterable[Saved], rules: Rules) -> set[int]:
    """Return the steps of the checkpoints that stay: those that at least one rule keeps.

    Args:
        saved: The checkpoints that exist, in any order, each step once.
        rules: The rules of the run.

    Example:
        >>> run = [Saved(step=10, metric=0.9), Saved(step=20, metric=0.5), Saved(step=30, metric=0.6)]
        >>> sorted(kept(run, Rules(mode="max", keep_latest=1, keep_best=1)))
        [10, 30]
    """
    return set(reasons(saved, rules))


def reasons(saved: Iterable[Saved], rules: Rules) -> dict[int, tuple[Reason, ...]]:
    """Return the rules that keep each step, in step order; a step that no rule keeps is absent.

    Args:
        saved: The checkpoints that exist, in any order, each step once.
        rules: The rules of the run.

    Example:
        >>> run = [Saved(step=10, metric=0.9), Saved(step=20, metric=0.5), Saved(step=30, metric=None)]
        >>> reasons(run, Rules(mode="max", keep_latest=1, keep_best=1, keep_every=30))
        {10: ('best',), 30: ('latest', 'every')}
    """
    by_step = sorted(saved, key=lambda s: s.step)
    mode = rules.mode
    by_metric = sorted(_measured(by_step), key=lambda s: _rank(s, mode), reverse=True) if mode else []
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

    A time before that of the last kept checkpoint means that the clock was set back, perhaps by a restart on another
    host. That checkpoint is kept, and time is counted from it. Otherwise, a clock that was once a year ahead would
    disable the rule for a year; and a start of the count that is not kept itself would be lost at the next save.
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

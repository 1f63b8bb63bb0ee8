"""Which checkpoints stay, and which are best and latest: one pure function that both sides obey.

Latest is for resuming: the newest by step, whatever its metric. Best is for shipping: the best by metric, whatever
its age. Neither rule ever removes what the other one keeps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Mode", "Rules", "Saved", "best", "kept", "latest", "mode_of"]

Mode = Literal["max", "min"]


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One checkpoint, as far as the policy cares."""

    step: int
    metric: float | None
    """Validation metric of this very step; None when it was not measured."""
    saved_at: float = 0.0
    """When it was saved, seconds since the epoch."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a run keeps; a checkpoint stays if any rule keeps it."""

    mode: Mode
    keep_latest: int = 3
    """The n newest by step; at least 1, since nothing else is sure to be left to resume from."""
    keep_best: int = 1
    """The m best by metric; 0 for none."""
    keep_every: int = 0
    """Every checkpoint whose step is a multiple of this; 0 for none."""
    keep_seconds: float = 0.0
    """One checkpoint for every such time of training; 0 for none."""

    def __post_init__(self) -> None:
        if self.keep_latest < 1 or min(self.keep_best, self.keep_every, self.keep_seconds) < 0:
            raise ValueError(f"keep_latest must be at least 1 and no other rule negative, got {self}")


def mode_of(metric: str) -> Mode:
    """Return whether a metric is better when larger or when smaller."""
    return "max" if metric == "accuracy" else "min"


def latest(saved: Iterable[Saved]) -> Saved | None:
    """Return the newest checkpoint by step."""
    return max(saved, key=lambda s: s.step, default=None)


def best(saved: Iterable[Saved], mode: Mode) -> Saved | None:
    """Return the checkpoint with the best metric; ties go to the newer, NaN and missing metrics are never best.

    Example:
        >>> best([Saved(step=1, metric=0.9), Saved(step=2, metric=0.9), Saved(step=3, metric=None)], "max").step
        2
    """
    return max(_measured(saved), key=lambda s: _rank(s, mode), default=None)


def kept(saved: Iterable[Saved], rules: Rules) -> set[int]:
    """Return the steps that stay: those that at least one rule keeps."""
    by_step = sorted(saved, key=lambda s: s.step)
    stay = {s.step for s in by_step[-rules.keep_latest :]}
    if rules.keep_best:
        stay |= {s.step for s in sorted(_measured(by_step), key=lambda s: _rank(s, rules.mode))[-rules.keep_best :]}
    if rules.keep_every:
        stay |= {s.step for s in by_step if s.step % rules.keep_every == 0}
    if rules.keep_seconds:
        last = -math.inf
        for one in by_step:
            if one.saved_at >= last + rules.keep_seconds:
                stay.add(one.step)
                last = one.saved_at
    return stay


def _measured(saved: Iterable[Saved]) -> list[Saved]:
    return [s for s in saved if s.metric is not None and not math.isnan(s.metric)]


def _rank(saved: Saved, mode: Mode) -> tuple[float, int]:
    assert saved.metric is not None
    return (saved.metric if mode == "max" else -saved.metric, saved.step)

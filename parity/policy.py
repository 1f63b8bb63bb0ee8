"""Which checkpoints stay, and which are best and latest: one pure function that both sides obey.

Latest is for resuming: the newest by step, whatever its metric. Best is for shipping: the best by metric, whatever
its age. Neither rule ever removes what the other one keeps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Mode", "Saved", "best", "kept", "latest", "mode_of"]

Mode = Literal["max", "min"]


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One checkpoint, as far as the policy cares."""

    step: int
    metric: float | None
    """Validation metric of this very step; None when it was not measured."""


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


def kept(saved: Iterable[Saved], *, keep_latest: int, keep_best: int, mode: Mode) -> set[int]:
    """Return the steps that stay: the `keep_latest` newest and the `keep_best` best, in any overlap.

    Raises:
        ValueError: `keep_latest` below 1: nothing would be left to resume from.
    """
    if keep_latest < 1 or keep_best < 0:
        raise ValueError(f"keep_latest must be at least 1 and keep_best at least 0, got {keep_latest}, {keep_best}")
    saved = list(saved)
    newest = sorted(saved, key=lambda s: s.step)[-keep_latest:]
    ranked = sorted(_measured(saved), key=lambda s: _rank(s, mode))
    top = ranked[-keep_best:] if keep_best else []
    return {s.step for s in (*newest, *top)}


def _measured(saved: Iterable[Saved]) -> list[Saved]:
    return [s for s in saved if s.metric is not None and not math.isnan(s.metric)]


def _rank(saved: Saved, mode: Mode) -> tuple[float, int]:
    assert saved.metric is not None
    return (saved.metric if mode == "max" else -saved.metric, saved.step)

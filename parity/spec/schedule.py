"""Specification of the learning-rate schedule of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parity.spec.model import require, require_at_least_zero, require_numbers

__all__ = ["ScheduleSpec"]


@dataclass(frozen=True, kw_only=True)
class ScheduleSpec:
    """The learning-rate factor as a function of completed steps: a linear warm-up, then the shape of `kind`.

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    kind: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: int = 0
    """Steps of the linear warm-up; its step w, counted from 0, uses (w + 1) / (warmup + 1) of the peak."""
    horizon: int = 1000
    """Step at which `linear` and `cosine` reach `final`; later steps stay there. It does not stop training."""
    final: float = 0.0
    """Factor at the horizon, in [0, 1]."""

    def __post_init__(self) -> None:
        require_numbers(self, "schedule")
        require_at_least_zero(self, "schedule", "warmup")
        require(0 <= self.final <= 1, "schedule.final", "must be in [0, 1]")
        require(
            self.horizon > self.warmup,
            "schedule.horizon",
            f"must lie after the warm-up of {self.warmup} steps, got {self.horizon}",
        )

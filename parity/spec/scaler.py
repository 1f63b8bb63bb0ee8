"""Specification of the loss scaler of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from parity.spec.values import require, require_numbers, require_positive

__all__ = ["ScalerSpec"]


@dataclass(frozen=True, kw_only=True)
class ScalerSpec:
    """Dynamic loss scaling of float16 runs, as torch.amp.GradScaler does it.

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    init_scale: float = 65536.0
    """Scale of the first step; at least 1."""
    growth_factor: float = 2.0
    """Factor on the scale after `growth_interval` steps without an overflow; a power of two."""
    backoff_factor: float = 0.5
    """Factor on the scale after an overflow; a power of two."""
    growth_interval: int = 2000
    """Steps without an overflow after which the scale grows."""
    max_skips: int = 20
    """Number of skipped steps in a row that stops the run."""
    overflow_steps: tuple[int, ...] = ()
    """Steps, from 1, whose scaled loss is multiplied by infinity, to force an overflow in tests; float16 only."""

    def __post_init__(self) -> None:
        require_numbers(self, "scaler")
        require(self.init_scale >= 1, "scaler.init_scale", f"must be at least 1, got {self.init_scale}")
        require(self.growth_factor > 1, "scaler.growth_factor", "must be above 1")
        require(0 < self.backoff_factor < 1, "scaler.backoff_factor", "must be in (0, 1)")
        for name in ("growth_factor", "backoff_factor"):
            exact = math.frexp(getattr(self, name))[0] == 0.5
            require(exact, f"scaler.{name}", "must be a power of two: only then do both sides scale without rounding")
        require_positive(self, "scaler", "growth_interval", "max_skips")
        for step in self.overflow_steps:
            require(step > 0, "scaler.overflow_steps", f"steps count from 1, got {step}")

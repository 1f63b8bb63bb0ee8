"""Specifications of the optimizer, the learning-rate schedule and the loss scaler of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from parity.spec.model import require, require_at_least_zero, require_numbers, require_positive

__all__ = ["AdamSpec", "OptimizerSpec", "ScalerSpec", "ScheduleSpec", "SgdSpec"]


@dataclass(frozen=True, kw_only=True)
class AdamSpec:
    """Adam (`adam`: L2 decay added to the gradient) or AdamW (`adamw`: decoupled decay), as in torch.optim.

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    kind: Literal["adam", "adamw"] = "adamw"
    lr: float = 1e-3
    """Peak learning rate; the schedule multiplies it by a factor."""
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-2
    decay: Literal["all", "matrices"] = "all"
    """Which parameters decay: `all`, or `matrices`, those with two or more axes."""

    def __post_init__(self) -> None:
        require_numbers(self, "optimizer")
        require_positive(self, "optimizer", "lr", "eps")
        for name in ("beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, f"optimizer.{name}", "must be in [0, 1)")
        require_at_least_zero(self, "optimizer", "weight_decay")


@dataclass(frozen=True, kw_only=True)
class SgdSpec:
    """SGD with optional momentum (no dampening), optional Nesterov, and L2 decay added to the gradient.

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    kind: Literal["sgd"] = "sgd"
    lr: float = 1e-2
    momentum: float = 0.9
    """Momentum in [0, 1); 0 means that there is no momentum buffer."""
    nesterov: bool = False
    weight_decay: float = 0.0
    decay: Literal["all", "matrices"] = "all"

    def __post_init__(self) -> None:
        require_numbers(self, "optimizer")
        require_positive(self, "optimizer", "lr")
        require(0 <= self.momentum < 1, "optimizer.momentum", "must be in [0, 1)")
        require_at_least_zero(self, "optimizer", "weight_decay")
        require(not self.nesterov or self.momentum > 0, "optimizer.nesterov", "needs a momentum above 0")


OptimizerSpec = AdamSpec | SgdSpec


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

"""How parameters are updated: optimizer, learning-rate schedule and loss scaler of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from parity.spec.model import positive, require, require_numbers

__all__ = ["AdamSpec", "OptimizerSpec", "ScalerSpec", "ScheduleSpec", "SgdSpec"]


@dataclass(frozen=True, kw_only=True)
class AdamSpec:
    """Adam (`adam`: L2 decay in the gradient) or AdamW (`adamw`: decoupled), as torch.optim defines them."""

    kind: Literal["adam", "adamw"] = "adamw"
    lr: float = 1e-3
    """Peak learning rate; the schedule multiplies it."""
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-2
    decay: Literal["all", "matrices"] = "all"
    """Which parameters decay: all, or only those with two or more axes."""

    def __post_init__(self) -> None:
        require_numbers(self, "optimizer")
        positive(self.lr, "optimizer.lr")
        positive(self.eps, "optimizer.eps")
        for name in ("beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, f"optimizer.{name}", "must be in [0, 1)")
        require(self.weight_decay >= 0, "optimizer.weight_decay", "must not be negative")


@dataclass(frozen=True, kw_only=True)
class SgdSpec:
    """SGD with optional momentum (no dampening) and Nesterov, decay as L2 in the gradient."""

    kind: Literal["sgd"] = "sgd"
    lr: float = 1e-2
    momentum: float = 0.9
    """0 means no momentum buffer at all."""
    nesterov: bool = False
    weight_decay: float = 0.0
    decay: Literal["all", "matrices"] = "all"

    def __post_init__(self) -> None:
        require_numbers(self, "optimizer")
        positive(self.lr, "optimizer.lr")
        require(0 <= self.momentum < 1, "optimizer.momentum", "must be in [0, 1)")
        require(self.weight_decay >= 0, "optimizer.weight_decay", "must not be negative")
        require(not self.nesterov or self.momentum > 0, "optimizer.nesterov", "needs a momentum above 0")


OptimizerSpec = AdamSpec | SgdSpec


@dataclass(frozen=True, kw_only=True)
class ScheduleSpec:
    """Learning-rate factor by completed steps; linear warm-up first, then the named shape."""

    kind: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: int = 0
    """Steps of linear warm-up; step w of it uses (w + 1) / (warmup + 1) of the peak."""
    horizon: int = 1000
    """Step at which `linear` and `cosine` reach `final`; later steps stay there. Not where training stops."""
    final: float = 0.0
    """Fraction of the peak at the horizon."""

    def __post_init__(self) -> None:
        require_numbers(self, "schedule")
        require(self.warmup >= 0, "schedule.warmup", "must not be negative")
        require(0 <= self.final <= 1, "schedule.final", "must be in [0, 1]")
        require(
            self.horizon > self.warmup,
            "schedule.horizon",
            f"must lie after the warm-up of {self.warmup} steps, got {self.horizon}",
        )


@dataclass(frozen=True, kw_only=True)
class ScalerSpec:
    """Dynamic loss scaling of float16 runs, as torch.amp.GradScaler does it."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    max_skips: int = 20
    """Stop after this many skipped steps in a row."""
    overflow_steps: tuple[int, ...] = ()
    """Steps whose scaled loss is multiplied by infinity, to force an overflow (drills and tests); float16 only."""

    def __post_init__(self) -> None:
        require_numbers(self, "scaler")
        require(self.init_scale >= 1, "scaler.init_scale", f"must be at least 1, got {self.init_scale}")
        require(self.growth_factor > 1, "scaler.growth_factor", "must be above 1")
        require(0 < self.backoff_factor < 1, "scaler.backoff_factor", "must be in (0, 1)")
        for name in ("growth_factor", "backoff_factor"):
            exact = math.frexp(getattr(self, name))[0] == 0.5
            require(exact, f"scaler.{name}", "must be a power of two: only then both sides scale without rounding")
        positive(self.growth_interval, "scaler.growth_interval")
        positive(self.max_skips, "scaler.max_skips")
        for step in self.overflow_steps:
            require(step > 0, "scaler.overflow_steps", f"steps count from 1, got {step}")

"""Rules that multiply the rate by a factor of the step: constant, linear, polynomial, exponential, at milestones.

PyTorch computes them from the rate before, and the closed form of the same factor differs from that in its last bits,
so the operations here are PyTorch's in PyTorch's order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from parity.schedules.rule import Single
from parity.schedules.values import Groups, Number, Values, shown

__all__ = ["Constant", "Exponential", "Linear", "MultiStep", "Polynomial", "Step"]


@dataclass(frozen=True, kw_only=True)
class Constant(Single):
    """The rate times `factor` for the first steps, the whole rate from step `total_iters` on.

    Source: `torch.optim.lr_scheduler.ConstantLR` (torch 2.13).

    Raises:
        ScheduleError: A constant is no finite number, or `factor` is outside of its interval.

    Example:
        >>> from parity.schedules import Schedule
        >>> Schedule(Constant(factor=0.5, total_iters=2), [1.0]).take(4).rates[:, 0].tolist()
        [0.5, 0.5, 1.0, 1.0]
    """

    kind: ClassVar[str] = "constant"

    factor: Number = 1.0 / 3
    """Factor in [0, 1]."""
    total_iters: Number = 5
    """Step at which the rate is whole again."""

    def __post_init__(self) -> None:
        self.require_number("factor", "total_iters")
        if not 0 <= self.factor <= 1:
            raise self.error("factor", f"must be in [0, 1], got {self.factor!r}")

    def next_rates(self, epoch: Number, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step."""
        if epoch == 0:
            return tuple(rate * self.factor for rate in groups.rates)
        if epoch != self.total_iters:
            return groups.rates
        return tuple(rate * (1.0 / self.factor) for rate in groups.rates)

    def restart_rates(self, groups: Groups, bases: Values) -> Values:
        """Return the rates when a sequence comes to this rule."""
        return tuple(base * (self.factor + (self.total_iters <= 0) * (1 - self.factor)) for base in bases)


@dataclass(frozen=True, kw_only=True)
class Linear(Single):
    """A factor on a straight line from `start_factor` to `end_factor` over `total_iters` steps.

    Source: `torch.optim.lr_scheduler.LinearLR` (torch 2.13).

    Raises:
        ScheduleError: A constant is no finite number, or a factor is outside of its interval.

    Example:
        >>> from parity.schedules import Schedule
        >>> Schedule(Linear(start_factor=0.5, total_iters=2), [1.0]).take(4).rates[:, 0].tolist()
        [0.5, 0.75, 1.0, 1.0]
    """

    kind: ClassVar[str] = "linear"

    start_factor: Number = 1.0 / 3
    """Factor at step 0, in (0, 1]."""
    end_factor: Number = 1.0
    """Factor at the end, in [0, 1]."""
    total_iters: Number = 5
    """Step at which the end is reached."""

    def __post_init__(self) -> None:
        self.require_number("start_factor", "end_factor", "total_iters")
        if not 0 < self.start_factor <= 1:
            raise self.error("start_factor", f"must be in (0, 1], got {self.start_factor!r}")
        if not 0 <= self.end_factor <= 1:
            raise self.error("end_factor", f"must be in [0, 1], got {self.end_factor!r}")

    def next_rates(self, epoch: Number, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step."""
        if epoch == 0:
            return tuple(rate * self.start_factor for rate in groups.rates)
        if first or epoch > self.total_iters:
            return groups.rates
        rise = self.end_factor - self.start_factor
        growth = 1.0 + rise / (self.total_iters * self.start_factor + (epoch - 1) * rise)
        return tuple(rate * growth for rate in groups.rates)

    def restart_rates(self, groups: Groups, bases: Values) -> Values:
        """Return the rates when a sequence comes to this rule."""
        rise = self.end_factor - self.start_factor
        factor = self.start_factor + rise * min(self.total_iters, 0) / self.total_iters
        return tuple(base * factor for base in bases)


@dataclass(frozen=True, kw_only=True)
class Polynomial(Single):
    """A factor of (1 - step / total_iters) ** power, and the rate it ends with from then on.

    Source: `torch.optim.lr_scheduler.PolynomialLR` (torch 2.13).

    Raises:
        ScheduleError: A constant is no finite number.

    Example:
        >>> from parity.schedules import Schedule
        >>> Schedule(Polynomial(total_iters=4), [1.0]).take(6).rates[:, 0].tolist()
        [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    """

    kind: ClassVar[str] = "polynomial"

    total_iters: Number = 5
    """Step at which the rate is 0."""
    power: Number = 1.0
    """Exponent; 1 is a straight line."""

    def __post_init__(self) -> None:
        self.require_number("total_iters", "power")

    def next_rates(self, epoch: Number, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step."""
        if first or epoch > self.total_iters:
            return groups.rates
        left, before = 1.0 - epoch / self.total_iters, 1.0 - (epoch - 1) / self.total_iters
        decay = (left / before) ** self.power
        return tuple(rate * decay for rate in groups.rates)

    def restart_rates(self, groups: Groups, bases: Values) -> Values:
        """Return the rates when a sequence comes to this rule."""
        factor = (1.0 - min(self.total_iters, 0) / self.total_iters) ** self.power
        return tuple(base * factor for base in bases)


@dataclass(frozen=True, kw_only=True)
class Exponential(Single):
    """The rate times `gamma` at every step.

    Source: `torch.optim.lr_scheduler.ExponentialLR` (torch 2.13).

    Raises:
        ScheduleError: The constant is no finite number.

    Example:
        >>> from parity.schedules import Schedule
        >>> Schedule(Exponential(gamma=0.5), [1.0]).take(4).rates[:, 0].tolist()
        [1.0, 0.5, 0.25, 0.125]
    """

    kind: ClassVar[str] = "exponential"

    gamma: Number
    """Factor of each step."""

    def __post_init__(self) -> None:
        self.require_number("gamma")

    def next_rates(self, epoch: Number, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step."""
        return groups.rates if first else tuple(rate * self.gamma for rate in groups.rates)

    def restart_rates(self, groups: Groups, bases: Values) -> Values:
        """Return the rates when a sequence comes to this rule."""
        return tuple(base * self.gamma**0 for base in bases)


@dataclass(frozen=True, kw_only=True)
class Step(Single):
    """The rate times `gamma` at every multiple of `step_size`.

    Source: `torch.optim.lr_scheduler.StepLR` (torch 2.13).

    Raises:
        ScheduleError: A constant is no finite number, or `step_size` is 0.

    Example:
        >>> from parity.schedules import Schedule
        >>> Schedule(Step(step_size=2, gamma=0.5), [1.0]).take(5).rates[:, 0].tolist()
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    kind: ClassVar[str] = "step"

    step_size: Number
    """Steps between two factors."""
    gamma: Number = 0.1
    """Factor."""

    def __post_init__(self) -> None:
        self.require_number("step_size", "gamma")
        if self.step_size == 0:
            raise self.error("step_size", "must not be 0")

    def next_rates(self, epoch: Number, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step."""
        if epoch == 0 or epoch % self.step_size != 0:
            return groups.rates
        return tuple(rate * self.gamma for rate in groups.rates)

    def restart_rates(self, groups: Groups, bases: Values) -> Values:
        """Return the rates when a sequence comes to this rule."""
        return tuple(base * self.gamma ** (0 // self.step_size) for base in bases)


@dataclass(frozen=True, kw_only=True)
class MultiStep(Single):
    """The rate times `gamma` at each milestone, once for each time that it is listed.

    Source: `torch.optim.lr_scheduler.MultiStepLR` (torch 2.13).

    Raises:
        ScheduleError: A constant is no finite number, or `milestones` is no tuple.

    Example:
        >>> from parity.schedules import Schedule
        >>> Schedule(MultiStep(milestones=(2, 3), gamma=0.5), [1.0]).take(5).rates[:, 0].tolist()
        [1.0, 1.0, 0.5, 0.25, 0.25]
    """

    kind: ClassVar[str] = "multi_step"

    milestones: tuple[Number, ...]
    """Steps at which the factor applies."""
    gamma: Number = 0.1
    """Factor."""

    def __post_init__(self) -> None:
        self.require_number("gamma")
        if self.milestones:
            self.require_values("milestones")
        if not isinstance(self.milestones, tuple):
            raise self.error("milestones", f"must be a tuple of steps, got {shown(self.milestones)}")

    @cached_property
    def _times(self) -> Counter[Number]:
        return Counter(self.milestones)

    def next_rates(self, epoch: Number, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step."""
        if epoch not in self._times:
            return groups.rates
        factor = self.gamma ** self._times[epoch]
        return tuple(rate * factor for rate in groups.rates)

    def restart_rates(self, groups: Groups, bases: Values) -> Values:
        """Return the rates when a sequence comes to this rule."""
        factor = self.gamma ** bisect_right(sorted(self.milestones), 0)
        return tuple(base * factor for base in bases)

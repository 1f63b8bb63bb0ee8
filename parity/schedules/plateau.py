"""The rule that lowers the rate when a metric has stopped improving."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from parity.errors import ScheduleError
from parity.schedules.rule import PositionBase, ScheduleRule
from parity.schedules.values import Groups, Number, shown, spread

__all__ = ["Plateau", "PlateauPosition"]


@dataclass(frozen=True, slots=True)
class PlateauPosition(PositionBase):
    """What a plateau rule has seen."""

    epoch: Number
    """Metrics seen."""
    best: float
    """Best metric that counted; infinitely bad before the first one."""
    num_bad_epochs: int
    """Metrics since then, or since the rate was lowered, that were no better."""
    cooldown_counter: Number
    """Metrics still to come that are not counted as bad."""


@dataclass(frozen=True, kw_only=True)
class Plateau(ScheduleRule[PlateauPosition]):
    """The rate times `factor` when more than `patience` metrics in a row were no better than the best.

    A metric that is not a number is refused, where PyTorch counts it as no better: a diverged validation would be
    hidden.

    Source: `torch.optim.lr_scheduler.ReduceLROnPlateau` (torch 2.13).

    Raises:
        ScheduleError: A constant is no finite number or no known choice, or `factor` is not below 1.

    Example:
        >>> from parity.schedules import Schedule
        >>> schedule = Schedule(Plateau(patience=1, factor=0.5), [0.8])
        >>> for loss in (1.0, 0.9, 0.9, 0.9):
        ...     schedule.step(loss)
        >>> schedule.rates
        (0.4,)
    """

    kind: ClassVar[str] = "plateau"
    position: ClassVar[type[PositionBase]] = PlateauPosition

    mode: str = "min"
    """Whether a smaller metric is better (`min`), or a larger one (`max`)."""
    factor: Number = 0.1
    """Factor on the rate, below 1."""
    patience: Number = 10
    """Metrics in a row that may be no better."""
    threshold: Number = 1e-4
    """By how much a metric must be better."""
    threshold_mode: str = "rel"
    """Whether the threshold is a part of the best metric (`rel`), or a difference (`abs`)."""
    cooldown: Number = 0
    """Metrics after a lowering that are not counted as bad."""
    min_lr: Number | tuple[Number, ...] = 0
    """Lowest rate."""
    eps: Number = 1e-8
    """A lowering by no more than this is left out."""

    def __post_init__(self) -> None:
        self.require_number("factor", "patience", "threshold", "cooldown", "eps")
        self.require_values("min_lr")
        self.require_choice("mode", ("min", "max"))
        self.require_choice("threshold_mode", ("rel", "abs"))
        if self.factor >= 1:
            raise self.error("factor", f"must be below 1, got {self.factor!r}")

    @property
    def metric(self) -> bool:
        """Whether the rule moves by a metric."""
        return True

    @property
    def steps(self) -> bool:
        """Whether the rule moves by training steps."""
        return False

    def fit(self, count: int) -> None:
        """Check the rule against a number of parameter groups."""
        self.require_fit(count, "min_lr")

    def build(self, groups: Groups) -> tuple[PlateauPosition, Groups]:
        """Return the position and values after construction; the rates stay as they are."""
        worst = math.inf if self.mode == "min" else -math.inf
        return PlateauPosition(groups.rates, 0, worst, 0, 0), groups

    def step(self, position: PlateauPosition, groups: Groups, metric: float | None) -> tuple[PlateauPosition, Groups]:
        """Return the next position and values.

        Raises:
            ScheduleError: There is no metric, or it is not a number.
        """
        value = self._checked(metric)
        best, bad, cooling = position.best, position.num_bad_epochs, position.cooldown_counter
        better = self._better(value, best)
        best, bad = (value, 0) if better else (best, bad + 1)
        if cooling > 0:
            cooling, bad = cooling - 1, 0
        if bad > self.patience:
            cooling, bad = self.cooldown, 0
            groups = self._lowered(groups)
        return PlateauPosition(groups.rates, position.epoch + 1, best, bad, cooling), groups

    def begin(self, position: PlateauPosition, groups: Groups) -> tuple[PlateauPosition, Groups]:
        """Refuse to be the first rule of a sequence, which has no metric to give.

        Raises:
            ScheduleError: Always.
        """
        raise self._alone()

    def restart(self, position: PlateauPosition, groups: Groups) -> tuple[PlateauPosition, Groups]:
        """Refuse to be a rule of a sequence, which has no metric to give.

        Raises:
            ScheduleError: Always.
        """
        raise self._alone()

    def undo(self, position: PlateauPosition) -> PlateauPosition:
        """Refuse to be a rule of a sequence, which has no metric to give.

        Raises:
            ScheduleError: Always.
        """
        raise self._alone()

    def _alone(self) -> ScheduleError:
        return self.error("", "moves by a metric, so it cannot be part of a sequence; put it beside the others")

    def _checked(self, metric: float | None) -> float:
        if metric is None:
            raise self.error("", "needs the metric of this validation: step(metric)")
        try:
            value = float(metric)
        except (TypeError, ValueError) as error:
            raise self.error("metric", f"must be a number, got {shown(metric)}") from error
        if math.isnan(value):
            raise self.error(
                "metric", "is not a number (NaN); stop the run, or decide what this validation counts as"
            )
        return value

    def _better(self, value: float, best: float) -> bool:
        if self.mode == "min":
            return value < (best * (1.0 - self.threshold) if self.threshold_mode == "rel" else best - self.threshold)
        return value > (best * (self.threshold + 1.0) if self.threshold_mode == "rel" else best + self.threshold)

    def _lowered(self, groups: Groups) -> Groups:
        lowest = spread(self.min_lr, len(groups.rates))
        pairs = [(rate, max(rate * self.factor, low)) for rate, low in zip(groups.rates, lowest, strict=True)]
        return groups._replace(rates=tuple(float(new) if old - new > self.eps else old for old, new in pairs))

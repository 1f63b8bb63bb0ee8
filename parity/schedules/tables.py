"""Rules whose factors are given for every step: what PyTorch computes by a function, as a table of its values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from parity.schedules.rule import Single
from parity.schedules.values import Groups, Number, Values, is_finite, shown

__all__ = ["Lambda", "Multiplicative", "tabulate"]


def tabulate(function: Callable[[int], float], steps: int) -> tuple[float, ...]:
    """Return the values of a function at step 0, 1, ... `steps`: one more than steps are taken.

    Args:
        function: As PyTorch's `lr_lambda`: step to factor.
        steps: Steps that the schedule takes.

    Example:
        >>> tabulate(lambda step: 0.5**step, 3)
        (1.0, 0.5, 0.25, 0.125)
    """
    return tuple(function(step) for step in range(steps + 1))


@dataclass(frozen=True, kw_only=True)
class _Tables(Single):
    """A rule with a table of factors, or one for each group."""

    tables: tuple[tuple[Number, ...], ...]
    """Factors at step 0, 1, ...: one table for all groups, or one for each."""

    def __post_init__(self) -> None:
        if not isinstance(self.tables, tuple) or not self.tables:
            raise self.error("tables", f"must be a tuple of tables, got {shown(self.tables)}")
        for table in self.tables:
            if not isinstance(table, tuple) or not table:
                raise self.error("tables", "each must be a tuple of at least one factor")
            for step, factor in enumerate(table):
                if not is_finite(factor):
                    problem = f"the factor of step {step} must be a finite number, got {shown(factor)}"
                    raise self.error("tables", problem)

    def fit(self, count: int) -> None:
        """Check the rule against a number of parameter groups."""
        if len(self.tables) > 1:
            self.require_fit(count, "tables")

    def factors(self, epoch: Number, count: int) -> Values:
        """Return the factor of each group at a step.

        Raises:
            ScheduleError: A table ends before the step, or the step is a fraction.
        """
        tables = self.tables if len(self.tables) == count else self.tables * count
        shortest = min(len(table) for table in tables)
        if epoch >= shortest:
            problem = f"end at step {shortest - 1}, and step {epoch} needs a factor; tabulate the function further"
            raise self.error("tables", problem)
        if epoch < 0 or epoch != int(epoch):
            problem = f"hold the factors of the whole steps from 0 on, and step {epoch} is not one of them"
            raise self.error("tables", f"{problem}; step without an epoch")
        return tuple(table[int(epoch)] for table in tables)


@dataclass(frozen=True, kw_only=True)
class Lambda(_Tables):
    """The rate that the rule started from, times the factor of the step.

    Source: `torch.optim.lr_scheduler.LambdaLR` (torch 2.13).

    Raises:
        ScheduleError: `tables` is no tuple of tuples, each with at least one finite number.

    Example:
        >>> from parity.schedules import Schedule
        >>> Schedule(Lambda(tables=(tabulate(lambda step: 1 / (1 + step), 4),)), [1.0]).take(4).rates[:, 0].tolist()
        [1.0, 0.5, 0.3333333333333333, 0.25]
    """

    kind: ClassVar[str] = "lambda"

    def next_rates(self, epoch: Number, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step."""
        pairs = zip(bases, self.factors(epoch, len(bases)), strict=True)
        return tuple(base * factor for base, factor in pairs)


@dataclass(frozen=True, kw_only=True)
class Multiplicative(_Tables):
    """The rate before, times the factor of the step; that of step 0 is not used.

    Source: `torch.optim.lr_scheduler.MultiplicativeLR` (torch 2.13).

    Raises:
        ScheduleError: `tables` is no tuple of tuples, each with at least one finite number.

    Example:
        >>> from parity.schedules import Schedule
        >>> Schedule(Multiplicative(tables=((1.0, 0.5, 0.5, 0.25, 0.5),)), [1.0]).take(4).rates[:, 0].tolist()
        [1.0, 0.5, 0.25, 0.0625]
    """

    kind: ClassVar[str] = "multiplicative"

    def next_rates(self, epoch: Number, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step."""
        if first:
            return groups.rates
        pairs = zip(groups.rates, self.factors(epoch, len(bases)), strict=True)
        return tuple(rate * factor for rate, factor in pairs)

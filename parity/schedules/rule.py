"""Rules and positions: a schedule's constants, and where it is, both immutable.

A rule's functions take a position and the values of the parameter groups and return the next ones. Nothing is
changed in place, so a step that fails leaves everything as it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from parity.errors import ScheduleError
from parity.schedules.values import Groups, Number, Values, is_finite, shown

__all__ = [
    "AnyRule",
    "Position",
    "PositionBase",
    "ScheduleRule",
    "Single",
]


@dataclass(frozen=True, slots=True)
class PositionBase:
    """What every position has."""

    last: Values
    """Rates after the last move of this rule; a rule that rests in a sequence keeps its own."""


@dataclass(frozen=True, slots=True)
class Position(PositionBase):
    """The position of a rule that counts its steps."""

    epoch: Number
    """Steps taken, -1 before the first rate; PyTorch's `step(epoch)` makes fractions of it."""
    calls: int
    """Times that the rule was asked for a rate, its first one included; PyTorch's `_step_count`."""
    bases: Values
    """Rates that the rule started from."""


P = TypeVar("P", bound=PositionBase)


@dataclass(frozen=True, kw_only=True)
class ScheduleRule(ABC, Generic[P]):
    """The constants of a schedule and how it moves.

    The names of the fields are those of PyTorch's arguments.
    """

    kind: ClassVar[str]
    """Name of the rule in a saved state and in messages."""
    position: ClassVar[type[PositionBase]]
    """Class of its positions."""

    @property
    def momentum(self) -> bool:
        """Whether the rule moves the momentum."""
        return False

    @property
    def metric(self) -> bool:
        """Whether the rule moves by a metric."""
        return False

    @property
    def steps(self) -> bool:
        """Whether the rule moves by training steps."""
        return True

    @abstractmethod
    def build(self, groups: Groups) -> tuple[P, Groups]:
        """Return the position and values after construction, the first rates included."""

    @abstractmethod
    def begin(self, position: P, groups: Groups) -> tuple[P, Groups]:
        """Return the position and values when this rule gives the first rates of a sequence.

        Args:
            position: Where the rule waits, one step before its first rates.
            groups: The values before them.

        Raises:
            ScheduleError: The rule cannot be part of a sequence.
        """

    @abstractmethod
    def step(self, position: P, groups: Groups, metric: float | None) -> tuple[P, Groups]:
        """Return the next position and values.

        Args:
            position: The position now.
            groups: The values now.
            metric: The metric of a validation for a rule that moves by it, else None.

        Raises:
            ScheduleError: There is no next rate, or the metric is missing or not a number.
        """

    @abstractmethod
    def restart(self, position: P, groups: Groups) -> tuple[P, Groups]:
        """Return the position and values when a sequence comes to this rule.

        Args:
            position: Where the rule waits.
            groups: The values that the rule before it left.

        Raises:
            ScheduleError: A sequence cannot come to this rule later than at its first step.
        """

    @abstractmethod
    def undo(self, position: P) -> P:
        """Return the position one step back, as a sequence puts the rules that wait for their turn."""

    def fit(self, count: int) -> None:
        """Check the rule against a number of parameter groups.

        Raises:
            ScheduleError: A constant is given for each of another number of groups.
        """

    def error(self, name: str, problem: str) -> ScheduleError:
        """Return the error about a constant, or about the whole rule if it has no name.

        Args:
            name: Name of the constant, or an empty text.
            problem: What it must be and what it is.
        """
        return ScheduleError(f"{self.kind}.{name}" if name else self.kind, problem)

    def require_number(self, *names: str) -> None:
        """Refuse constants that are not finite numbers.

        Raises:
            ScheduleError: One is not; names it.
        """
        for name in names:
            value = getattr(self, name)
            if not is_finite(value):
                raise self.error(name, f"must be a finite number, got {shown(value)}")

    def require_count(self, *names: str) -> None:
        """Refuse constants that are not integers of at least 1 and below 2**63.

        Raises:
            ScheduleError: One is not; names it.
        """
        for name in names:
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value < 2**63:
                raise self.error(name, f"must be an integer of at least 1, got {shown(value)}")

    def require_flag(self, name: str) -> None:
        """Refuse a constant that is not true or false.

        Raises:
            ScheduleError: It is not.
        """
        if type(getattr(self, name)) is not bool:
            raise self.error(name, f"must be true or false, got {shown(getattr(self, name))}")

    def require_choice(self, name: str, known: Sequence[str]) -> None:
        """Refuse a constant that is not one of the known names.

        Raises:
            ScheduleError: It is not; the message lists the known ones.
        """
        if getattr(self, name) not in known:
            raise self.error(name, f"must be one of {', '.join(known)}, got {shown(getattr(self, name))}")

    def require_values(self, *names: str) -> None:
        """Refuse constants that are neither a finite number nor a tuple of such; `require_fit` counts those.

        Raises:
            ScheduleError: One is neither; names it.
        """
        for name in names:
            value = getattr(self, name)
            for item in value if isinstance(value, tuple) and value else (value,):
                if not is_finite(item):
                    raise self.error(name, f"must be a finite number, or one for each group, got {shown(value)}")

    def require_fit(self, count: int, *names: str) -> None:
        """Refuse constants that are given for each of another number of groups.

        Args:
            count: Number of parameter groups.
            names: Names of the constants.

        Raises:
            ScheduleError: One is a tuple of another length; names it.
        """
        for name in names:
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != count:
                raise self.error(name, f"has {len(value)} values for {count} parameter groups; give one for each")


AnyRule = ScheduleRule[Any]


@dataclass(frozen=True, kw_only=True)
class Single(ScheduleRule[Position]):
    """A rule that counts its steps: its next rates follow from the step, the rates now, and those it started from.

    Source: the order of operations in `LRScheduler` of `torch.optim.lr_scheduler` (torch 2.13): construction takes
    the first step, and a sequence restarts a rule by its closed form where it has one.
    """

    position: ClassVar[type[PositionBase]] = Position

    @abstractmethod
    def next_rates(self, epoch: Number, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step.

        Args:
            epoch: The step, 0 for the first rates.
            groups: The values before it.
            bases: Rates that the rule started from.
            first: Whether these are the first rates after construction, or the first of a sequence.
        """

    def restart_rates(self, groups: Groups, bases: Values) -> Values:
        """Return the rates when a sequence comes to this rule; rules with a closed form use it at step 0."""
        return self.next_rates(0, groups, bases, first=False)

    def next_momenta(self, epoch: Number, groups: Groups) -> Values | None:
        """Return the momenta at a step; unchanged unless the rule moves them."""
        return groups.momenta

    def build(self, groups: Groups) -> tuple[Position, Groups]:
        """Return the position and values after construction, the first rates included."""
        initial = groups.rates if groups.initial is None else groups.initial
        before = Position(last=(), epoch=-1, calls=0, bases=initial)
        return self.begin(before, groups._replace(initial=initial))

    def begin(self, position: Position, groups: Groups) -> tuple[Position, Groups]:
        """Return the position and values when this rule gives the first rates of a sequence."""
        epoch = position.epoch + 1
        rates = self.next_rates(epoch, groups, position.bases, first=True)
        return self._at(position, groups, rates, epoch, 1)

    def step(self, position: Position, groups: Groups, metric: float | None) -> tuple[Position, Groups]:
        """Return the next position and values."""
        epoch = position.epoch + 1
        rates = self.next_rates(epoch, groups, position.bases, first=False)
        return self._at(position, groups, rates, epoch, position.calls + 1)

    def restart(self, position: Position, groups: Groups) -> tuple[Position, Groups]:
        """Return the position and values when a sequence comes to this rule."""
        return self._at(position, groups, self.restart_rates(groups, position.bases), 0, position.calls)

    def undo(self, position: Position) -> Position:
        """Return the position one step back."""
        return replace(position, epoch=position.epoch - 1)

    def _at(
        self, position: Position, groups: Groups, rates: Values, epoch: Number, calls: int
    ) -> tuple[Position, Groups]:
        momenta = self.next_momenta(epoch, groups)
        return Position(rates, epoch, calls, position.bases), Groups(rates, groups.initial, momenta)

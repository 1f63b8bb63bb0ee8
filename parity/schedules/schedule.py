"""A schedule at its position: the rates of the parameter groups now, the next ones, and its state as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.errors import ScheduleError, StateError
from parity.schedules.rule import AnyRule, PositionBase, ScheduleRule
from parity.schedules.state import (
    decode_groups,
    decode_position,
    decode_rule,
    encode_rule,
    members,
)
from parity.schedules.values import Groups, Values, is_finite, shown
from parity.storage import plain

__all__ = ["Moves", "Schedule"]

SCHEMA = 1
"""Version of the state."""


class Moves(NamedTuple):
    """What a schedule gives some consecutive steps."""

    rates: NDArray[np.float64]
    """Learning rates, shape [steps, groups]."""
    momenta: NDArray[np.float64] | None
    """Momenta or first betas, shape [steps, groups]; None if no rule moves them."""


class Schedule:
    """The learning rates of one optimizer, in float64 on the host, with the rate now as part of the state.

    The rates are those that PyTorch's scheduler of the same name gives, bit for bit. Most of its rules compute a rate
    from the one before, so that it cannot be had from the number of the step alone.

    Args:
        rule: What happens, with its constants; it may be made of other rules.
        rates: Learning rate of each parameter group, as the optimizer is built with.

    Raises:
        ScheduleError: A rate is not a finite number, or the rule is for another number of groups.

    Example:
        >>> from parity.schedules import Cosine, Linear, Sequential
        >>> rule = Sequential(rules=(Linear(start_factor=0.5, total_iters=2), Cosine(T_max=2)), milestones=(2,))
        >>> schedule = Schedule(rule, [0.8, 0.4])
        >>> for _ in range(3):
        ...     print(schedule.rates)
        ...     schedule.step()
        (0.4, 0.2)
        (0.6000000000000001, 0.30000000000000004)
        (0.8, 0.4)
        >>> again = Schedule.restore(schedule.state())
        >>> again.rates == schedule.rates == (0.4, 0.2)
        True
    """

    def __init__(self, rule: AnyRule, rates: Sequence[float]) -> None:
        if not isinstance(rule, ScheduleRule):
            raise ScheduleError("schedule", f"needs a rule such as Cosine(T_max=100), got {type(rule).__name__}")
        for rate in rates:
            if not is_finite(rate):
                raise ScheduleError("schedule.rates", f"must be finite numbers, got {shown(rate)}")
        if not rates:
            raise ScheduleError("schedule.rates", "there is no parameter group; give the rate of each")
        rule.fit(len(rates))
        self.rule = rule
        self._position, self._groups = self._guarded(lambda: rule.build(Groups(tuple(map(float, rates)))))

    @classmethod
    def at(cls, rule: AnyRule, position: PositionBase, groups: Groups) -> Schedule:
        """Return a schedule at a position of its rule, with the values of the groups there.

        Args:
            rule: What happens, with its constants.
            position: A position of this rule, as `Schedule.position` has it.
            groups: Rates, initial rates and momenta at that position.

        Raises:
            ScheduleError: The rule is for another number of groups.
        """
        rule.fit(len(groups.rates))
        schedule = cls.__new__(cls)
        schedule.rule, schedule._position, schedule._groups = rule, position, groups
        return schedule

    @property
    def rates(self) -> Values:
        """The learning rate of each parameter group for the next step."""
        return self._groups.rates

    @property
    def momenta(self) -> Values | None:
        """The momentum, or first beta, of each group for the next step; None if no rule moves it."""
        return self._groups.momenta

    @property
    def position(self) -> Any:
        """The position of the rule."""
        return self._position

    @property
    def groups(self) -> Groups:
        """The values of the parameter groups."""
        return self._groups

    @property
    def whole(self) -> bool:
        """Whether it stands at a whole step; PyTorch's `step(epoch)` also makes fractions."""
        return _is_whole(self._position)

    def step(self, metric: float | None = None) -> None:
        """Move on: after each training step without a metric, after each validation with one.

        Args:
            metric: The metric of a validation, for rules that move by it, and for those only.

        Raises:
            ScheduleError: A metric is missing, not a number, or given to rules that take none; or there is no next
                rate. The schedule stays as it was.
        """
        if metric is not None and not self.rule.metric:
            raise ScheduleError(self.rule.kind, "takes no metric: call step() after each training step")
        self._position, self._groups = self._guarded(lambda: self.rule.step(self._position, self._groups, metric))

    def take(self, steps: int) -> Moves:
        """Return the rates and momenta of the next steps, and move on by as many.

        What moves by a metric alone keeps its rate.

        Args:
            steps: Number of training steps, such as those of a chunk.

        Raises:
            ScheduleError: There is no rate for one of the steps, or for the one after them; the schedule stays at the
                last step that has a rate.
        """
        moves = []
        for _ in range(steps):
            moves.append(self._groups)
            if self.rule.steps:
                self.step()
        shape = (steps, len(self.rates))
        rates = np.array([one.rates for one in moves], np.float64).reshape(shape)
        if self.momenta is None:
            return Moves(rates, None)
        return Moves(rates, np.array([one.momenta for one in moves], np.float64).reshape(shape))

    def state(self) -> dict[str, Any]:
        """Return constants, position and values as an object of valid JSON; floats in it read back bit for bit."""
        return {
            "schema": SCHEMA,
            "rule": plain(encode_rule(self.rule)),
            "position": plain(asdict(self._position)),
            "groups": plain(self._groups._asdict()),
        }

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Schedule:
        """Return the schedule of a state.

        Args:
            state: As `state` returned it, perhaps read from JSON.

        Raises:
            StateError: It is not the state of a schedule; the message names the value.
            UnknownNameError: It has a rule of an unknown kind.
        """
        given = members(state, {"schema", "rule", "position", "groups"}, "schedule")
        if given["schema"] != SCHEMA:
            raise StateError("schedule.schema", f"expected {SCHEMA}, got {shown(given['schema'])}")
        rule = decode_rule(given["rule"])
        groups = decode_groups(rule, given["groups"])
        return cls.at(rule, decode_position(rule, given["position"], len(groups.rates)), groups)

    def _guarded(self, move: Callable[[], tuple[Any, Groups]]) -> tuple[Any, Groups]:
        try:
            return move()
        except ScheduleError:
            raise
        except (ArithmeticError, ValueError) as error:  # a division by zero, a power or a cosine beyond float64
            problem = f"has no next rate with these constants, nor has PyTorch's: {error}"
            raise ScheduleError(self.rule.kind, problem) from error


def _is_whole(position: Any) -> bool:
    counts = [getattr(position, name, 0) for name in ("epoch", "T_cur")]
    return all(float(count).is_integer() for count in counts) and all(
        _is_whole(child) for child in getattr(position, "children", ())
    )

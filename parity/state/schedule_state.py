"""The schedule's part of a TrainingState: constants, position and rates now, as the JSON of `parity.schedules`."""

from __future__ import annotations

from typing import Any

from parity.errors import StateError
from parity.schedules import Schedule
from parity.state.training_state import TrainingState

__all__ = ["pack_schedule", "unpack_schedule"]

PREFIX = "schedule."


def pack_schedule(schedule: Schedule) -> dict[str, Any]:
    """Return the scalars of a schedule: `schedule.rule`, `schedule.position`, `schedule.groups`, `schedule.schema`.

    Example:
        >>> from parity.schedules import Step
        >>> pack_schedule(Schedule(Step(step_size=10), [0.5]))["schedule.groups"]["rates"]
        [0.5]
    """
    return {f"{PREFIX}{name}": value for name, value in schedule.state().items()}


def unpack_schedule(state: TrainingState) -> Schedule:
    """Return the schedule of a state, at its position.

    Args:
        state: A state; leaves that are not below `schedule` are ignored.

    Raises:
        StateError: There is no schedule in it, or not a whole one; the leaf is named.
        UnknownNameError: It has a rule of an unknown kind.
    """
    found = {name.removeprefix(PREFIX): v for name, v in state.scalars.items() if name.startswith(PREFIX)}
    if not found:
        raise StateError("schedule", "is missing: the state has no leaf below it")
    return Schedule.restore(found)

"""The learning rate of both sides in float64: a pure function of completed steps, or a rule at its position.

PyTorch computes its schedules as Python floats (float64) and Optax as float32 arrays, unless its count is
float64. Both sides therefore take the value from here: PyTorch through `LambdaLR`, JAX as one number per step,
put on the devices with the batches. The rates the two sides use are equal bit for bit in float64, and after one
rounding in float32. A rule of `parity.schedules` moves on the host of the JAX side, as a scheduler of PyTorch does
on the other one; it is part of the state, for most rates follow from the rate before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import StateError
from parity.schedules import AnyRule, Schedule
from parity.spec import RuleSpec, RunSpec, ScheduleSpec
from parity.state import TrainingState, unpack_schedule
from parity.twins.layout import Layout

__all__ = ["factor", "first_schedule", "rates", "read_rule_state", "rule_rates", "shape_rates"]


def factor(schedule: ScheduleSpec, step: int) -> float:
    """Return the factor on the peak learning rate for the step after `step` completed ones.

    Args:
        schedule: Shape, warm-up, horizon and final fraction.
        step: Completed steps, 0 for the first step.

    Returns:
        A factor in [0, 1]; `final` at and beyond the horizon for `linear` and `cosine`.

    Source: the closed forms of `torch.optim.lr_scheduler.LinearLR` and `CosineAnnealingLR` (torch 2.13). Unlike
    the latter, which rises again after T_max, the rate stays at its end value.

    Example:
        >>> cosine = ScheduleSpec(kind="cosine", horizon=100)
        >>> factor(cosine, 0), factor(cosine, 50), factor(cosine, 200)
        (1.0, 0.5, 0.0)
    """
    if step < schedule.warmup:
        return (step + 1) / (schedule.warmup + 1)
    if schedule.kind == "constant":
        return 1.0
    done = min(1.0, (step - schedule.warmup) / (schedule.horizon - schedule.warmup))
    if schedule.kind == "linear":
        return 1.0 + (schedule.final - 1.0) * done
    cosine = 0.5 * (1.0 + math.cos(math.pi * done))
    return schedule.final + (1.0 - schedule.final) * cosine


def rates(schedule: ScheduleSpec, peak: float, first: int, n: int) -> NDArray[np.float64]:
    """Return the learning rates of some steps, float64, shape [n].

    Args:
        schedule: Shape, warm-up, horizon and final fraction.
        peak: The learning rate at factor 1.
        first: Completed steps before the first of them.
        n: Number of steps.

    Example:
        >>> rates(ScheduleSpec(kind="linear", horizon=4), 0.5, 1, 3).tolist()
        [0.375, 0.25, 0.125]
    """
    return np.array([peak * factor(schedule, step) for step in range(first, first + n)], np.float64)


def first_schedule(spec: RunSpec, peaks: Sequence[float]) -> Schedule | None:
    """Return the schedule of a run before its first step; None where its rates are a function of the step.

    Args:
        spec: The run.
        peaks: Peak rate of each parameter group.

    Raises:
        ScheduleError: The rule is for another number of groups.
    """
    return Schedule(spec.schedule.rule, peaks) if isinstance(spec.schedule, RuleSpec) else None


StepRates = tuple[NDArray[np.float64], NDArray[np.float64] | None]
"""Rates of the first group, and `StepInputs.moved`."""


def shape_rates(layout: Layout, first: int, n: int) -> StepRates:
    """Return what the shape with a warm-up gives some steps.

    Args:
        layout: The run's, for its schedule and the peaks of its groups.
        first: Completed steps before the first of them.
        n: Number of steps.
    """
    shape = layout.spec.schedule
    assert isinstance(shape, ScheduleSpec)
    columns = [rates(shape, peak, first, n) for peak in layout.rates]
    return columns[0], None if layout.former or len(columns) == 1 else np.stack(columns, axis=1)


def rule_rates(schedule: Schedule, skipped: int, n: int) -> StepRates:
    """Return what a rule gives some steps to come.

    Args:
        schedule: The rule at its position; it is not changed.
        skipped: Steps from there to the first of them.
        n: Number of steps.

    Raises:
        ScheduleError: There is no rate for one of the steps.
    """
    ahead = Schedule.at(schedule.rule, schedule.position, schedule.groups)
    ahead.take(skipped)
    moves = ahead.take(n)
    if moves.momenta is not None:
        return moves.rates[:, 0], np.concatenate([moves.rates, moves.momenta], axis=1)
    return moves.rates[:, 0], None if moves.rates.shape[1] == 1 else moves.rates


def read_rule_state(scalars: Mapping[str, Any], rule: AnyRule) -> Schedule:
    """Return the schedule of a saved state, at its position.

    Args:
        scalars: Those of the state; the schedule's are among them.
        rule: The rule of the run that is to take it.

    Raises:
        StateError: They are not the state of a schedule, or of one with another rule.
    """
    names = ("schedule.schema", "schedule.rule", "schedule.position", "schedule.groups")
    found = unpack_schedule(TrainingState(arrays={}, scalars={name: scalars[name] for name in names}))
    if found.rule != rule:
        raise StateError("schedule.rule", "belongs to a run of another schedule")
    return found

"""The scenarios of a run that has a plan: what its processes do in each, and which of them it cannot be driven in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from parity.contract import RunPlan

__all__ = ["Leg", "PlannedScenario", "default_kills", "plan_scenarios"]

Choice = Literal["auto", "best", "older"]
"""The checkpoint that a process asks for: what there is, the best, or the newest but one."""


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One process of a scenario."""

    until: int | None = None
    """The step after which it ends; 0: before its first step; None: when it has finished."""
    end: Literal["kill", "stop"] = "kill"
    """How it ends at `until`: by SIGKILL, or by SIGTERM, upon which it saves."""
    resume: Choice = "auto"
    changes: Mapping[str, int] = field(default_factory=dict)
    """Fields that differ from the uninterrupted run's: `steps`, `save.every`, `validate_every`."""


@dataclass(frozen=True, kw_only=True)
class PlannedScenario:
    """One scenario: its processes, of which the last one finishes."""

    name: str
    legs: tuple[Leg, ...]

    @property
    def changed(self) -> frozenset[str]:
        """Return the fields in which its processes differ from the uninterrupted run."""
        return frozenset(name for leg in self.legs for name in leg.changes)

    @property
    def ignored(self) -> frozenset[str]:
        """Return the leaves that follow from these fields, so that they must differ."""
        saves = {"save.every", "validate_every"} & self.changed
        return frozenset(("config.spec", "best") if saves else ("config.spec",) if self.changed else ())


def default_kills(plan: RunPlan, epoch: int | None = None) -> tuple[int, int]:
    """Return two steps to kill at, one after the second save, one after the third.

    They follow the ends of epochs: the first is such an end, the second the step after one. Where no epoch ends
    there, each comes a chunk after its save instead.

    Args:
        plan: When the run saves and stops.
        epoch: Steps of one epoch; None where the run has none.

    Example:
        >>> default_kills(RunPlan(steps=200, save_every=40, chunk=20), 22)
        (88, 133)
        >>> default_kills(RunPlan(steps=200, save_every=40, chunk=20))
        (100, 140)
    """
    later = min(plan.chunk, plan.save_every)
    first, second = (min(n * plan.save_every + later, plan.steps - 1) for n in (2, 3))
    if epoch:
        at = (2 * plan.save_every // epoch + 1) * epoch
        after = (max(3 * plan.save_every - 1, at) // epoch + 1) * epoch + 1
        if at + 1 < plan.steps:
            first, second = at, after if after < plan.steps else at + 1
    return first, second


def plan_scenarios(
    names: Sequence[str], plan: RunPlan, epoch: int | None
) -> tuple[list[PlannedScenario], dict[str, str]]:
    """Return the scenarios that a run can be driven in, and the others with the reason.

    Args:
        names: Names of the registry.
        plan: When the run saves, validates and stops.
        epoch: Steps of one epoch; None where the run has none.
    """
    closed = {name: reason for name in names if (reason := _closed(name, plan, epoch))}
    planned = [PlannedScenario(name=name, legs=_legs(name, plan, epoch or 0)) for name in names if name not in closed]
    return planned, closed


def _closed(name: str, plan: RunPlan, epoch: int | None) -> str | None:
    """Return why a run cannot be driven in a scenario, or None."""
    steps, save, validate = plan.steps, plan.save_every, plan.validate_every
    if name in ("epoch-end", "mid-epoch"):
        needed = _epochs(plan, epoch or 1) + (2 if name == "epoch-end" else 1)
        if epoch is None or needed * epoch + 1 >= steps:
            return f"no later epoch ends within the {steps} steps"
        return "an epoch is one step" if epoch == 1 else None
    if name in ("on-validation", "off-validation"):
        if not validate:
            return "the run does not validate"
        if name == "off-validation" and validate == 1:
            return "every step validates"
        return None if _validation(plan) < steps else "no validation comes between the first save and the end"
    if name == "before-save":
        return "the first step is saved" if save == 1 else None
    if name == "best":
        if not (validate and plan.keep.keep_best):
            return "no best checkpoint is kept"
        meets = plan.saves_new_best or math.lcm(save, validate) <= _stop(plan)
        return None if meets else f"no validation is saved within {_stop(plan)} steps"
    if name == "older" and plan.keep.keep_latest < 2:
        return "one checkpoint is kept"
    if name in ("older", "extend", "third", "kill", "again") and 2 * save >= steps - 1:
        return "the second save comes at the end"
    return "the first save comes at the end" if name == "first-save" and save >= steps - 1 else None


def _legs(name: str, plan: RunPlan, epoch: int) -> tuple[Leg, ...]:
    save, validate, last = plan.save_every, plan.validate_every, Leg()
    stop = Leg(until=_stop(plan))
    if name == "again":
        return stop, Leg(until=0), last
    if name == "third":
        return stop, Leg(until=min(_stop(plan) + max(2, (plan.steps - _stop(plan)) // 2), plan.steps - 1)), last
    if name == "first-save":
        return Leg(until=save + 1), last
    if name == "before-save":
        return Leg(until=save - 1), last
    if name == "at-zero":
        return Leg(until=0, end="stop"), last
    if name in ("epoch-end", "mid-epoch"):
        first = (_epochs(plan, epoch) + 1) * epoch
        if name == "mid-epoch":
            return Leg(until=first - epoch // 2, end="stop"), last
        changes = {"save.every": epoch}  # so that a checkpoint lies exactly at the end of an epoch, too
        killed = Leg(until=first, changes=changes), Leg(until=first + epoch + 1, changes=changes)
        return *killed, Leg(changes=changes)
    if name in ("on-validation", "off-validation"):
        at = _validation(plan)
        return Leg(until=at if name == "on-validation" else at - (validate + 1) // 2), last
    if name == "intervals":
        free = validate > 0 and not plan.metric_moves
        changes = {"save.every": 2 * save + 1} | ({"validate_every": 2 * validate + 1} if free else {})
        return (Leg(changes=changes),)
    if name == "best":  # saved without a validation: the newest is not the best
        return Leg(until=_stop(plan), end="stop"), Leg(resume="best")
    if name == "older":
        return stop, Leg(resume="older")
    if name == "extend":
        return Leg(changes={"steps": 2 * save}), last
    return stop, last


def _stop(plan: RunPlan) -> int:
    """Return the step at which most scenarios stop the run: between the second and the third save."""
    stop = default_kills(plan)[0]
    while stop > 1 and (plan.saves_at(stop) or plan.validates_at(stop)):
        stop -= 1
    return stop


def _epochs(plan: RunPlan, epoch: int) -> int:
    """Return how many epochs are over where the first scenario of epochs begins: one, and a save."""
    return max(1, -(-plan.save_every // epoch))


def _validation(plan: RunPlan) -> int:
    """Return the first step that validates, and after half of an interval, a save."""
    validate = plan.validate_every
    return ((plan.save_every + (validate + 1) // 2) // validate + 1) * validate

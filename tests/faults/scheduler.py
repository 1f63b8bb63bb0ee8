"""Faults that lose the position or the shape of the learning-rate schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from parity.twins import factor, rates
from tests.faults.fault import BOTH, Fault
from tests.faults.plants import after_restore, around_save
from torch_side.optimizer import build_scheduler

__all__ = ["FAULTS"]

SCHEDULE = ("schedule.step",)


def _not_loaded(trainer: Any) -> None:
    load = trainer.load_host_scalars

    def without(*args: Any) -> None:
        step = trainer.schedule_step
        load(*args)
        trainer.schedule_step = step

    trainer.load_host_scalars = without


def _built_late(trainer: Any) -> None:
    """Build the scheduler behind the load: its constructor puts the rate of step 0 back for one step."""
    step = trainer.scheduler.last_epoch
    trainer.scheduler = build_scheduler(trainer.spec, trainer.optimizer)
    trainer.scheduler.last_epoch = step


def _initial_once(trainer: Any) -> None:
    for group in trainer.optimizer.param_groups:
        group["lr"] = group["initial_lr"]


def _chainable(trainer: Any) -> None:
    """Rebuild the schedule at its position, but take the current rate for the peak."""
    shape, last = trainer.spec.schedule, trainer.scheduler.last_epoch
    current = trainer.optimizer.param_groups[0]["lr"]
    for group in trainer.optimizer.param_groups:
        group["initial_lr"] = current
    trainer.scheduler = build_scheduler(trainer.spec, trainer.optimizer)
    trainer.scheduler.last_epoch = last
    trainer.scheduler.base_lrs = [current / factor(shape, 0)]


def _other_horizon(trainer: Any) -> None:
    other = replace(trainer.spec.schedule, horizon=trainer.spec.schedule.horizon * 2)
    if trainer.side == "torch":
        trainer.scheduler.lr_lambdas = [lambda step: factor(other, step)]
        for group in trainer.optimizer.param_groups:
            group["lr"] = trainer.spec.optimizer.lr * factor(other, trainer.step)
        return
    inputs = trainer.step_inputs
    peak = trainer.spec.optimizer.lr
    trainer.step_inputs = lambda first, n: replace(inputs(first, n), lr=rates(other, peak, first, n))


def _nothing_remains(trainer: Any) -> None:
    trainer.scheduler.lr_lambdas = [lambda step: 0.0]


def _dead_groups(trainer: Any) -> None:
    """Leave the scheduler with an optimizer whose groups are no longer those that train."""
    dead = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=trainer.spec.optimizer.lr)
    trainer.scheduler.optimizer = dead


def _shift(by: int) -> Any:
    return lambda trainer: setattr(trainer, "schedule_step", trainer.step + by)


def _twice_on_skips(trainer: Any) -> None:
    """Advance once more on a step that the scaler skipped."""
    train = trainer._train_step

    def step(*args: Any) -> Any:
        out = train(*args)
        if out[-1]:
            trainer.scheduler.step()
        return out

    trainer._train_step = step


FAULTS = (
    Fault(
        id="sched_not_saved",
        group="scheduler",
        plant=_not_loaded,
        suspects=SCHEDULE,
        sides=BOTH,
    ),
    Fault(
        id="sched_ctor_clobbers_lr",
        group="scheduler",
        plant=after_restore(_built_late),
        suspects=SCHEDULE,
        sides=("torch",),
    ),
    Fault(
        id="sched_first_step_initial_lr",
        group="scheduler",
        plant=after_restore(_initial_once),
        suspects=SCHEDULE,
        sides=("torch",),
    ),
    Fault(
        id="sched_saved_before_step",
        group="scheduler",
        plant=around_save(_shift(-1), _shift(0)),
        suspects=SCHEDULE,
        sides=BOTH,
    ),
    Fault(
        id="sched_recursive_vs_closed",
        group="scheduler",
        plant=after_restore(_chainable),
        suspects=SCHEDULE,
        sides=("torch",),
        stops=r"param_groups\.0\.initial_lr: this run has 0\.001, ",  # the next load: it was saved as the group's own
    ),
    Fault(
        id="horizon_changed",
        group="scheduler",
        plant=after_restore(_other_horizon),
        suspects=SCHEDULE,
        sides=BOTH,
    ),
    Fault(
        id="stage_remaining_zero",
        group="scheduler",
        plant=after_restore(_nothing_remains),
        suspects=SCHEDULE,
        sides=("torch",),
    ),
    Fault(
        id="param_groups_alias_broken",
        group="scheduler",
        plant=after_restore(_dead_groups),
        suspects=SCHEDULE,
        sides=("torch",),
    ),
    Fault(
        id="lr_advances_on_skipped_step",
        group="scaler",
        plant=after_restore(_twice_on_skips),
        suspects=SCHEDULE,
        sides=("torch",),
        precision="float16",
        overrides=("scaler.overflow_steps=[12, 23, 31]",),
    ),
)

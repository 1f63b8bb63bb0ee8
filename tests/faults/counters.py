"""Faults that lose the step or a helper's counter, the best metric, and a fault of the log alone."""

from __future__ import annotations

import shutil
from typing import Any

from tests.faults.fault import Fault
from tests.faults.plants import after_restore, reset, with_counters

__all__ = ["FAULTS"]

STEP = ("counters.step",)
ACCURACY = {10: 0.5, 20: 0.9, 30: 0.7, 40: 0.6}
"""A run that overfits behind step 20."""


def _overfits(trainer: Any) -> None:
    """Script the validation metric, so that the newest checkpoint is not the best."""
    evaluate = trainer.evaluate
    trainer.evaluate = lambda: evaluate()._replace(value=ACCURACY[trainer.step])


def _best_is_latest(trainer: Any) -> None:
    trainer.best = {"metric": ACCURACY[trainer.step], "step": trainer.step}


def _checkpoints_out_of_sight(trainer: Any) -> None:
    """Look for checkpoints where there are none."""
    path = trainer.checkpoints.store.path
    if trainer.attempt and path.exists():
        shutil.move(path, path.with_name(f"unseen-{trainer.attempt}"))
        path.mkdir()


def _first_loss_counted_twice(trainer: Any) -> None:
    """Keep the loss of the first resumed step in the running sum of the log; the training is right."""
    records = trainer._records

    def wrong_once(*args: Any) -> Any:
        trainer._records = records
        first, *others = records(*args)
        return [first._replace(loss=2 * first.loss), *others]

    trainer._records = wrong_once


FAULTS = (
    Fault(
        id="step_not_restored",
        group="counters",
        plant=with_counters(lambda counters: {"step": 0}),
        suspects=STEP,
        stops="10 (exists already|already exists)",
    ),
    Fault(
        id="step_added_twice",
        group="counters",
        plant=with_counters(lambda counters: {"step": 2 * counters.step}),
        suspects=STEP,
    ),
    Fault(
        id="epoch_or_step_repeated",
        group="counters",
        plant=with_counters(lambda counters: {"step": counters.step - 1}),
        suspects=STEP,
        sides=("torch",),
        stops="20 exists already",
    ),
    Fault(
        id="midepoch_extra_step",
        group="counters",
        plant=with_counters(lambda counters: {"step": counters.step + 1}),
        suspects=STEP,
        sides=("torch",),
    ),
    Fault(
        id="loss_accumulator_boundary",
        group="counters",
        plant=after_restore(_first_loss_counted_twice),
        suspects=("records.loss",),
        sides=("torch",),
    ),
    Fault(
        id="last_not_found_restart",
        group="policy",
        plant=_checkpoints_out_of_sight,
        suspects=STEP,
    ),
    Fault(
        id="best_metric_reset",
        group="policy",
        plant=reset("best"),
        suspects=("best",),
    ),
    Fault(
        id="best_metric_from_latest",
        group="policy",
        plant=after_restore(_best_is_latest),
        suspects=("best",),
        base=_overfits,
        kills=(25, 36),
    ),
)

"""A run of one side made one of the other for good: its whole state at a step, its records until then, a seal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.checkpoints import read_seal
from parity.contract import Side, StepRecord, Validation, read_records, require_trainer
from parity.errors import StateError
from parity.runs.directory import RunDirectory
from parity.state import TrainingState, compare_states
from parity.storage import append, read_lines

__all__ = ["NamedSide", "cross_over"]


@dataclass(frozen=True)
class NamedSide:
    """A side, by the name under which runs know it."""

    name: str
    side: Side


def cross_over(run: RunDirectory, step: int, described: Any, sides: tuple[NamedSide, NamedSide], dest: Path) -> int:
    """Write a run directory that another side continues from a checkpoint of this one.

    Args:
        run: The run; it is only read.
        step: Completed steps of a verified checkpoint of it.
        described: The run as both sides understand it, on one device.
        sides: The one that trained it, and the one that goes on.
        dest: New directory: spec, records up to the step, and one sealed checkpoint.

    Returns:
        The leaves that crossed.

    Raises:
        StateError: Something of the state has no counterpart on the other side, or is not what it was there.
        CheckpointError: The checkpoint cannot be restored.
        SaveError: The new one cannot be written.

    Numerics: every leaf is compared after it crossed, bit for bit.
    """
    before, after = sides
    read_records(run.steps, StepRecord)  # records that cannot be read cost nothing
    read_records(run.validations, Validation)
    seal = read_seal(run.checkpoints / str(step))
    state = _state_of(run, step, described, before)
    target = require_trainer(after.side.build(described, dest), after.name)
    try:
        target.import_state(state)
        for lost in compare_states(state, target.export_state()):
            raise StateError(lost.leaf, f"is not on side {after.name} what it was: {lost.detail}")
        made = RunDirectory(dest)
        made.open(target.identity, after.name)
        for file in (run.steps, run.validations):
            rows = [json.dumps(row) for row in read_lines(file) if row["step"] <= step]
            append(dest / file.name, rows)
        append(made.attempts, [json.dumps(row) for row in read_lines(run.attempts)])
        target.save(seal.metric, saved_at=seal.saved_at)
        target.wait()
    finally:
        target.close()
    return len(state.arrays) + len(state.scalars)


def _state_of(run: RunDirectory, step: int, described: Any, named: NamedSide) -> TrainingState:
    trainer = require_trainer(named.side.build(described, run.path), named.name)
    try:
        trainer.restore(step)
        return trainer.export_state()
    finally:
        trainer.close()

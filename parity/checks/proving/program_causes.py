"""Causes that programs tell: the change of an operation with which a model or a loss gives what the other gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.checks.programs import explain
from parity.checks.progress import tell
from parity.checks.proving.losses import Pairing, other_values
from parity.checks.proving.sources import PortTrainer
from parity.contract import TracedProgram
from parity.errors import SpecError

__all__ = ["loss_program_cause", "model_program_cause"]

MODEL_SEEDS = (91, 92)
"""Draws of the leaves with which two models must be made equal."""

LOSS_STEPS = (0, 1, 2)
"""Batches with which two losses must be made equal, each at leaves of its own."""


def model_program_cause(pairing: Pairing) -> str:
    """Return the changes that make two models equal, as a phrase; empty where none does.

    Args:
        pairing: Of the models, under a complete map.
    """
    tell("port: forward, operation by operation")
    subjects = pairing.subjects
    drawn = [other_values(pairing, seed) for seed in MODEL_SEEDS]
    try:
        first = [subjects.first.trace(values, subjects.inputs.first) for values in drawn]
        second = [subjects.second.trace(pairing.over(values), subjects.inputs.second) for values in drawn]
    except SpecError:
        return ""
    return _phrase(first, second, subjects.orders)


def loss_program_cause(pairing: Pairing, first: PortTrainer, second: PortTrainer) -> str:
    """Return the changes that make two losses equal on several batches, as a phrase; empty where none does.

    Args:
        pairing: Of the models.
        first: The trainer.
        second: Its port.
    """
    tell("port: loss, operation by operation")
    programs: tuple[list[TracedProgram | None], list[TracedProgram | None]] = ([], [])
    shapes = None
    try:
        for step in LOSS_STEPS:
            values = other_values(pairing, 91 + step)
            batches = first.batch(step), second.batch(step)
            found = [{key: np.shape(one) for key, one in batch.items()} for batch in batches]
            if shapes is not None and found != shapes:
                continue  # another program
            shapes = found
            programs[0].append(first.probe.trace(values, batches[0]))
            programs[1].append(second.probe.trace(pairing.over(values), batches[1]))
    except SpecError:
        return ""
    return _phrase(*programs, None) if len(programs[0]) > 1 else ""


def _phrase(
    first: Sequence[TracedProgram | None], second: Sequence[TracedProgram | None],
    orders: Sequence[tuple[int, ...]] | None,
) -> str:  # fmt: skip
    """Return what makes them equal; several changes that do so as alternatives."""
    here, there = ([one for one in side if one is not None] for side in (first, second))
    if len(here) != len(first) or len(there) != len(second):
        return ""
    found = explain(here, there, orders)
    tell()
    return ", or ".join(one.text for one in found[:2])

"""Causes that programs tell: the change of an operation with which a model or a loss gives what the other gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs import NamedValues, explain
from parity.checks.progress import tell
from parity.checks.proving.losses import Pairing, other_values
from parity.checks.proving.sources import PortTrainer
from parity.contract import Inputs, TracedProgram, call_with
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
    names = _named(drawn[0], subjects.inputs.first), _named(pairing.over(drawn[0]), subjects.inputs.second)
    return _phrase(first, second, subjects.orders, names)


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
    names: tuple[NamedValues, NamedValues] = ({}, {})
    try:
        for step in LOSS_STEPS:
            values = other_values(pairing, 91 + step)
            batches = first.batch(step), second.batch(step)
            found = [{key: np.shape(one) for key, one in batch.items()} for batch in batches]
            if shapes is not None and found != shapes:
                continue  # another program
            if shapes is None:
                names = _named(values, batches[0]), _named(pairing.over(values), batches[1])
            shapes = found
            programs[0].append(first.probe.trace(values, batches[0]))
            programs[1].append(second.probe.trace(pairing.over(values), batches[1]))
    except SpecError:
        return ""
    return _phrase(*programs, None, names) if len(programs[0]) > 1 else ""


def _named(values: Mapping[str, NDArray[np.float64]], inputs: Inputs | Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return leaves and what else a program is given, by the names under which they are told."""
    args, named = call_with(inputs)
    given = {
        **{f"input {at}": one for at, one in enumerate(args)},
        **{f"`{name}`": one for name, one in named.items()},
    }
    arrays = {name: np.asarray(one) for name, one in given.items() if isinstance(one, np.ndarray | np.generic)}
    return {**{f"the leaf {path}": np.asarray(one) for path, one in values.items()}, **arrays}


def _phrase(
    first: Sequence[TracedProgram | None], second: Sequence[TracedProgram | None],
    orders: Sequence[tuple[int, ...]] | None, names: tuple[NamedValues, NamedValues],
) -> str:  # fmt: skip
    """Return what makes them equal; several changes that do so as alternatives."""
    here, there = ([one for one in side if one is not None] for side in (first, second))
    if len(here) != len(first) or len(there) != len(second):
        return ""
    found = explain(here, there, orders, names)
    tell()
    return ", or ".join(one.text for one in found[:2])

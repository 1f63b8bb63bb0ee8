"""Causes that programs tell: the change of an operation with which a model or a loss gives what the other gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs import NamedValues, ValueGraft, explain
from parity.checks.progress import tell
from parity.checks.proving.called_at import ModuleOf, module_of, with_module
from parity.checks.proving.losses import Pairing, other_values
from parity.checks.proving.sources import PortTrainer
from parity.contract import Inputs, TracedProgram, call_with
from parity.errors import SpecError

__all__ = ["loss_program_cause", "model_program_cause"]

SCALES = (1.0, 1.0, 0.1, 3.0)
"""Sizes of the leaves of each draw with which two models or losses must be made equal, each loss on a batch of its
own. What bounds a value acts at some of them and not at others: what never acts could as well be left out."""

FEWEST_DRAWS = 2


def model_program_cause(pairing: Pairing) -> str:
    """Return the changes that make two models equal, as a phrase; empty where none does.

    Args:
        pairing: Of the models, under a complete map.
    """
    tell("port: forward, operation by operation")
    subjects = pairing.subjects
    drawn = [_drawn(pairing, at) for at in range(len(SCALES))]
    try:
        first = [subjects.first.trace(values, subjects.inputs.first) for values in drawn]
        second = [subjects.second.trace(pairing.over(values), subjects.inputs.second) for values in drawn]
    except SpecError:
        return ""
    names = _named(drawn[0], subjects.inputs.first), _named(pairing.over(drawn[0]), subjects.inputs.second)

    def called(side: int, made: NDArray[Any], draw: int) -> str:
        values = pairing.over(drawn[draw]) if side else drawn[draw]
        return module_of(*((subjects.second, values, subjects.inputs.second) if side else
                           (subjects.first, values, subjects.inputs.first)), made)  # fmt: skip

    return _phrase(first, second, subjects.orders, names, called)


def loss_program_cause(pairing: Pairing, first: PortTrainer, second: PortTrainer, begin: int = 0) -> str:
    """Return the changes that make two losses equal on several batches, as a phrase; empty where none does.

    Args:
        pairing: Of the models.
        first: The trainer.
        second: Its port.
        begin: The step of the first of these batches, one on which the losses part.
    """
    tell("port: loss, operation by operation")
    programs: tuple[list[TracedProgram | None], list[TracedProgram | None]] = ([], [])
    shapes = None
    names: tuple[NamedValues, NamedValues] = ({}, {})
    try:
        for at, step in enumerate(range(begin, begin + len(SCALES))):
            values = _drawn(pairing, at)
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
    return _phrase(*programs, None, names)


def _drawn(pairing: Pairing, at: int) -> dict[str, NDArray[np.float64]]:
    """Return values of the first model's leaves; statistics are of the same size at all draws."""
    statistics = pairing.subjects.first.statistics
    values = other_values(pairing, 91 + at)
    return {leaf: one if leaf in statistics else SCALES[at] * one for leaf, one in values.items()}


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
    orders: Sequence[tuple[int, ...]] | None, names: tuple[NamedValues, NamedValues], called: ModuleOf | None = None,
) -> str:  # fmt: skip
    """Return what makes them equal; several changes that do so as alternatives."""
    if any(one is None for one in (*first, *second)):
        return ""
    both = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None and _finite(a, b)]
    # of large leaves something may go another way, or be no number
    same = [(a, b) for a, b in both if all(map(_alike, (a, b), both[0]))]
    if len(same) < FEWEST_DRAWS:
        return ""
    found = explain([one for one, _ in same], [one for _, one in same], orders, names)
    tell()
    if called is None:
        return ", or ".join(one.text for one in found[:2])
    draw = next(at for at, one in enumerate(first) if one is same[0][0])
    return ", or ".join(
        with_module(one, same[0], draw, called) if isinstance(one, ValueGraft) else one.text for one in found[:2]
    )


def _finite(*programs: TracedProgram) -> bool:
    return all(np.isfinite(value).all() for one in programs for value in one.outputs)


def _alike(first: TracedProgram, second: TracedProgram) -> bool:
    """Return whether two programs do the same operations."""
    return [one.kind for one in first.operations] == [one.kind for one in second.operations]

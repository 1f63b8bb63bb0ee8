"""What further batches tell of two that differ: an incomplete one is left out, numbers are spread otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.sources import PortSource, batch_of
from parity.contract import StepBatch
from parity.errors import SpecError

__all__ = ["numbers_of_many", "of_one_distribution", "size_cause"]

MOST_BATCHES = 64
"""Batches of which the numbers are compared at most."""

MOST_NUMBERS = 1 << 16
"""Numbers of a batch above which those of few batches are enough, and loading many is not cheap."""

SURELY = 2.8
"""Distance of two empirical distributions, times the root of half their count, that one in three million draws has.

Source: the limit of Kolmogorov and Smirnov, 2 exp(-2 x^2) for the probability of a distance of at least x.
"""


def size_cause(first: PortSource, second: PortSource, step: int, key: str, one: StepBatch, two: StepBatch) -> str:
    """Return why an array of a batch has another shape.

    Args:
        first: The trainer.
        second: Its port.
        step: Of the batch.
        key: Name of the array.
        one: The trainer's batch.
        two: The port's.
    """
    a, b = np.asarray(one[key]), np.asarray(two[key])
    unknown = f"batches of another shape: {key}"
    if not a.ndim or a.shape[1:] != b.shape[1:]:
        return unknown
    sides = (("the trainer", first, a, one), ("the port", second, b, two))
    (short, own, less, _), (full, _, more, batch) = sides if len(a) < len(b) else sides[::-1]
    before = {len(np.asarray(batch_of(own, at)[key])) for at in range(step)}
    if before != {len(more)}:
        return unknown  # that it is the last one of an epoch is not seen
    whole = f"the incomplete batch of {len(less)} that {short} reads at step {step}, after those of {len(more)},"
    after = _further(own, step + 1)
    if after is not None and _equal(after, batch):
        return f"last batch of an epoch: {full} leaves out {whole} and goes on with the next one"
    if np.array_equal(more[: len(less)], less):
        return f"last batch of an epoch: {full} fills up {whole} to {len(more)}"
    return (
        f"batches of another size: {short} reads {len(less)} examples at step {step}, and {len(more)} at all before"
    )


def _further(source: PortSource, step: int) -> StepBatch | None:
    """Return a batch behind those that are asked for; None where a run has no more."""
    try:
        return batch_of(source, step)
    except SpecError:
        return None


def _equal(one: StepBatch, two: StepBatch) -> bool:
    return set(one) == set(two) and all(np.array_equal(np.asarray(one[key]), np.asarray(two[key])) for key in one)


def numbers_of_many(
    first: PortSource, second: PortSource, key: str, steps: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the numbers of an array in many batches of both, pairs at one place; none where a batch has others.

    Args:
        first: The trainer.
        second: Its port.
        key: Name of the array.
        steps: Batches that are read at least.
    """
    found: list[tuple[Any, Any]] = []
    for step in range(max(steps, MOST_BATCHES)):
        both = [_further(source, step) for source in (first, second)]
        if step >= steps and None in both:
            break
        one, two = (np.ravel(np.asarray((batch or {}).get(key, ()))) for batch in both)
        if not one.size or one.shape != two.shape:
            return np.zeros(0), np.zeros(0)
        found.append((one.astype(np.float64), two.astype(np.float64)))
        if one.size * len(found) > MOST_NUMBERS and len(found) >= steps:
            break
    one, two = (np.concatenate(side) for side in zip(*found, strict=True))
    return one, two


def of_one_distribution(one: NDArray[np.float64], two: NDArray[np.float64]) -> bool:
    """Return whether numbers may be of one distribution, by the test of Kolmogorov and Smirnov.

    Args:
        one: Numbers, of shape [n].
        two: Others, of shape [m].

    Numerics: of two samples of one distribution it says no at a probability of 3e-7.
    """
    one, two = np.sort(one), np.sort(two)
    every = np.concatenate([one, two])
    shares = [np.searchsorted(side, every, "right") / max(len(side), 1) for side in (one, two)]
    apart = float(np.abs(shares[0] - shares[1]).max(initial=0.0))
    return apart * float(np.sqrt(len(one) * len(two) / max(len(one) + len(two), 1))) <= SURELY

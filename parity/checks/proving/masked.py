"""The loss of both trainers with dropout on, where both drop the same elements: the masks are given to both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations, product

import numpy as np
from numpy.typing import NDArray

from parity.checks.criteria import FLOAT64_LIMIT
from parity.checks.models import NOISE
from parity.checks.noise import spread_of
from parity.checks.proving.losses import Pairing
from parity.checks.proving.sources import PortTrainer
from parity.contract import DropoutMasks, LossEvaluation
from parity.errors import SpecError
from parity.results import Verdict

__all__ = ["MaskedFinding", "compare_masked"]

MOST_ORDERS = 24
"""Orders of dropouts of one rate and shape that are tried: branches may be called in another order."""

FACTOR = 100.0
"""How much more than without dropout may pass: values are larger by 1 / (1 - rate), and sums are of fewer terms."""


@dataclass(frozen=True)
class MaskedFinding:
    """What was found of both; `empty` where neither drops anything."""

    verdict: Verdict
    said: str


def compare_masked(
    pairing: Pairing, first: PortTrainer, second: PortTrainer, values: Mapping[str, NDArray[np.float64]], step: int
) -> MaskedFinding:
    """Return whether loss and gradients agree where both drop the same elements.

    Args:
        pairing: Of their models.
        first: The trainer.
        second: Its port.
        values: Of the leaves of the first model.
        step: Whose batch is taken.

    Returns:
        `holds` where they agree under equal masks; `broken` where they do not though both drop at as many places, at
        the same rates and shapes, in whichever order; else `inconclusive`, with the reason.
    """
    there = pairing.over(values)
    batches = first.batch(step), second.batch(step)
    masks = DropoutMasks(), DropoutMasks()
    try:
        one = first.probe.loss(values, batches[0], masks=masks[0])
        two = second.probe.loss(there, batches[1], masks=masks[1])
    except SpecError as error:
        return MaskedFinding("inconclusive", f"with dropout on: {error}")
    if not masks[0].sites and not masks[1].sites:
        return MaskedFinding("empty", "")
    if reason := _incomparable(*masks):
        return MaskedFinding("inconclusive", f"with dropout on: {reason}")
    said = f"with dropout on, and equal masks at {len(masks[0].sites)} places, loss and gradients"
    gap = _gap(pairing, one, two)
    for order in islice(_orders(masks[0].sites), 1, MOST_ORDERS):
        if gap <= FACTOR * FLOAT64_LIMIT:
            break
        again = DropoutMasks(order)
        gap = min(gap, _gap(pairing, one, second.probe.loss(there, batches[1], masks=again)))
    if gap <= FACTOR * FLOAT64_LIMIT:
        return MaskedFinding("holds", f"{said} agree to {gap:.1e}")
    if _count_orders(masks[0].sites) > MOST_ORDERS or _ambiguous(*masks):
        return MaskedFinding("inconclusive", "with dropout on: which mask of one is which of the other is not known")
    return MaskedFinding("broken", f"{said} are {gap:.1e} apart, and agree without it")


def _incomparable(one: DropoutMasks, two: DropoutMasks) -> str:
    if unseen := [*one.unseen, *two.unseen]:
        return f"{', '.join(dict.fromkeys(unseen))} cannot be given a mask"
    if len(one.sites) != len(two.sites):
        return f"{len(one.sites)} draws in one and {len(two.sites)} in the other"
    for at, ((rate, shape), (other, there)) in enumerate(zip(one.sites, two.sites, strict=True)):
        if rate != other:
            return f"draw {at + 1} has rate {rate:g} in one and {other:g} in the other"
        if _extents(shape) != _extents(there):
            return f"draw {at + 1} is of {list(shape)} in one and of {list(there)} in the other"
    return ""


def _extents(shape: Sequence[int]) -> list[int]:
    return sorted(n for n in shape if n != 1)


def _ambiguous(one: DropoutMasks, two: DropoutMasks) -> bool:
    """Return whether a mask in another layout may lie otherwise: two of its extents are equal."""
    pairs = zip(one.sites, two.sites, strict=True)
    return any(here != there and len(set(_extents(here))) < len(_extents(here)) for (_, here), (_, there) in pairs)


def _groups(sites: Sequence[tuple[float, tuple[int, ...]]]) -> list[list[int]]:
    found: dict[tuple[float, tuple[int, ...]], list[int]] = {}
    for at, site in enumerate(sites):
        found.setdefault(site, []).append(at)
    return list(found.values())


def _count_orders(sites: Sequence[tuple[float, tuple[int, ...]]]) -> int:
    return math.prod(math.factorial(len(group)) for group in _groups(sites))


def _orders(sites: Sequence[tuple[float, tuple[int, ...]]]) -> Iterator[list[int]]:
    """Yield which draw each place gets: its own first, then others of the same rate and shape."""
    groups = _groups(sites)
    for chosen in product(*(permutations(group) for group in groups)):
        order = [0] * len(sites)
        for group, some in zip(groups, chosen, strict=True):
            for at, number in zip(group, some, strict=True):
                order[at] = number
        yield order


def _gap(pairing: Pairing, one: LossEvaluation, two: LossEvaluation) -> float:
    """Return the largest relative difference of the loss and of a gradient that is more than rounding."""
    expected = pairing.over(one.gradients, grads=True)
    largest = max((float(np.abs(grad).max(initial=0.0)) for grad in expected.values()), default=0.0)
    gap = spread_of(one.loss, two.loss) / max(abs(one.loss), 1e-300)
    for path, grad in expected.items():
        scale = float(np.abs(grad).max(initial=0.0))
        apart = spread_of(grad, two.gradients[path])
        if apart > NOISE * largest:
            gap = max(gap, apart / max(scale, 1e-300))
    return gap if math.isfinite(gap) else math.inf

"""What an optimizer made of the gradient in its first update: how much of it, of its square, and of the parameters.

An optimizer that has made one update holds in its first moment (or momentum) a part of the gradient that reached it,
and in its second moment a part of its square. The parts of two optimizers tell clipping, scaling, decay that is added
to the gradient, and betas apart, without any name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.slots import LeafArrays

__all__ = ["FEWEST", "MomentShares", "TakenParts", "fitted", "fitted_any", "one_value", "taken_of"]

FIT = 1e-7
"""How far, of its largest element, a slot may be from what its parts give."""

FEWEST = 3
"""Elements from which a leaf shows that a slot holds a part of its gradient."""

SAME = 1e-6
"""Relative distance of two parts that count as one: parts of one optimizer are the same at all leaves but for the
rounding of their fits; the ratio of two optimizers is looked at more closely."""


@dataclass(frozen=True)
class TakenParts:
    """What a first moment holds, by leaf."""

    slot: str
    gradient: Mapping[str, float]
    """Part of the gradient."""
    params: Mapping[str, float]
    """Part of the parameters: decay that is added to the gradient."""
    loose: frozenset[str]
    """LeafArrays of which no parts give what it holds, such as where each element is clipped."""
    square: Mapping[str, float]
    """Part of the squared gradient in the second moment; empty where there is none."""


@dataclass(frozen=True)
class MomentShares:
    """What a moment is made of at an update."""

    kept: float
    """Share of itself before."""
    taken: float
    """Share of the gradient of the loss, or of its square."""


def fitted(
    columns: Sequence[NDArray[np.float64]], made: NDArray[np.float64], within: float
) -> tuple[float, ...] | None:
    """Return how much of each column makes a value; None where no parts do.

    Args:
        columns: Arrays of the shape of the value, [n].
        made: The value, [n].
        within: How far the sum may be from it, relative to its largest element.

    Numerics: a fit by least squares in float64, judged by the largest difference of an element.
    """
    if not made.size:
        return None  # of no elements any parts would make it
    table = np.stack(columns, 1)
    parts, *_ = np.linalg.lstsq(table, made, rcond=None)
    close = float(np.abs(table @ parts - made).max()) <= within * float(np.abs(made).max(initial=0.0))
    return tuple(map(float, parts)) if close else None


def fitted_any(
    columns: Sequence[NDArray[np.float64]], more: Sequence[Sequence[NDArray[np.float64]]],
    made: NDArray[np.float64], within: float,
) -> tuple[float, ...] | None:  # fmt: skip
    """Return the parts of the first columns, beside the first of several further ones with which they make a value.

    Args:
        columns: As of `fitted`.
        more: Further columns that are tried, the plainest first.
        made: As of `fitted`.
        within: As of `fitted`.
    """
    for further in more:
        parts = fitted([*columns, *further], made, within)
        if parts is not None:
            return parts[: len(columns)]
    return None


def taken_of(
    slots: Mapping[str, LeafArrays], model: str, gradient: LeafArrays, params: LeafArrays
) -> TakenParts | None:
    """Return what the slots of a state hold after the first update; None where none holds a gradient.

    Args:
        slots: Slot to leaf to array, after one update.
        model: The slot that is the model itself.
        gradient: Of the loss before it, by leaf.
        params: Before it, by leaf.
    """
    best: tuple[int, TakenParts] | None = None
    for slot, held in slots.items():
        if slot == model or not any(np.any(array) for array in held.values()):
            continue
        taken = _first_order(slot, held, gradient, params)
        # any number is a multiple of one: leaves of few elements are no evidence
        fits = sum(held[leaf].size >= FEWEST for leaf in taken.gradient if leaf not in taken.loose)
        if fits > 0 and (best is None or fits > best[0]):
            best = fits, taken
    if best is None:
        return None
    found = best[1]
    squares = [
        one
        for slot, held in slots.items()
        if slot not in (model, found.slot) and (one := _second_order(held, slots[found.slot]))
    ]
    return TakenParts(found.slot, found.gradient, found.params, found.loose, squares[0] if squares else {})


def _first_order(slot: str, held: LeafArrays, gradient: LeafArrays, params: LeafArrays) -> TakenParts:
    parts: dict[str, float] = {}
    decays: dict[str, float] = {}
    loose = set()
    largest = max((float(np.abs(g).max(initial=0.0)) for g in gradient.values()), default=0.0)
    for leaf, array in held.items():
        grad = gradient.get(leaf)
        if grad is None or grad.shape != array.shape or float(np.abs(grad).max(initial=0.0)) <= 1e-9 * largest:
            continue
        g, p, m = grad.ravel(), params[leaf].ravel(), array.ravel()
        scale = float(np.abs(m).max(initial=0.0))
        part = float(g @ m) / float(g @ g)
        if float(np.abs(m - part * g).max()) <= FIT * scale or scale == 0.0:
            parts[leaf], decays[leaf] = part, 0.0
            continue
        table = np.stack([g, p], 1)
        (part, decay), *_ = np.linalg.lstsq(table, m, rcond=None)  # the part is kept where it does not fit, too
        if float(np.abs(m - table @ (part, decay)).max()) <= FIT * scale and np.any(p) and len(m) > 2:
            parts[leaf], decays[leaf] = float(part), float(decay)
        else:
            parts[leaf], decays[leaf] = part, 0.0
            loose.add(leaf)
    return TakenParts(slot, parts, decays, frozenset(loose), {})


def _second_order(held: LeafArrays, first: LeafArrays) -> dict[str, float]:
    """Return the part that a slot has of the square of another; empty where it is no such part."""
    parts: dict[str, float] = {}
    for leaf, array in held.items():
        if leaf not in first or first[leaf].shape != array.shape:
            return {}
        square = first[leaf].ravel() ** 2
        total = float(square @ square)
        if total == 0.0:
            continue
        part = float(square @ array.ravel()) / total
        if float(np.abs(array.ravel() - part * square).max()) > FIT * float(np.abs(array).max(initial=0.0)):
            return {}
        parts[leaf] = part
    return parts


def one_value(values: Mapping[str, float], close: float = SAME) -> float | None:
    """Return the value that all leaves share to a relative distance; None where they do not."""
    found = list(values.values())
    if not found:
        return None
    middle = float(np.median(found))
    return middle if all(abs(one - middle) <= close * abs(middle) for one in found) else None

"""When values are made again to within rounding: the bound that causes which are told by values must meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Float64s", "HowMade", "coefficient", "fits", "least_difference", "tolerance", "what_differs"]

Float64s: TypeAlias = NDArray[np.float64]
HowMade = TypeVar("HowMade")


def tolerance(first: Float64s, second: Float64s) -> float:
    """Return how far values that are made again may be from those of a model, absolute.

    1e-10 of the largest element, and at most a thousandth of what the two models are apart: what makes the values of
    both is no evidence of what they differ in.

    Args:
        first: Values of one model, float64, of any shape.
        second: Those of the other, of the same shape.
    """
    largest = max(float(np.abs(first).max(initial=0.0)), float(np.abs(second).max(initial=0.0)))
    return min(1e-10 * largest, 1e-3 * float(np.abs(first - second).max(initial=0.0)))


def fits(made: Float64s, values: Float64s, limit: float) -> bool:
    """Return whether values are those that were made, to within a limit; never where one of them is not finite.

    Args:
        made: Values that were made again, float64.
        values: Those of a model; of another shape they never fit.
        limit: Largest absolute difference of an element.
    """
    return made.shape == values.shape and bool(np.abs(made - values).max(initial=0.0) <= limit)


def coefficient(values: Float64s, term: Float64s, limit: float) -> float:
    """Return c where values are c times a term, to within a limit; 0 where they are not.

    Whole numbers are returned as such where rounding alone is between.

    Args:
        values: Values of a model, float64.
        term: What they may be a multiple of; one of another shape is not it.
        limit: Largest absolute difference of an element.
    """
    square = float((term * term).sum())
    if values.shape != term.shape or not square > 0.0:
        return 0.0
    found = float((values * term).sum()) / square
    if abs(found - round(found)) <= 1e-9:
        found = float(round(found))
    return found if fits(found * term, values, limit) else 0.0


def least_difference(
    here: Sequence[HowMade], there: Sequence[HowMade], differences: Callable[[HowMade, HowMade], list[str]]
) -> tuple[str, tuple[HowMade, ...]]:
    """Return what differs in two ways that make the values of two models, and the two ways.

    Several ways may make the same values: with one head, heads are joined in either order. The pair that differs
    least explains them, if all such pairs differ in the same; otherwise the phrase is empty and there are no ways.

    Args:
        here: Ways that make the values of the first model.
        there: Ways that make those of the second.
        differences: Phrases of what differs in two ways.
    """
    pairs = sorted(((differences(a, b), (a, b)) for a in here for b in there), key=lambda one: len(one[0]))
    phrases = {"; ".join(one[0]) for one in pairs if len(one[0]) == len(pairs[0][0])}
    return (phrases.pop(), pairs[0][1]) if len(phrases) == 1 and pairs[0][0] else ("", ())


def what_differs(
    parts: Sequence[Float64s],
    first: Float64s,
    second: Float64s,
    tried: Callable[[Sequence[Float64s], HowMade | None], Iterator[tuple[HowMade, Float64s]]],
    differences: Callable[[HowMade, HowMade], list[str]],
) -> str:
    """Return what differs in the ways by which two models make their values of the same parts; empty if unknown.

    The first sample tells which ways do, all samples whether they are it.

    Args:
        parts: What agrees in both, the first axis the samples.
        first: What one model made of it.
        second: What the other made of it.
        tried: Yields every way, or the one that it is given, with what that makes of parts.
        differences: Phrases of what differs in two ways.
    """
    limit = tolerance(first, second)
    made: tuple[list[HowMade], list[HowMade]] = ([], [])
    for way, sample in tried([one[:1] for one in parts], None):
        for side, values in zip(made, (first, second), strict=True):
            if fits(sample, values[:1], limit):
                side.append(way)
    phrase, ways = least_difference(*made, differences)
    for way, values in zip(ways, (first, second), strict=True) if phrase else ():
        if not any(fits(again, values, limit) for other, again in tried(parts, way) if other == way):
            return ""  # true of the first sample alone
    return phrase

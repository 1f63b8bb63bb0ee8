"""Likely causes of a parting between modules: what is added, scaled or laid out in another way.

Each is told by values: both models' values, or their difference, are made again from what agrees before them, to
within rounding (`fitting.py`). What is not made again by exactly one of the ways below has no cause here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from parity.checks.models.fitting import Float64s, coefficient, fits, tolerance
from parity.checks.programs import ACTIVATIONS

__all__ = [
    "BETWEEN",
    "LARGEST",
    "Terms",
    "activation_order_cause",
    "distinct_terms",
    "factor_cause",
    "layout_cause",
    "term_cause",
]

Terms = Sequence[tuple[str, Float64s]]
"""Values that agree in both models, each with its name, the nearest first."""

MOST_COLUMNS = 512
"""Numbers of the last axis above which their order is not looked for."""

LARGEST = 2**18
"""Elements of a value, as of two images of 64 by 64 by 32: above, orders of axes and windows are not tried."""

BETWEEN = ("nothing", "ReLU", "GELU (erf)", "GELU (tanh)", "SiLU", "tanh")
"""Activations that may lie between a module and the parting."""


def factor_cause(first: Float64s, second: Float64s, dropouts: Sequence[float] = ()) -> str:
    """Return by what one is a multiple of the other; empty where it is not.

    Args:
        first: Values of one model.
        second: Values of the other, of the same shape.
        dropouts: Rates of the dropouts that either model has.
    """
    limit = tolerance(first, second)
    times, where = coefficient(second, first, limit), ""
    if (
        not times
        and first.ndim > 2
        and (parted := np.flatnonzero(np.abs(first - second).max((0, *range(2, first.ndim))) > limit)).size
    ):
        # of values laid one after the other, as of patches and words, one part alone may be scaled
        low, high = int(parted[0]), int(parted[-1]) + 1
        if high - low < first.shape[1] and high - low == parted.size:
            times = coefficient(second[:, low:high], first[:, low:high], limit)
            where = f", in places {low} to {high - 1} of axis 1 alone"
    if not times:
        return ""
    size = first.shape[-1] if first.ndim else 1
    words = {f"the square root of {size}, the last axis": size**0.5, f"{size}, the last axis": float(size)}
    known = [f"{sign}{word}" for word, one in words.items() for sign, value in (("", one), ("1/", 1.0 / one))
             if size > 1 and math.isclose(times, value, rel_tol=1e-9)]  # fmt: skip
    for rate in sorted({one for one in dropouts if 0.0 < one < 1.0}):
        for side, value in (("there", 1.0 / (1.0 - rate)), ("here", 1.0 - rate)):
            if math.isclose(times, value, rel_tol=1e-9):
                known.append(f"the scaling of a dropout of {rate!r} left on {side}")
    meaning = f" ({', or '.join(known)})" if known else ""
    return f"factor: there {times:.9g} times what is here{meaning}{where}"


def term_cause(terms: Terms, first: Float64s, second: Float64s) -> str:
    """Return the term that one model adds and the other does not, or not as often; empty where that is not known.

    Args:
        terms: What agrees in both before it.
        first: Values of one model.
        second: Values of the other, of the same shape.
    """
    limit = tolerance(first, second)
    same = distinct_terms([(name, values) for name, values in terms if values.shape == first.shape])
    for name, term in same:
        more = coefficient(first - second, term, limit)
        if not more:
            continue
        others = [(other, values) for other, values in same if other != name]
        for other, values in others:
            here, there = (_two(one, term, values, limit) for one in (first, second))
            if here is not None and there is not None and here[1] == there[1] != 0.0:
                return f"residual: the sum with {other} has {name} {_times(here[0])} here, {_times(there[0])} there"
        side, other_side = ("here", "there") if more > 0 else ("there", "here")
        return f"sum: {side} it is what is {other_side} plus {abs(more):.9g} times {name}"
    return ""


def _two(values: Float64s, term: Float64s, other: Float64s, limit: float) -> tuple[float, float] | None:
    """Return the coefficients of two terms whose sum the values are; None where they are not."""
    matrix = np.stack([term.ravel(), other.ravel()], axis=1)
    found = np.linalg.lstsq(matrix, values.ravel(), rcond=None)[0]
    pair = tuple(float(round(c)) if abs(c - round(c)) <= 1e-9 else float(c) for c in found)
    return (pair[0], pair[1]) if fits(pair[0] * term + pair[1] * other, values, limit) else None


def _times(count: float) -> str:
    words: Mapping[float, str] = {0.0: "not at all", 1.0: "once", 2.0: "twice"}
    return words.get(count, f"{count:.9g} times")


def distinct_terms(terms: Terms) -> list[tuple[str, Float64s]]:
    """Return the first of those that are equal, 12 at most: others are far from the parting."""
    found: list[tuple[str, Float64s]] = []
    for name, values in terms:
        if len(found) < 12 and not any(np.array_equal(values, one) for _, one in found):
            found.append((name, values))
    return found


def layout_cause(terms: Terms, first: Float64s, second: Float64s) -> str:
    """Return in which order of axes each model lays out the same values; empty where that is not known.

    Whatever both add to it falls out of the difference, such as an embedding of positions.

    Args:
        terms: What agrees in both before it, [batch, places..., channels].
        first: What one model made of it, of as many elements.
        second: What the other made of it.
    """
    limit = tolerance(first, second)
    difference = first - second
    for (name, values), between in itertools.product(distinct_terms(terms), BETWEEN):
        if not 3 <= values.ndim <= 4 or values.shape[0] != first.shape[0] or values.size > LARGEST:
            continue
        made = ACTIVATIONS[between](values)
        orders = [(0, *order) for order in itertools.permutations(range(1, values.ndim))]
        if values.size == first.size:
            laid = {order: made.transpose(order).reshape(first.shape) for order in orders}
        else:
            laid = _with_places(made, orders, first)
        found = [(a, b) for a, b in itertools.permutations(laid, 2) if fits(laid[a] - laid[b], difference, limit)]
        if len(found) == 1:
            here, there = (", ".join(map(str, order)) for order in found[0])
            return f"layout: {name} {list(values.shape)} in the order of axes {here} here, {there} there"
    if first.ndim >= 2 and first.shape[0] and first[0].size > 2:
        if exchanged := _exchanged(first, second, limit):
            return f"layout: numbers of the last axis lie in another order: {exchanged}"
        rows = [np.sort(one.reshape(one.shape[0], -1), axis=-1) for one in (first, second)]
        if fits(rows[0], rows[1], limit):
            return "layout: the same values in another order"
    return ""


def _with_places(
    made: Float64s, orders: Sequence[tuple[int, ...]], like: Float64s
) -> dict[tuple[int, ...], Float64s]:
    """Return values in each order of axes, with places of zeros before them, as of a class token; or none."""
    batch, width = like.shape[0], like.shape[-1]
    more = like.size - made.size
    if like.ndim != 3 or made.shape[-1] != width or more <= 0 or more % (batch * width):
        return {}
    zeros = np.zeros((batch, more // batch // width, width))
    return {order: np.concatenate((zeros, made.transpose(order).reshape(batch, -1, width)), 1) for order in orders}


def _exchanged(first: Float64s, second: Float64s, limit: float) -> str:
    """Return which columns of the last axis of one are which of the other, where all of them are one each."""
    here, there = (one.reshape(-1, one.shape[-1]) for one in (first, second))
    if here.shape[0] < 2 or not 2 <= here.shape[1] <= MOST_COLUMNS:
        return ""
    equal = np.abs(here[:, :, None] - there[:, None, :]).max(0) <= limit
    if not (equal.sum(0) == 1).all() or not (equal.sum(1) == 1).all():
        return ""
    order = np.argmax(equal, 1)
    moved = [at for at in range(len(order)) if order[at] != at]
    shown = ", ".join(f"{at} here is {order[at]} there" for at in moved[:4])
    return shown + (f" and {len(moved) - 4} more" if len(moved) > 4 else "")


def activation_order_cause(terms: Terms, first: Float64s, second: Float64s) -> str:
    """Return that one model takes an activation of a sum, and the other of one of its terms; empty where not.

    Args:
        terms: What agrees in both before it.
        first: Values of one model.
        second: Values of the other, of the same shape.
    """
    limit = tolerance(first, second)
    same = distinct_terms([(name, values) for name, values in terms if values.shape == first.shape])
    for between in BETWEEN[1:]:
        act = ACTIVATIONS[between]
        for (x, a), (y, b) in itertools.permutations(same, 2):
            ways = {
                f"{between} of the sum of {x} and {y}": act(a + b),
                f"the sum of {y} and {between} of {x}": act(a) + b,
                f"the sum of both, without {between}": a + b,
            }
            here, there = ([word for word, made in ways.items() if fits(made, one, limit)] for one in (first, second))
            if len(here) == len(there) == 1 and here != there:
                return f"residual: {here[0]} here, {there[0]} there"
    return ""

"""Likely causes that a module shows: one that is left out in one model, and an embedding of numbers by angles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.checks.models.fitting import Float64s, fits, tolerance
from parity.checks.models.modules import comparable
from parity.contract import ModuleCall

__all__ = ["angle_cause", "left_out_cause"]

FEWEST_ROWS = 2
"""Rows from which two columns that are equal are one: of a single number many are."""

MOST_COMPARED = 2**22
"""Numbers above which columns are not compared with each other."""

MOST_COLUMNS = 16
"""Columns whose order is told one by one."""


def left_out_cause(
    calls: tuple[Sequence[ModuleCall], Sequence[ModuleCall]], paths: tuple[str, str], first: Float64s,
    second: Float64s,
) -> str:  # fmt: skip
    """Return the module that one model does not call, told by values: the other is given what it is given.

    Args:
        calls: All calls of both models.
        paths: Modules whose inputs part.
        first: Input of the one.
        second: Input of the other.
    """
    limit = tolerance(first, second)
    sides = ((calls[0], first, second, "here", "there"), (calls[1], second, first, "there", "here"))
    for made, mine, other, side, far in sides:
        for call in reversed(made):
            if not call.inputs or not call.outputs or not call.path:
                continue
            whole = comparable([call.outputs[0]], [mine])
            without = comparable([call.inputs[0]], [other])
            if whole is None or without is None or not fits(*whole, limit) or not fits(*without, limit):
                continue
            named = paths[0] if side == "here" else paths[1]
            return (
                f"left out {far}: {call.path} ({call.kind}); {named} is given {far} what goes into that module {side}"
            )
    return ""


def angle_cause(paths: tuple[str, str], first: Float64s, second: Float64s) -> str:
    """Return that two inputs of modules part in sines and cosines alone, told by squares, or in the order of columns.

    Args:
        paths: Modules whose inputs or outputs part.
        first: Values of one, float64[..., n].
        second: Values of the other.
    """
    if first.shape != second.shape or first.ndim < 2 or first.shape[-1] < 4:
        return ""
    here, there = (one.reshape(-1, one.shape[-1]) for one in (first, second))
    limit = tolerance(first, second)
    parted = np.flatnonzero(np.abs(here - there).max(0) > limit)
    at, end = int(parted[0]), int(parted[-1]) + 1
    if order := _exchanged(here, there, limit):
        same = "are the same in another order" + (", the two halves exchanged" if order == "halves" else f": {order}")
        return f"columns {at} to {end - 1} of what goes into {paths[0]} and {paths[1]} {same}"
    # a period may agree in both, as the shortest does: the columns that part need not be all of them
    for start, stop in [(s, e) for s in range(at + 1) for e in range(end, first.shape[-1] + 1)]:
        half, odd = divmod(stop - start, 2)
        if odd or half < 2:
            continue
        for words, pairs in (
            ("halves", (slice(start, start + half), slice(start + half, stop))),
            ("neighbours", (slice(start, stop, 2), slice(start + 1, stop, 2))),
        ):
            sums = [one[:, pairs[0]] ** 2 + one[:, pairs[1]] ** 2 for one in (here, there)]
            if all(np.abs(one - 1.0).max() <= 1e-12 for one in sums):
                sides = [(one[:, pairs[0]], one[:, pairs[1]]) for one in (here, there)]
                return (
                    f"angles: sines and cosines ({words}) in columns {start} to {stop - 1} of what goes into "
                    f"{paths[0]} and {paths[1]} are of {_other_angles(*sides)}"
                )
    return ""


def _other_angles(here: tuple[Float64s, Float64s], there: tuple[Float64s, Float64s]) -> str:
    """Return how angles differ, read off their sines and cosines where they are less than half a turn.

    Args:
        here: Two halves of columns of one, float64[rows, angles], which is which is not known.
        there: Those of the other.
    """
    for order in (1, -1):  # sines first, or cosines
        mine, other = (np.arctan2(*one[::order]) for one in (here, there))
        rows = (np.abs(mine) > 1e-6).all(1)
        if rows.sum() < FEWEST_ROWS:
            continue
        with np.errstate(all="ignore"):
            ratios = other[rows] / mine[rows]
        # an angle of more than half a turn is read as another: its ratio is another in each row
        one_ratio = np.ptp(ratios, axis=0) <= 1e-7 * np.abs(ratios).max(0)
        known = ratios[0][one_ratio]
        if len(known) < 2:
            continue
        if np.ptp(known) <= 1e-7 * np.abs(known).max():
            return f"angles that are {_factor(float(known[0]))} times as large there"
        said = (
            "other periods" if len(known) < len(one_ratio) or ratios[0][0] != 1.0 else "other periods but the first"
        )
        return f"{said}: from {known[0]:.6g} to {known[-1]:.6g} times the angle there"
    return "other angles (periods, place or time)"


def _factor(value: float) -> str:
    names = {2 * np.pi: "2 pi", 1 / (2 * np.pi): "1 / (2 pi)", np.pi: "pi", 1 / np.pi: "1 / pi"}
    named = next((f" ({name})" for one, name in names.items() if abs(value - one) <= 1e-6 * one), "")
    return f"{value:.6g}{named}"


def _exchanged(here: Float64s, there: Float64s, limit: float) -> str:
    """Return how columns of one lie in the other, where each is one of them; empty where one is not, or is two."""
    if len(here) < FEWEST_ROWS or here.size * here.shape[1] > MOST_COMPARED:
        return ""
    same = np.abs(here[:, :, None] - there[:, None, :]).max(0) <= limit
    if not ((same.sum(0) == 1).all() and (same.sum(1) == 1).all()):
        return ""
    order = same.argmax(1)
    half, odd = divmod(len(order), 2)
    if not odd and np.array_equal(order, np.roll(np.arange(len(order)), half)):
        return "halves"
    return f"{order.tolist()} there" if len(order) <= MOST_COLUMNS else "each column is one of the other's"

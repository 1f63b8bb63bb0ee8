"""Why two batches differ: what makes every number of the port's from the trainer's, or from another batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.batch_sizes import numbers_of_many, of_one_distribution
from parity.checks.proving.sources import PortSource, batch_of
from parity.contract import StepBatch

__all__ = ["batch_cause", "same_array"]

FIT = 1e-5
"""How far numbers may be from what a scale and a shift give, relative to the largest: batches are often float32."""

MOST_INDICES = 16
"""Indices of an axis above which none is fitted by itself."""

RELATED = 0.5
"""Correlation from which numbers are taken for the trainer's, changed: draws of 30 others stay below 0.5."""


def same_array(a: Any, b: Any) -> bool:
    """Return whether two arrays hold the same numbers, of whichever type."""
    return bool(np.shape(a) == np.shape(b) and np.array_equal(np.asarray(a), np.asarray(b)))


def batch_cause(
    sources: tuple[PortSource, PortSource], step: int, key: str, one: StepBatch, two: StepBatch, steps: int
) -> str:
    """Return why an array of a batch differs; empty where nothing that is known makes it.

    Args:
        sources: The trainer and its port.
        step: Of the batch.
        key: Name of the array, of one shape on both sides.
        one: The trainer's batch.
        two: The port's.
        steps: Batches of the trainer among which the port's is looked for.
    """
    first, a, b = sources[0], np.asarray(one[key]), np.asarray(two[key])
    others = [name for name in one if name != key and same_array(one[name], two[name])]
    held = {other: batch_of(first, other) for other in range(max(steps, 4)) if other != step}
    for other, batch in held.items():
        if same_array(batch[key], b) and a.size > 1:
            whole = all(same_array(batch[name], two[name]) for name in two)
            of = "" if whole or not others else f" of {key}"
            return f"batch order: the port reads at step {step} what the trainer reads at step {other}{of}"
    if cause := _changed(key, a, b):
        return cause
    if a.ndim and a.dtype.kind in "iu" and not others:
        rows = np.concatenate([np.asarray(batch[key]).reshape(len(a), -1) for batch in (one, *held.values())])
        seen = {row.astype(b.dtype).tobytes() for row in rows}
        if {row.tobytes() for row in b.reshape(len(b), -1)} <= seen:
            return (
                f"batch order: the rows of {key} are those of the trainer's other batches (shuffled by another order)"
            )
    if not others:
        return "batch order: the batches hold other samples"
    if a.dtype.kind != "f" or a.size < 2:
        return ""
    x, y = numbers_of_many(*sources, key, steps)
    related = float(np.corrcoef(x, y)[0, 1]) if x.size > 1 and np.ptp(x) and np.ptp(y) else 0.0
    if abs(related) >= RELATED:
        return f"values of {key}: the port's follow the trainer's (correlation {related:.3g}): changed in another way"
    alike = of_one_distribution(x, y)
    how = "in another order or by another generator" if alike else "from another distribution"
    return (
        f"random numbers of the step: {key} is drawn {how} "
        f"(mean {a.mean():.3g} and {b.mean():.3g}, spread {a.std():.3g} and {b.std():.3g})"
    )


def _changed(key: str, a: NDArray[Any], b: NDArray[Any]) -> str:
    """Return what takes every number of the trainer's to the port's."""
    if b.size > 1 and np.ptp(b) == 0 and np.ptp(a) != 0:
        return f"values of {key}: the port's are {b.ravel()[0]:.6g} everywhere"
    x, y = a.astype(np.float64), b.astype(np.float64)
    if a.dtype.kind in "iu":
        apart = np.unique(y - x)
        if len(apart) == 1 and a.size > 2:
            return f"values of {key}: the port's are {apart[0]:+.0f} more than the trainer's"
        classes = float(max(x.max(initial=0.0), y.max(initial=0.0))) + 1.0
        if len(apart) == 2 and apart[1] - apart[0] == classes and np.ptp(x) > 1:
            shift = min(apart, key=abs)
            return f"values of {key}: the port's are {shift:+.0f} more than the trainer's, modulo {classes:.0f}"
    elif a.size > 2 and (line := _line(x, y)):
        more = f", and {line[1]:.4g} more" if abs(line[1]) > FIT * float(np.abs(y).max()) else ""
        return f"scale of {key}: the port reads {line[0]:.6g} times the trainer's{more}"
    if a.ndim and np.array_equal(np.sort(a, axis=None), np.sort(b, axis=None)):
        for axis in range(a.ndim):
            if order := _order(a, b, axis):
                which = "rows" if axis == 0 else f"axis {axis}"
                return f"order of {key}: the port has its {which} in another order{order}"
        rows = [np.sort(one.reshape(len(one), -1), axis=0) for one in (a, b)]
        how = "its rows" if np.array_equal(rows[0], rows[1]) else "its numbers"
        return f"order of {key}: the port has the same numbers, {how} in another order"
    return _by_axis(key, x, y) or _clipped(key, x, y) if a.dtype.kind == "f" else ""


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return scale and shift that take one to the other; None where none do."""
    x, y = x.ravel(), y.ravel()
    if x.size < 3 or not np.ptp(x) or not np.ptp(y) or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    factor, shift = np.polyfit(x, y, 1)
    close = float(np.abs(factor * x + shift - y).max()) <= FIT * float(np.abs(y).max())
    return (float(factor), float(shift)) if close else None


def _order(a: NDArray[Any], b: NDArray[Any], axis: int) -> str:
    """Return in which order the port has the indices of an axis; empty where that does not make it."""
    here, there = (np.moveaxis(one, axis, 0).reshape(one.shape[axis], -1) for one in (a, b))
    places = {row.tobytes(): at for at, row in enumerate(here)}
    order = [places.get(row.tobytes(), -1) for row in there.astype(here.dtype)]
    if sorted(order) != list(range(len(here))):
        return ""
    return f": {order}" if len(order) <= MOST_INDICES else ""


def _by_axis(key: str, x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    """Return that each index of an axis has a scale and a shift of its own, as channels do that are normalized."""
    for axis in range(1, x.ndim):
        here, there = (np.moveaxis(one, axis, 0) for one in (x, y))
        if not 2 <= len(here) <= MOST_INDICES or here[0].size < 4:
            continue
        found = []
        for at, target in enumerate(there):
            order = sorted(range(len(here)), key=lambda other, at=at: other != at)  # type: ignore[misc]
            found.append(next(((other, line) for other in order if (line := _line(here[other], target))), None))
        if any(one is None for one in found):
            continue
        fits = [one for one in found if one is not None]
        order = [one[0] for one in fits]
        if sorted(order) != list(range(len(here))):
            continue
        moved = f" in the order {order}," if order != list(range(len(here))) else ""
        shown = ", ".join(f"{line[0]:.4g} times and {line[1]:.4g} more" for _, line in fits[:3])
        return f"scale of {key}: along axis {axis} the port has{moved} of each index another scale and shift: {shown}"
    return ""


def _clipped(key: str, x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    """Return that one side is the other, clipped."""
    for who, whole, cut in (("the port", x, y), ("the trainer", y, x)):
        low, high = float(cut.min()), float(cut.max())
        at = (cut == low) | (cut == high)
        if int(at.sum()) > 2 and np.allclose(np.clip(whole, low, high), cut, rtol=FIT, atol=0.0):
            return f"range of {key}: {who} clips it to {low:.6g} to {high:.6g}"
    return ""

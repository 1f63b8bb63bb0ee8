"""The batches of a trainer and its port: the same numbers at each step, or what is in another order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from parity.checks.proving.sources import PortSource, batch_of
from parity.checks.proving.verdict import PortStage
from parity.mapping import permutation_of

__all__ = ["compare_batches"]

Batch = Mapping[str, Any]


def compare_batches(first: PortSource, second: PortSource, steps: int) -> PortStage:
    """Return whether both read the same batches, bit for bit.

    Args:
        first: The trainer.
        second: Its port.
        steps: Batches that are compared, from step 0 on.

    Raises:
        SpecError: The user's function fails, or gives something else than arrays by name.

    Numerics: elements are compared as numbers, so that int32 and int64 agree; an array may have its axes in another
    order, as images have.
    """
    turned: dict[str, str] = {}
    for step in range(steps):
        one, two = batch_of(first, step), batch_of(second, step)
        again = batch_of(first, step), batch_of(second, step)
        for source, (made, other) in ((first, (one, again[0])), (second, (two, again[1]))):
            drawn = [key for key in made if not _same(made[key], other.get(key))]
            if drawn:
                said = f"{source.name} gives another {drawn[0]!r} for step {step} when it is asked again"
                return PortStage("batches", "inconclusive", f"{said}: draw it from a generator seeded by the step")
        if set(one) != set(two):
            alone = sorted(set(one) ^ set(two))
            return PortStage("batches", "broken", f"{alone[0]!r} is in the batch of one and not of the other",
                             f"the batches have other names: {sorted(one)} here, {sorted(two)} there")  # fmt: skip
        for key in one:
            if _same(one[key], two[key]):
                continue
            axes = permutation_of(np.asarray(one[key]), np.asarray(two[key]))
            if not axes:
                return _parted(first, second, step, key, one, two, steps)
            turned[key] = f"{key} has its axes in the order {list(axes)} there"
    said = f"{steps} steps, {len(one)} arrays each, bit for bit"
    return PortStage("batches", "holds", said, lines=tuple(turned.values()))


def _same(a: Any, b: Any) -> bool:
    return bool(np.shape(a) == np.shape(b) and np.array_equal(np.asarray(a), np.asarray(b)))


def _parted(
    first: PortSource, second: PortSource, step: int, key: str, one: Batch, two: Batch, steps: int
) -> PortStage:
    """Return what parts, and where else the values of one are in the other."""
    a, b = np.asarray(one[key]), np.asarray(two[key])
    others = [name for name in one if _same(one[name], two[name])]
    beside = f", while {', '.join(others)} agree" if others else ""
    if a.shape != b.shape:
        said = f"{key!r} of step {step} is {list(a.shape)} here and {list(b.shape)} there"
        return PortStage("batches", "broken", said, f"batches of another shape: {key}")
    at = tuple(int(i) for i in np.argwhere(a != b)[0])
    said = f"{key!r} of step {step} is {a[at]!s} here and {b[at]!s} there at {list(at)}{beside}"
    return PortStage("batches", "broken", said, _cause(first, second, step, key, (a, b), steps, bool(others)))


def _cause(first: PortSource, second: PortSource, step: int, key: str, both: tuple[Any, Any], steps: int,
           beside: bool) -> str:  # fmt: skip
    a, b = both
    for other in range(max(steps, 4)):
        if other != step and _same(batch_of(first, other)[key], b):
            return f"batch order: the port reads at step {step} what the trainer reads at step {other}"
    if a.dtype.kind == "f" and a.size > 2 and float(np.ptp(a)) > 0.0:
        x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
        factor, shift = np.polyfit(x, y, 1)
        if float(np.abs(factor * x + shift - y).max()) <= 1e-5 * float(np.abs(y).max(initial=0.0)):
            more = f", and {shift:.4g} more" if abs(shift) > 1e-9 * float(np.abs(y).max(initial=0.0)) else ""
            return f"scale of {key}: the port reads {factor:.6g} times the trainer's{more}"
    rows = [np.sort(x.reshape(x.shape[0], -1), axis=0) if x.ndim else x for x in both]
    if a.ndim and np.array_equal(np.sort(a, axis=None), np.sort(b, axis=None)):
        how = "its rows" if np.array_equal(rows[0], rows[1]) else "its numbers"
        return f"order of {key}: the port has the same numbers, {how} in another order"
    seen = np.concatenate([np.asarray(batch_of(first, s)[key]).reshape(a.shape[0] if a.ndim else 1, -1)
                           for s in range(max(steps, 4))])  # fmt: skip
    if (
        a.ndim
        and a.dtype.kind in "iu"
        and {r.tobytes() for r in b.reshape(b.shape[0], -1)} <= {r.astype(b.dtype).tobytes() for r in seen}
    ):
        return f"batch order: the rows of {key} are those of the trainer's other batches (shuffled by another order)"
    if a.dtype.kind == "f" and beside:
        return (
            f"random numbers of the step: {key} is drawn in another order or by another generator "
            f"(mean {a.mean():.3g} and {b.mean():.3g}, spread {a.std():.3g} and {b.std():.3g})"
        )
    return "batch order: the batches hold other samples"

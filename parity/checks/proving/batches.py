"""The batches of a trainer and its port: the same numbers at each step, or what is in another order."""

from __future__ import annotations

import numpy as np

from parity.checks.proving.batch_causes import batch_cause, same_array
from parity.checks.proving.batch_sizes import size_cause
from parity.checks.proving.draw_orders import draw_order_cause
from parity.checks.proving.sources import PortSource, batch_of
from parity.checks.proving.verdict import PortStage
from parity.contract import StepBatch
from parity.mapping import permutation_of

__all__ = ["compare_batches"]


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
            drawn = [key for key in made if not same_array(made[key], other.get(key))]
            if drawn:
                said = f"{source.name} gives another {drawn[0]!r} for step {step} when it is asked again"
                return PortStage("batches", "inconclusive", f"{said}: draw it from a generator seeded by the step")
        if set(one) != set(two):
            alone = sorted(set(one) ^ set(two))
            return PortStage("batches", "broken", f"{alone[0]!r} is in the batch of one and not of the other",
                             f"the batches have other names: {sorted(one)} here, {sorted(two)} there")  # fmt: skip
        for key in one:
            if same_array(one[key], two[key]):
                continue
            axes = permutation_of(np.asarray(one[key]), np.asarray(two[key]))
            if not axes:
                return _parted(first, second, step, key, one, two, steps)
            turned[key] = f"{key} has its axes in the order {list(axes)} there"
    said = f"{steps} steps, {len(one)} arrays each, bit for bit"
    return PortStage("batches", "holds", said, lines=tuple(turned.values()))


def _parted(
    first: PortSource, second: PortSource, step: int, key: str, one: StepBatch, two: StepBatch, steps: int
) -> PortStage:
    """Return what parts, and where else the values of one are in the other."""
    a, b = np.asarray(one[key]), np.asarray(two[key])
    others = [name for name in one if same_array(one[name], two[name])]
    beside = f", while {', '.join(others)} agree" if others else ""
    if a.shape != b.shape:
        said = f"{key!r} of step {step} is {list(a.shape)} here and {list(b.shape)} there"
        return PortStage("batches", "broken", said, size_cause(first, second, step, key, one, two))
    at = tuple(int(i) for i in np.argwhere(a != b)[0])
    said = f"{key!r} of step {step} is {a[at]!s} here and {b[at]!s} there at {list(at)}{beside}"
    cause = draw_order_cause(first, second, step, one, two) or batch_cause(
        (first, second), step, key, one, two, steps
    )
    return PortStage("batches", "broken", said, cause)

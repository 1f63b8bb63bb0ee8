"""Bars that depend on how long a step takes, and the check that arms do the same work at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["CONVERSION_MIB", "INSPECT_SECONDS", "assert_same_losses", "slowdown_allowed", "speedup_wanted"]

SMALL_STEP = 1e-3
"""Seconds of a bare step below which a twin's cost is judged per step, not in proportion."""

OVERHEAD = 10e-6
"""Seconds that a twin may then add to a step."""

CONVERSION_MIB = 512
"""Anonymous memory that a conversion may take, whatever the size of the state."""

INSPECT_SECONDS = 5.0
"""Seconds that `parity inspect` may take for 100,000 tensors, whatever the format."""

WANTED = ((10e-6, 10.0), (20e-6, 3.0), (200e-6, 1.1))
"""Seconds of a scanned step, and how many times faster than a loop it should be."""


def slowdown_allowed(bare_step: float, proportion: float) -> float:
    """Return the largest time of a twin over that of the bare loop.

    Args:
        bare_step: Seconds of a bare step.
        proportion: What is allowed from a millisecond on.

    Example:
        >>> slowdown_allowed(2e-3, 1.02), round(slowdown_allowed(1e-4, 1.02), 3)
        (1.02, 1.1)
    """
    return proportion if bare_step >= SMALL_STEP else 1 + OVERHEAD / bare_step


def speedup_wanted(scanned_step: float) -> float:
    """Return what a scan must gain over a loop, by the seconds of its step: dispatch weighs less in a long one.

    Between the given times the bar falls as a power of the time, beyond the last a scan must only not lose.

    Example:
        >>> [round(speedup_wanted(us * 1e-6), 2) for us in (5, 20, 50, 200, 500)]
        [10.0, 3.0, 2.01, 1.1, 0.97]
    """
    if scanned_step > WANTED[-1][0]:
        return 0.97
    times, factors = zip(*WANTED, strict=True)
    return float(np.exp(np.interp(np.log(scanned_step), np.log(times), np.log(factors))))


def assert_same_losses(curves: Mapping[str, Any], steps: int) -> None:
    """Fail unless all give the same losses bit for bit: a faster way to other numbers is no way.

    Args:
        curves: Name to the losses of a run; the first is what the others are compared with.
        steps: How many there must be.
    """
    (first, expected), *others = [(name, np.asarray(curve, np.float32)) for name, curve in curves.items()]
    assert len(expected) == steps, f"{first} took {len(expected)} steps of {steps}"
    for name, curve in others:
        assert len(curve) == steps, f"{name} took {len(curve)} steps of {steps}"
        differ = np.flatnonzero(curve.view(np.int32) != expected.view(np.int32))
        assert not len(differ), f"{name} parts from {first} at step {differ[0] + 1}"

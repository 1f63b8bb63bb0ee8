"""Perturbed starts: every parameter moved by one unit in the last place, to measure rounding noise."""

from __future__ import annotations

import numpy as np

from parity import threefry
from parity.checks import one_ulp_away
from parity.spec import Precision
from parity.state import TrainingState

__all__ = ["perturbed"]

STREAM = 0x0001F


def perturbed(state: TrainingState, seed: int, precision: Precision) -> TrainingState:
    """Return a state whose every parameter moved by one ulp of the *compute* precision, up or down at random.

    Args:
        state: A state at step 0.
        seed: Draws the signs.
        precision: The run's precision.
    """
    arrays = dict(state.arrays)
    root = threefry.fold_in(threefry.key(seed), STREAM)
    names = sorted(name for name in arrays if name.startswith("model.params."))
    for number, name in enumerate(names):
        values = arrays[name]
        draws = threefry.bits(threefry.fold_in(root, number), values.size).reshape(values.shape)
        arrays[name] = one_ulp_away(values, (draws & np.uint32(1)) > 0, precision)
    return TrainingState(arrays=arrays, scalars=state.scalars)

"""Perturbed starts: every parameter moved by one unit in the last place, to measure rounding noise."""

from __future__ import annotations

import numpy as np

from parity import threefry
from parity.checks import ulp
from parity.spec import Precision
from parity.state import TrainingState

__all__ = ["perturbed"]

STREAM = 0x0001F


def perturbed(state: TrainingState, seed: int, precision: Precision) -> TrainingState:
    """Return a state whose every parameter moved by one ulp of the *compute* precision, up or down at random.

    Float32 ulps would vanish in a bfloat16 cast, so the ulp is that of the type the products are computed in.

    Args:
        state: A state at step 0.
        seed: Draws the signs.
        precision: The run's precision.
    """
    arrays = dict(state.arrays)
    root = threefry.fold_in(threefry.key(seed), STREAM)
    names = sorted(name for name in arrays if name.startswith("model.params."))
    for number, name in enumerate(names):
        values = arrays[name].astype(np.float64)
        draws = threefry.bits(threefry.fold_in(root, number), values.size).reshape(values.shape)
        signs = np.where(draws & np.uint32(1), 1.0, -1.0)
        size = np.where(values == 0.0, 0.5, values)  # biases of norms start at 0 and are added to values of size 1
        arrays[name] = (values + signs * ulp(size, precision)).astype(arrays[name].dtype)
    return TrainingState(arrays=arrays, scalars=state.scalars)

"""A perturbed start moves every parameter by one unit in the last place, and nothing else."""

import numpy as np
import pytest

from parity.checks.noise import ulp
from parity.reference.across import perturbed
from parity.spec import PRECISIONS, Precision
from parity.state import TrainingState

WEIGHTS = np.concatenate([np.linspace(-3.0, 3.0, 200, dtype=np.float32), np.zeros(8, np.float32)]).reshape(13, 16)
START = TrainingState(
    arrays={
        "model.params.weight": WEIGHTS,
        "model.params.bias": np.array([1.0, -2.0]),
        "model.buffers.mean": np.ones(3, np.float32),
        "optimizer.first_moment.weight": np.zeros((13, 16), np.float32),
    },
    scalars={"counters.step": 0},
)


def steps_moved(precision: Precision, seed: int = 1, name: str = "model.params.weight") -> np.ndarray:
    """Return by how many units in the last place each value moved; a zero moves as 0.5 does."""
    before = START.arrays[name].astype(np.float64)
    after = perturbed(START, seed, precision).arrays[name].astype(np.float64)
    return (after - before) / ulp(np.where(before == 0.0, 0.5, before), precision)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_every_parameter_moves_by_exactly_one_unit_up_or_down(precision: Precision) -> None:
    moved = steps_moved(precision)
    assert set(np.unique(np.abs(moved))) == {1.0}
    assert 0.3 < np.mean(moved > 0) < 0.7


def test_a_float64_parameter_moves_by_a_float64_unit() -> None:
    assert np.abs(steps_moved("float64", name="model.params.bias")).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_nothing_but_parameters_moves_and_types_stay(precision: Precision) -> None:
    state = perturbed(START, 1, precision)
    assert state.scalars == START.scalars
    assert {name: array.dtype for name, array in state.arrays.items()} == {
        name: array.dtype for name, array in START.arrays.items()
    }
    for name in ("model.buffers.mean", "optimizer.first_moment.weight"):
        assert np.array_equal(state.arrays[name], START.arrays[name])


def test_a_seed_decides_the_signs_and_the_start_stays_as_it_was() -> None:
    before = WEIGHTS.copy()
    assert np.array_equal(steps_moved("float32"), steps_moved("float32"))
    assert not np.array_equal(steps_moved("float32"), steps_moved("float32", seed=2))
    assert np.array_equal(before, WEIGHTS)


def test_two_arrays_of_one_shape_move_differently() -> None:
    twice = TrainingState(arrays={"model.params.a": WEIGHTS, "model.params.b": WEIGHTS}, scalars={})
    state = perturbed(twice, 1, "float32")
    assert not np.array_equal(state.arrays["model.params.a"], state.arrays["model.params.b"])

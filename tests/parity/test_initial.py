"""One start for both sides: PyTorch's distributions, float32, every parameter from its own draws."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import jax_side
import torch_side
from parity.spec import PRECISIONS, CnnSpec, GptSpec, MlpSpec, ModelSpec, Precision
from parity.state import compare_states
from parity.twins import initial_buffers, initial_params, param_shapes
from tests.support.small import NAMES, small

MODELS: dict[str, ModelSpec] = {
    "mlp": MlpSpec(),
    "cnn": CnnSpec(),
    "gpt": GptSpec(),
    "gpt-tied": GptSpec(tied=True, embedding_std=0.02),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_values_are_float32_of_the_listed_shapes(model: ModelSpec) -> None:
    params = initial_params(model, 0)
    assert {name: value.shape for name, value in params.items()} == param_shapes(model)
    assert {value.dtype for value in params.values()} == {np.dtype(np.float32)}
    assert all(np.isfinite(value).all() for value in params.values())


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_linear_and_convolution_are_uniform_within_one_over_root_fan_in(model: ModelSpec) -> None:
    params = initial_params(model, 1)
    for name, value in params.items():
        module, _, _ = name.rpartition(".")
        if "norm" in module or module in ("tokens", "positions"):
            continue
        bound = 1 / math.sqrt(math.prod(params[f"{module}.weight"].shape[1:]))
        assert np.abs(value).max() <= np.float32(bound), name
        if value.size > 2000:  # mean 0 and standard deviation bound / sqrt(3), within five standard errors
            assert np.abs(value).max() > 0.99 * bound, name
            assert abs(value.mean()) < 5 * bound / math.sqrt(3 * value.size), name
            assert value.std() == pytest.approx(bound / math.sqrt(3), rel=5 / math.sqrt(value.size)), name


def test_bounds_are_those_of_torch_layers() -> None:
    """torch.nn.Linear and Conv2d start uniform in +-1/sqrt(fan_in), weights and biases alike."""
    torch.manual_seed(0)
    for layer, fan_in in ((torch.nn.Linear(100, 400), 100), (torch.nn.Conv2d(4, 400, 3), 36)):
        bound = 1 / math.sqrt(fan_in)
        for value in (layer.weight, layer.bias):
            assert value is not None
            assert 0.97 * bound < float(value.detach().abs().max()) <= bound * (1 + 1e-6)


@pytest.mark.parametrize("std", [1.0, 0.02])
def test_embeddings_are_normal_with_the_named_standard_deviation(std: float) -> None:
    table = initial_params(GptSpec(embedding_std=std), 2)["tokens.weight"].astype(np.float64).ravel()
    error = 1 / math.sqrt(table.size)
    assert abs(table.mean()) < 5 * std * error
    assert table.std() == pytest.approx(std, rel=5 * error)
    inside = np.mean(np.abs(table) < std)
    assert inside == pytest.approx(0.6827, abs=5 * error)
    assert np.mean(table**4) == pytest.approx(3 * std**4, rel=50 * error)


def test_norms_start_at_one_and_zero() -> None:
    for model in (CnnSpec(), GptSpec()):
        for name, value in initial_params(model, 3).items():
            if "norm" in name:
                np.testing.assert_array_equal(value, 1.0 if name.endswith("weight") else 0.0)


def test_buffers_are_those_of_torch_batch_norm() -> None:
    expected = torch.nn.BatchNorm2d(8).state_dict()
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        ours = initial_buffers(CnnSpec())[f"norms.0.{name}"]
        np.testing.assert_array_equal(ours, expected[name].numpy(), strict=True)
    assert initial_buffers(MlpSpec()) == initial_buffers(GptSpec()) == {}


@pytest.mark.parametrize(
    ("fewer", "more"),
    [
        (GptSpec(layers=1), GptSpec(layers=3)),
        (GptSpec(tied=True), GptSpec(tied=False)),
        (MlpSpec(hidden=(64, 64)), MlpSpec(hidden=(64, 64, 64))),
    ],
)
def test_another_layer_changes_no_other(fewer: ModelSpec, more: ModelSpec) -> None:
    a, b = initial_params(fewer, 5), initial_params(more, 5)
    same = [name for name in a if name in b and a[name].shape == b[name].shape]
    assert len(same) >= len(a) - 2
    for name in same:
        np.testing.assert_array_equal(a[name], b[name])


def test_every_parameter_and_every_seed_has_its_own_draws() -> None:
    drawn = [
        value.ravel()[:16].tobytes()
        for seed in (0, 1)
        for name, value in initial_params(GptSpec(), seed).items()
        if "norm" not in name
    ]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.takes_seconds("mlp-digits-float64", "mlp-digits-float32", "gpt-text-float64", "gpt-text-float32")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_both_sides_start_from_the_same_bits(name: str, precision: Precision) -> None:
    spec = replace(small(name, precision), seed=2**32 - 1)
    ours, theirs = (side.build(spec).export_state() for side in (jax_side, torch_side))
    assert compare_states(ours, theirs) == []
    start = initial_params(spec.model, spec.seed)
    for leaf, value in start.items():
        np.testing.assert_array_equal(ours.arrays[f"model.params.{leaf}"], value)

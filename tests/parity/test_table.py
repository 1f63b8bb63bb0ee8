"""The two-way table takes every leaf, gives it back bit for bit, and refuses what it has no row for."""

import numpy as np
import pytest
from flax import nnx

import jax_side
import torch_side
from parity.errors import StateError
from parity.mapping import Recount
from parity.spec import CnnSpec, GptSpec, MlpSpec, ModelSpec
from parity.twins import Row, from_jax, from_torch, initial_buffers, initial_params, table, to_jax, to_torch
from tests.support.small import small

COUNTER = Recount("int32", "int64")

MODELS: dict[str, ModelSpec] = {
    "mlp": MlpSpec(hidden=(16, 8)),
    "cnn": CnnSpec(channels=(4, 8)),
    "gpt": GptSpec(width=16, heads=2, context=8),
    "gpt-tied": GptSpec(width=16, heads=2, context=8, tied=True),
}
SPECS = {
    "mlp": small("mlp-digits"),
    "cnn": small("cnn-digits"),
    "gpt": small("gpt-text"),
    "gpt-tied": small("gpt-text", "float32", "model.tied=true"),
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def random_leaves(rows: tuple[Row, ...], model: ModelSpec, seed: int) -> dict[str, np.ndarray]:
    """Return a leaf of random bits for every row: NaN payloads, infinities and subnormals among them."""
    generator = np.random.default_rng(seed)
    like = {**initial_params(model, 0), **initial_buffers(model)}
    out = {}
    for row in rows:
        value = np.asarray(like[row.name])
        if row.transforms == (COUNTER,):
            out[row.name] = np.asarray(generator.integers(0, 2**31 - 1), np.int64)
        else:
            raw = generator.integers(0, 256, value.nbytes, dtype=np.uint8)
            out[row.name] = raw.view(value.dtype).reshape(value.shape)
    return out


def assert_same_bits(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert list(a) == list(b)
    for name in a:
        assert (a[name].dtype, a[name].shape) == (b[name].dtype, b[name].shape), name
        assert a[name].tobytes() == b[name].tobytes(), name


@pytest.mark.parametrize("seed", range(3))
@each_model
def test_a_round_trip_through_either_side_keeps_every_bit(model: ModelSpec, seed: int) -> None:
    rows = table(model)
    leaves = random_leaves(rows, model, seed)
    assert_same_bits(from_jax(rows, to_jax(rows, leaves, "m"), "m"), leaves)
    assert_same_bits(from_torch(rows, to_torch(rows, leaves, "m"), "m"), leaves)


@pytest.mark.parametrize("name", SPECS)
def test_the_rows_are_exactly_the_leaves_of_both_models(name: str) -> None:
    spec = SPECS[name]
    rows = table(spec.model)
    torch_model = torch_side.build(spec).model
    assert {row.torch for row in rows} == set(torch_model.state_dict())
    assert {row.torch for row in rows if row.group == "params"} == {n for n, _ in torch_model.named_parameters()}
    state = jax_side.build(spec).state
    for group, tree in (("params", state.params), ("buffers", state.buffers)):
        assert {row.jax for row in rows if row.group == group} == {tuple(p) for p, _ in nnx.to_flat_state(tree)}


@each_model
def test_no_two_rows_share_a_spelling(model: ModelSpec) -> None:
    rows = table(model)
    for spelling in ("name", "jax", "torch"):
        assert len({getattr(row, spelling) for row in rows}) == len(rows)


def test_tying_takes_the_head_out_of_the_table() -> None:
    names = [{row.name for row in table(MODELS[m])} for m in ("gpt", "gpt-tied")]
    assert names[0] - names[1] == {"head.weight"}
    assert names[1] < names[0]


def test_layouts_are_those_of_the_frameworks() -> None:
    """Linear out x in to in x out, convolution OIHW to HWIO, element by element."""
    linear = np.arange(6, dtype=np.float32).reshape(2, 3)
    row = table(MlpSpec())[0]
    assert to_jax((row,), {row.name: linear}, "m")[row.jax].tolist() == [[0, 3], [1, 4], [2, 5]]
    row = table(CnnSpec(channels=(4,)))[0]
    conv = np.arange(4 * 9, dtype=np.float32).reshape(4, 1, 3, 3)
    out = to_jax((row,), {row.name: conv}, "m")[row.jax]
    assert out.shape == (3, 3, 1, 4)
    assert out[2, 1, 0, 3] == conv[3, 0, 2, 1]
    assert out.flags.c_contiguous


@each_model
def test_a_missing_leaf_is_named_by_every_direction(model: ModelSpec) -> None:
    rows = table(model)
    leaves = random_leaves(rows, model, 0)
    first = rows[0].name
    jax_leaves, torch_leaves = to_jax(rows, leaves, "m"), to_torch(rows, leaves, "m")
    del leaves[first], jax_leaves[rows[0].jax], torch_leaves[rows[0].torch]
    message = f"is missing; found {len(rows) - 1} of {len(rows)} leaves"
    for convert in (to_jax, to_torch):
        with pytest.raises(StateError, match=message) as caught:
            convert(rows, leaves, "optimizer.first_moment")
        assert caught.value.leaf == f"optimizer.first_moment.{first}"
    with pytest.raises(StateError, match=message) as caught:
        from_jax(rows, jax_leaves, "model.params")
    assert caught.value.leaf == "model.params." + ".".join(map(str, rows[0].jax))
    with pytest.raises(StateError, match=message) as caught:
        from_torch(rows, torch_leaves, "model.params")
    assert caught.value.leaf == f"model.params.{first}"


@each_model
def test_a_left_over_leaf_is_named_by_every_direction(model: ModelSpec) -> None:
    rows = table(model)
    leaves = {**random_leaves(rows, model, 0), "extra.weight": np.zeros(1)}
    jax_leaves = {**to_jax(rows, random_leaves(rows, model, 0), "m"), ("extra", "kernel"): np.zeros(1)}
    message = "unexpected leaf: this model has no such parameter"
    for convert in (to_jax, to_torch, from_torch):
        with pytest.raises(StateError, match=message) as caught:
            convert(rows, leaves, "model.params")
        assert caught.value.leaf == "model.params.extra.weight"
    with pytest.raises(StateError, match=message) as caught:
        from_jax(rows, jax_leaves, "model.params")
    assert caught.value.leaf == "model.params.extra.kernel"


@pytest.mark.parametrize("value", [np.float32(1.5), np.int64(2**31), np.int64(-(2**31) - 1)])
def test_a_counter_that_int32_cannot_hold_is_refused(value: np.generic) -> None:
    """JAX keeps it in 32 bits; a cast that changes it would be a silent wrong load."""
    row = next(r for r in table(CnnSpec()) if r.transforms == (COUNTER,))
    with pytest.raises(StateError, match=r"model\.buffers\.norms\.0\.num_batches_tracked: "):
        to_jax((row,), {row.name: np.asarray(value)}, "model.buffers")

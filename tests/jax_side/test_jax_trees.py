"""Trees of JAX: modules, a linen TrainState, shardings, 64 bits; what is traced or deleted."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState
from jax.sharding import NamedSharding, PartitionSpec

import jax_side
from parity.errors import CheckpointError
from tests.support.tree_states import same


class Net(nnx.Module):
    """A model with parameters, statistics and streams."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs) for _ in range(2)])
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.tied = self.layers[0]


def test_modules_and_their_optimizer_come_back_as_new_ones(tmp_path: Path) -> None:
    def make() -> dict[str, Any]:
        model = Net(nnx.Rngs(params=0, dropout=1))
        return {"model": model, "optimizer": nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)}

    live = make()
    live["model"].dropout.rngs.count[...] = np.uint32(5)
    live["optimizer"].step[...] = np.uint32(1)
    jax_side.save(tmp_path / "a", live)
    for like in (nnx.eval_shape(make), make()):
        before = jax.tree.leaves(nnx.state(like["model"]))
        found = jax_side.restore(tmp_path / "a", like=like).tree
        assert found["model"].tied is found["model"].layers[0]
        after = jax.tree.leaves(nnx.state(like["model"]))
        assert all(a is b for a, b in zip(before, after, strict=True)), "the template stays as it is"
        for ours, theirs in zip(*(jax.tree.leaves(nnx.state(t["model"])) for t in (live, found)), strict=True):
            assert same(ours, theirs) == []
        assert int(found["optimizer"].step[...]) == 1


def test_a_train_state_of_linen_comes_back(tmp_path: Path) -> None:
    def state(value: float) -> TrainState:
        return TrainState.create(apply_fn=print, params={"w": jnp.full(3, value)}, tx=optax.adam(1e-3))

    live = jax.jit(lambda s: s.apply_gradients(grads={"w": jnp.ones(3)}))(state(1.0))
    jax_side.save(tmp_path / "a", live)
    found = jax_side.restore(tmp_path / "a", like=state(0.0))
    assert (type(found.tree), found.tree.apply_fn, found.tree.step) == (TrainState, print, 1)
    assert dict(found.converted) == {"step": "int32[] to a Python int"}
    assert type(found.tree.opt_state[0]) is type(live.opt_state[0])
    assert same(live.opt_state[0].mu, found.tree.opt_state[0].mu) == []
    raw = jax_side.restore(tmp_path / "a").tree
    assert type(raw["opt_state"][0]) is dict
    assert raw["opt_state"][1] == {}


def test_abstract_leaves_get_the_sharding_that_they_ask_for(tmp_path: Path) -> None:
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    rows = NamedSharding(mesh, PartitionSpec("data", "model"))
    live = {"w": jax.device_put(jnp.arange(32.0).reshape(8, 4), rows), "key": jax.random.key(3), "b": jnp.ones(2)}
    jax_side.save(tmp_path / "a", live)
    columns = NamedSharding(mesh, PartitionSpec(None, "model"))
    like = {
        "w": jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=columns),
        "key": jax.ShapeDtypeStruct((), live["key"].dtype, sharding=NamedSharding(mesh, PartitionSpec())),
        "b": jax.ShapeDtypeStruct((2,), jnp.bfloat16),
    }
    found = jax_side.restore(tmp_path / "a", like=like, cast=True).tree
    assert (found["w"].sharding, found["key"].sharding) == (columns, like["key"].sharding)
    assert same(np.asarray(live["w"]), np.asarray(found["w"])) == []
    assert (found["b"].dtype, found["b"].committed) == (jnp.bfloat16, False)
    for wrong, why in (
        ({**like, "key": jax.random.PRNGKey(0)}, r"key: is PRNG key threefry2x32\[\] in .*, and uint32\[2\]"),
        ({**like, "key": jax.random.key(0, impl="rbg")}, r"key: is PRNG key threefry2x32\[\] .*PRNG key rbg\[\]"),
        ({**like, "new": like["w"]}, r"new: is not in the checkpoint, and the template has only its type"),
    ):
        with pytest.raises(CheckpointError, match=why):
            jax_side.restore(tmp_path / "a", like=wrong, cast=True, allow_missing=True)


def test_64_bits_are_not_cut_silently(tmp_path: Path) -> None:
    jax_side.save(tmp_path / "a", {"x": np.array([1e300])})
    assert jax_side.restore(tmp_path / "a").tree["x"].dtype == np.float64
    with pytest.raises(CheckpointError, match=r"x: is float64\[1\], which JAX holds only with jax_enable_x64"):
        jax_side.restore(tmp_path / "a", like={"x": jax.ShapeDtypeStruct((1,), np.float64)})


def test_nothing_that_is_traced_or_deleted_is_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"x: is traced: nothing is saved or restored inside of"):
        jax.jit(lambda x: jax_side.save(tmp_path / "a", {"x": x}))(1.0)
    x = jnp.ones(2)
    x.delete()
    with pytest.raises(CheckpointError, match="x: was deleted: it was donated"):
        jax_side.save(tmp_path / "a", {"x": x})

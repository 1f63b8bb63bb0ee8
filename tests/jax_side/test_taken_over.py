"""`jax_side.take_over`: what a conversion wrote goes into a model and its optimizer whole, or is refused by name."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import linen, nnx

import jax_side
from jax_side.optim import by_name
from parity.cli import main
from parity.errors import CheckpointError
from parity.state import OPTIMIZERS

TX = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.linear_schedule(1e-2, 0.0, 9)))


class Net(nnx.Module):
    def __init__(self, rngs, *, more=False):
        self.layers = nnx.List([nnx.Linear(3, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)])
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        if more:
            self.extra = nnx.Param(jnp.zeros(2))


def plain(state):
    """Return a state of NNX as a conversion has it: text as keys, arrays as leaves."""
    if hasattr(state, "items"):
        return {str(key): plain(one) for key, one in state.items()}
    return np.asarray(state)


def converted(folder, seed=1, **change):
    """Write what a conversion writes of a net after five updates; returns the net and its optimizer."""
    model = Net(nnx.Rngs(seed))
    model.norm.mean[...] = jnp.arange(4, dtype=jnp.float32)
    optimizer = nnx.Optimizer(model, TX, wrt=nnx.Param)
    for _ in range(5):
        grads = jax.tree.map(lambda one: 0.1 * one + 0.01, nnx.state(model, nnx.Param))
        optimizer.update(model, grads)
    params = plain(nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    pure = nnx.to_pure_dict(nnx.state(model, nnx.BatchStat))
    tree = {
        "params": params,
        "buffers": {"norm": {**plain(pure)["norm"], "num_batches_tracked": np.int64(5)}},
        "opt_state": plain(nnx.to_pure_dict(nnx.state(optimizer)["opt_state"])),
        "step": 5,
        "torch": {"state": "{}"},
    }
    jax_side.save(folder, {key: one for key, one in {**tree, **change}.items() if one is not None})
    return model, optimizer


def equal(one, two):
    a, b = (jax.tree.leaves(nnx.state(x, nnx.Not(nnx.RngState))) for x in (one, two))
    return len(a) == len(b) and all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in zip(a, b, strict=True))


def test_a_module_of_nnx_and_its_optimizer_are_filled_in_place(tmp_path):
    model, optimizer = converted(tmp_path / "run")
    other = Net(nnx.Rngs(2))
    its = nnx.Optimizer(other, TX, wrt=nnx.Param)
    found = jax_side.take_over(tmp_path / "run", other, its)
    assert found.model is other
    assert found.optimizer is its
    assert (found.step, found.left) == (5, ("buffers.norm.num_batches_tracked",))
    assert equal(model, other)
    assert equal(optimizer, its)
    for one, two in ((model, optimizer), (other, its)):
        two.update(one, jax.tree.map(jnp.ones_like, nnx.state(one, nnx.Param)))
    assert equal(model, other)


def test_a_function_of_parameters_gets_trees_of_its_own_structure(tmp_path):
    params = {"a": {"w": jnp.ones((2, 3))}, "b": (jnp.zeros(2), jnp.ones(1))}
    state = TX.init(params)
    moved = jax.tree.map(lambda one: one + 1, (params, state))
    jax_side.save(tmp_path / "run", {"params": moved[0], "opt_state": moved[1], "step": 3})
    found = jax_side.take_over(tmp_path / "run", params, state)
    assert jax.tree.structure((found.model, found.optimizer)) == jax.tree.structure(moved)
    same = jax.tree.map(np.array_equal, (found.model, found.optimizer), moved)
    assert all(jax.tree.leaves(same))
    assert jax_side.take_over(tmp_path / "run", params).optimizer is None


def test_all_variables_of_linen_have_their_collections(tmp_path):
    variables = linen.BatchNorm(use_running_average=True).init(jax.random.key(0), jnp.ones((2, 3)))
    moved = jax.tree.map(lambda one: one + 1, variables)
    jax_side.save(tmp_path / "run", {**moved, "step": 1})
    found = jax_side.take_over(tmp_path / "run", variables).model
    assert found["batch_stats"]["mean"].tolist() == [1.0] * 3
    assert found["params"]["scale"].tolist() == [2.0] * 3


def test_a_leaf_without_a_place_and_a_place_without_a_leaf_are_named(tmp_path):
    converted(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"params\.extra: is not in the checkpoint"):
        jax_side.take_over(tmp_path / "run", Net(nnx.Rngs(0), more=True))
    model = Net(nnx.Rngs(0))
    del model.layers[1]
    with pytest.raises(CheckpointError, match=r"params\.layers\.1\.bias: is in the checkpoint alone"):
        jax_side.take_over(tmp_path / "run", model)
    model = Net(nnx.Rngs(0))
    with pytest.raises(CheckpointError, match=r"opt_state\.1\.0\.nu\.layers\.0\.bias: is in the checkpoint alone"):
        jax_side.take_over(tmp_path / "run", model, nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param))


def test_another_type_is_refused_unless_it_is_asked_for(tmp_path):
    with jax.enable_x64(True):
        model, _ = converted(tmp_path / "run")
        wide = jax.tree.map(lambda one: np.asarray(one, np.float64), nnx.to_pure_dict(nnx.state(model, nnx.Param)))
        converted(tmp_path / "wide", params=plain(wide))
        other = Net(nnx.Rngs(0))
        with pytest.raises(CheckpointError, match=r"is float64\[4\] in the checkpoint, and float32\[4\]"):
            jax_side.take_over(tmp_path / "wide", other)
        assert not equal(model, other)
        assert equal(model, jax_side.take_over(tmp_path / "wide", other, cast=True).model)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"step": None}, "step: is not in the checkpoint"), ({"params": None}, "expected what parity convert")],
)
def test_what_is_no_converted_state_is_refused(tmp_path, change, said):
    converted(tmp_path / "run", **change)
    with pytest.raises(CheckpointError, match=said):
        jax_side.take_over(tmp_path / "run", Net(nnx.Rngs(0)))


def test_statistics_in_two_collections_are_no_guess(tmp_path):
    converted(tmp_path / "run", batch_stats={"norm": {"mean": np.zeros(4, np.float32)}})
    with pytest.raises(CheckpointError, match=r"norm\.mean: is in batch_stats and in buffers"):
        jax_side.take_over(tmp_path / "run", Net(nnx.Rngs(0)))


def test_a_flipped_bit_is_never_taken_over(tmp_path):
    converted(tmp_path / "run")
    file = max(
        (one for one in (tmp_path / "run" / "d").rglob("*") if one.is_file()), key=lambda one: one.stat().st_size
    )
    held = bytearray(file.read_bytes())
    held[len(held) // 2] ^= 1
    file.write_bytes(held)
    model = Net(nnx.Rngs(0))
    with pytest.raises(CheckpointError, match=r"is not what was sealed|cannot be read"):
        jax_side.take_over(tmp_path / "run", model)
    assert equal(model, Net(nnx.Rngs(0)))


STARTS = {"SGD": {"momentum": 0.9}, "RMSprop": {"momentum": 0.9, "centered": True}, "Adam": {"amsgrad": True}}


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", [kind for kind in OPTIMIZERS if OPTIMIZERS[kind].in_torch])
def test_a_state_of_before_the_first_step_has_every_slot(tmp_path, monkeypatch, kind, wide):
    """Slots that no parameter has yet were left out, and the state fitted no optimizer."""
    monkeypatch.setattr(torch, "get_default_dtype", lambda: dtype)  # of what Adagrad counts from the start
    dtype = torch.float64 if wide else torch.float32
    net = torch.nn.Linear(3, 2, bias=False, dtype=dtype)
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.01, **STARTS.get(kind, {}))
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": 0}, tmp_path / "a.pt")
    words = ["convert", str(tmp_path / "a.pt"), str(tmp_path / "run"), "--to", "orbax", "--optimizer", "parity"]
    assert main([*words, "--class", kind]) == 0
    with jax.enable_x64(wide):
        params = {"weight": jnp.zeros((2, 3), "float64" if wide else "float32")}
        tx = by_name(kind, {"lr": 0.01, **STARTS.get(kind, {})})
        found = jax_side.take_over(tmp_path / "run", params, tx.init(params))
        fresh = tx.init(found.model)
    assert jax.tree.all(jax.tree.map(np.array_equal, found.optimizer, fresh))
    assert main(["convert", str(tmp_path / "run"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    assert repr(torch.load(tmp_path / "b.pt")["optimizer"]) == repr(optimizer.state_dict())


def test_numbers_of_a_parameter_have_the_type_in_which_others_have_theirs(tmp_path):
    """A model in float64 under PyTorch's default of float32, with a parameter that has had no update."""
    own = [torch.nn.Parameter(torch.ones(n, dtype=torch.float64)) for n in (2, 3)]
    optimizer = torch.optim.NAdam(own, lr=0.01)
    own[0].grad = torch.ones(2, dtype=torch.float64)
    optimizer.step()
    model = {"a": own[0].detach(), "b": own[1].detach()}
    torch.save({"model": model, "optimizer": optimizer.state_dict(), "step": 1}, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "run"), "--to", "orbax"]) == 0
    with jax.enable_x64(True):
        params = {"a": jnp.zeros(2, "float64"), "b": jnp.zeros(3, "float64")}
        like = by_name("NAdam", {"lr": 0.01}, scalar_dtype="float32").init(params)
        found = jax_side.take_over(tmp_path / "run", params, like)
    assert found.optimizer.slots["momentum_product"]["b"].tolist() == 1.0

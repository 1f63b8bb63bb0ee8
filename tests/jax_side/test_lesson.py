"""Sharded training as guides show it: names on the variables, an abstract model, and a restore on another mesh."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_side

NAMES = {"kernel_init": ("embed", "hidden"), "bias_init": ("hidden",)}


class TwoLayers(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        init = {name: nnx.with_partitioning(nnx.initializers.normal(0.1), axes) for name, axes in NAMES.items()}
        down = nnx.with_partitioning(nnx.initializers.normal(0.1), ("hidden", "embed"))
        self.up = nnx.Linear(8, 16, rngs=rngs, **init)
        self.down = nnx.Linear(16, 8, use_bias=False, rngs=rngs, kernel_init=down)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.down(jax.nn.relu(self.up(x)))


RULES = (("embed", "fsdp"), ("hidden", "model"))


def abstract(mesh):
    """Return the shapes of the model and of its optimizer, and where each array belongs on a mesh."""
    with jax.set_mesh(mesh), nnx.logical_axis_rules(RULES):
        model = nnx.eval_shape(lambda: TwoLayers(nnx.Rngs(0)))
        params = nnx.state(model, nnx.Param)
        state = {"params": params, "adam": jax.eval_shape(optax.adam(1e-2).init, params)}
        specs = nnx.get_partition_spec(state)
    place = lambda a, spec: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=jax.NamedSharding(mesh, spec))  # noqa: E731
    return nnx.graphdef(model), jax.tree.map(place, state, specs)


def meshed(fsdp, model):
    devices = np.array(jax.devices()[: fsdp * model]).reshape(fsdp, model)
    return jax.sharding.Mesh(devices, ("fsdp", "model"))


def trained(graphdef, state, like, steps):
    tx = optax.adam(1e-2)

    @jax.jit
    def step(state, x):
        loss = lambda params: jnp.mean(jnp.square(nnx.merge(graphdef, params)(x) - x))  # noqa: E731
        grads = jax.grad(loss)(state["params"])
        updates, adam = tx.update(grads, state["adam"], state["params"])
        new = {"params": optax.apply_updates(state["params"], updates), "adam": adam}
        return jax.lax.with_sharding_constraint(new, jax.tree.map(lambda a: a.sharding, like))

    for number in range(steps):
        state = step(state, jax.random.normal(jax.random.key(number), (4, 8)))
    return state


def test_a_sharded_tree_is_saved_and_restored_on_another_mesh_bit_for_bit(tmp_path: Path) -> None:
    graphdef, like = abstract(meshed(2, 2))
    with jax.set_mesh(meshed(2, 2)), nnx.logical_axis_rules(RULES):
        params = nnx.state(TwoLayers(nnx.Rngs(0)), nnx.Param)
    first = jax.tree.map(
        lambda a, b: jax.device_put(a, b.sharding), {"params": params, "adam": optax.adam(1e-2).init(params)}, like
    )
    state = trained(graphdef, first, like, 5)
    assert state["params"]["up"]["kernel"].get_value().sharding.spec == jax.P("fsdp", "model")
    jax_side.save(tmp_path / "state", state)
    for shape in ((4, 1), (1, 4), (1, 1), (2, 2)):
        _, wanted = abstract(meshed(*shape))
        found = jax_side.restore(tmp_path / "state", like=wanted).tree
        for ours, theirs, template in zip(*map(jax.tree.leaves, (state, found, wanted)), strict=True):
            assert theirs.sharding == template.sharding
            assert np.array_equal(np.asarray(ours), np.asarray(theirs))
        after = trained(graphdef, found, wanted, 1)
        kernel = after["params"]["down"]["kernel"].get_value()
        expected = np.asarray(trained(graphdef, state, like, 1)["params"]["down"]["kernel"].get_value())
        assert np.allclose(np.asarray(kernel), expected, rtol=1e-5)

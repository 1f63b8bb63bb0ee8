"""The port of `port_torch.py` to JAX and Optax, and the conversion of what `port_torch.py` saves."""

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from port_torch import initial, samples

jax.config.update("jax_enable_x64", True)  # here, where each process of a check imports it
Params = dict[str, dict[str, jax.Array]]
TX = optax.adamw(1e-2, weight_decay=1e-2)  # PyTorch's default; Optax's is 1e-4


def to_params(values: dict[str, np.ndarray]) -> Params:
    """Return parameters by the port's names, kernels [in, out], from PyTorch's."""
    return {
        layer: {"kernel": jnp.asarray(values[f"{name}.weight"].T), "bias": jnp.asarray(values[f"{name}.bias"])}
        for layer, name in (("first", "0"), ("last", "2"))
    }


def loss_of(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the mean cross entropy, float64, of inputs, float64 [batch, 8], and classes, int64 [batch]."""
    hidden = jnp.tanh(x @ params["first"]["kernel"] + params["first"]["bias"])
    logits = hidden @ params["last"]["kernel"] + params["last"]["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


@jax.jit
def train_step(params: Params, opt_state: optax.OptState, x: jax.Array, y: jax.Array):
    """Return parameters and optimizer state after a step, and its loss."""
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    updates, opt_state = TX.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def train(folder: Path, steps: int = 40) -> Iterator[int]:
    """Train the same classifier; continue from `folder/state.npz` if there is one."""
    inputs, labels = (jnp.asarray(part) for part in samples())
    params, start = to_params(initial()), 0
    opt_state = TX.init(params)
    if (folder / "state.npz").exists():
        held = dict(np.load(folder / "state.npz"))
        start = int(held["step"])
        leaves, tree = jax.tree.flatten((params, opt_state))
        params, opt_state = jax.tree.unflatten(tree, [jnp.asarray(held[str(at)]) for at in range(len(leaves))])
    for step in range(start, steps):
        yield step
        batch = np.arange(step * 32, step * 32 + 32) % 256
        params, opt_state, loss = train_step(params, opt_state, inputs[batch], labels[batch])
        if (step + 1) % 10 == 0:
            save(folder, step + 1, params, opt_state)
    assert jnp.isfinite(loss)


def save(folder: Path, step: int, params: Params, opt_state: optax.OptState) -> None:
    """Write what `train` continues from."""
    leaves = jax.tree.leaves((params, opt_state))
    np.savez(folder / "state.npz", step=step, **{str(at): np.asarray(leaf) for at, leaf in enumerate(leaves)})


def convert(source: Path, target: Path) -> None:
    """Turn what `port_torch.train` saved into what `train` continues from: parameters, both moments, the step."""
    state = torch.load(source / "state.pt", weights_only=True)
    names, slots = list(state["model"]), state["optimizer"]["state"]
    moments = {
        slot: to_params({name: slots[at][slot].numpy() for at, name in enumerate(names)})
        for slot in ("exp_avg", "exp_avg_sq")
    }
    params = to_params({name: value.numpy() for name, value in state["model"].items()})
    adam, *others = TX.init(params)
    adam = adam._replace(count=jnp.asarray(state["step"], jnp.int32), mu=moments["exp_avg"], nu=moments["exp_avg_sq"])
    save(target, state["step"], params, (adam, *others))

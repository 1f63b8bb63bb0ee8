"""The port of `trainer_torch.py` to NNX and Optax, as it is written first, and put right."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from migrate_nnx import Model
from trainer_torch import batch

__all__ = ["Model", "batch", "loss", "start", "start_as_torch", "step"]

State = dict[str, Any]


def loss(model: nnx.Module, batch: dict[str, Any]) -> jax.Array:
    """Return the mean cross entropy of the next tokens."""
    tokens = jnp.asarray(batch["tokens"])
    return optax.softmax_cross_entropy_with_integer_labels(model(tokens[:, :-1]), tokens[:, 1:]).mean()


def start(model: nnx.Module) -> State:
    """Return the state before the first step: what one would write."""
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2, weight_decay=0.1))
    return {"model": model, "optimizer": nnx.Optimizer(model, tx, wrt=nnx.Param)}


def start_as_torch(model: nnx.Module) -> State:
    """Return the same with PyTorch's clipping, and decay of matrices alone."""

    def clip(grads: Any, state: Any, params: Any = None) -> Any:
        scale = jnp.minimum(1.0, 1.0 / (optax.tree.norm(grads) + 1e-6))
        return jax.tree.map(lambda grad: grad * scale, grads), state

    def matrices(params: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

    clipping = optax.GradientTransformation(lambda params: optax.EmptyState(), clip)
    tx = optax.chain(clipping, optax.adamw(1e-2, weight_decay=0.1, mask=matrices))
    return {"model": model, "optimizer": nnx.Optimizer(model, tx, wrt=nnx.Param)}


@nnx.jit
def update(model: nnx.Module, optimizer: nnx.Optimizer, batch: dict[str, Any]) -> jax.Array:
    """Move model and optimizer by one step, and return its loss."""
    value, grads = nnx.value_and_grad(loss)(model, batch)
    optimizer.update(model, grads)
    return value


def step(state: State, batch: dict[str, np.ndarray]) -> tuple[State, jax.Array]:
    """Make one update."""
    return state, update(state["model"], state["optimizer"], batch)

"""A training loop in JAX with Flax NNX and Optax, with the one line that a resume check needs."""

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx


class Classifier(nnx.Module):
    """Two layers with dropout between."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(8, 32, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.second = nnx.Linear(32, 3, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the logits, float32 [batch, 3], of inputs, float32 [batch, 8]."""
        return self.second(self.dropout(nnx.relu(self.first(x))))


@nnx.jit
def train_step(model: Classifier, optimizer: nnx.Optimizer, x: jax.Array, y: jax.Array) -> jax.Array:
    """Update model and optimizer; return the loss."""

    def loss_of(model: Classifier) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def train(folder: Path, steps: int = 60) -> Iterator[int]:
    """Train a classifier; continue from the newest checkpoint in the folder."""
    data = np.random.default_rng(0)
    inputs, labels = data.normal(size=(256, 8)).astype(np.float32), data.integers(0, 3, 256)
    model = Classifier(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(optax.cosine_decay_schedule(1e-2, 60)), wrt=nnx.Param)
    checkpointer = ocp.StandardCheckpointer()
    saved = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    start = saved[-1] if saved else 0
    if saved:
        state = checkpointer.restore(folder / str(start), nnx.state((model, optimizer)))
        nnx.update((model, optimizer), state)
    for step in range(start, steps):
        yield step  # the line that was added: the number of completed steps
        batch = np.arange(step * 32, step * 32 + 32) % 256
        train_step(model, optimizer, jnp.asarray(inputs[batch]), jnp.asarray(labels[batch]))
        if (step + 1) % 10 == 0:
            checkpointer.save(folder / str(step + 1), nnx.state((model, optimizer)))
            checkpointer.wait_until_finished()

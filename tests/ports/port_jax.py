"""The same trainer in JAX: NNX and Optax."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tests.ports.port_torch import AVERAGE, BATCH, CLASSES, CLIP, DECAY, FEATURES, HORIZON, RATE, WIDTH, batch

__all__ = ["BATCH", "Model", "batch", "loss", "start", "step"]

normal = nnx.initializers.normal(0.3)


class Running(nnx.Module):
    """A batch norm that keeps the unbiased variance, as PyTorch's does and Flax's does not."""

    def __init__(self, momentum=0.1, bias=True):
        self.scale, self.shift = nnx.Param(jnp.ones(WIDTH)), nnx.Param(jnp.zeros(WIDTH))
        self.mean, self.var = nnx.BatchStat(jnp.zeros(WIDTH)), nnx.BatchStat(jnp.ones(WIDTH))
        self.use_running_average, self.momentum, self.biased = False, momentum, not bias

    def __call__(self, x):
        mean, var = self.mean[...], self.var[...]
        if not self.use_running_average:
            mean, var, m = x.mean(0), x.var(0), self.momentum
            kept = var if self.biased else var * len(x) / (len(x) - 1)
            self.mean[...] = (1 - m) * self.mean[...] + m * mean
            self.var[...] = (1 - m) * self.var[...] + m * kept
        return (x - mean) / jnp.sqrt(var + 1e-5) * self.scale[...] + self.shift[...]


class Model(nnx.Module):
    def __init__(self, *, rngs):
        self.up = nnx.Linear(FEATURES, WIDTH, kernel_init=normal, rngs=rngs)
        self.scale = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.running = Running()
        self.out = nnx.Linear(WIDTH, CLASSES, kernel_init=normal, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        x = jax.nn.gelu(self.scale(self.up(x)), approximate=False)
        return self.out(self.dropout(self.running(x)))


def loss(model, batch):
    each = optax.softmax_cross_entropy_with_integer_labels(model(jnp.asarray(batch["x"])), jnp.asarray(batch["y"]))
    mask = jnp.asarray(batch["mask"])
    return (each * mask).sum() / mask.sum()


def rate(step):
    cosine = 0.5 * (1 + jnp.cos(jnp.pi * (step - 5) / (HORIZON - 5)))
    return RATE * jnp.where(step < 5, (step + 1) / 5, cosine)


def clip(max_norm, epsilon=1e-6):
    def update(grads, state, params=None):
        norm = optax.tree.norm(grads)
        return jax.tree.map(lambda g: g * jnp.minimum(1.0, max_norm / (norm + epsilon)), grads), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def optimizer():
    decayed = lambda params: jax.tree.map(lambda one: one.ndim > 1, params)  # noqa: E731
    return optax.chain(clip(CLIP), optax.adamw(rate, weight_decay=DECAY, mask=decayed))


def start(model):
    params = nnx.state(model, nnx.Param)
    return {"model": model, "optimizer": nnx.Optimizer(model, optimizer(), wrt=nnx.Param), "ema": params}


@nnx.jit
def update(model, optimizer, ema, batch):
    value, grads = nnx.value_and_grad(loss)(model, batch)
    optimizer.update(model, grads)
    moved = jax.tree.map(lambda e, p: AVERAGE * e + (1 - AVERAGE) * p, ema, nnx.state(model, nnx.Param))
    return value, moved


def step(state, batch):
    value, ema = update(state["model"], state["optimizer"], state["ema"], batch)
    return {**state, "ema": ema}, value

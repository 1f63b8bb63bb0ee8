"""The port of `nano_torch.py` to NNX and Optax, which goes on from what `parity convert` made of its checkpoint."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from nano_torch import Config, batch, rate

import jax_side


class Attention(nnx.Module):
    """Causal attention; its softmax is JAX's plain one, as that of `dot_product_attention` is of float32."""

    def __init__(self, c: Config, like: dict[str, Any]) -> None:
        self.heads = c.heads
        self.qkv, self.out = nnx.Linear(c.width, 3 * c.width, **like), nnx.Linear(c.width, c.width, **like)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return what each place takes from those before it."""
        b, t, n = x.shape
        q, k, v = (one.reshape(b, t, self.heads, -1) for one in jnp.split(self.qkv(x), 3, axis=-1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (n // self.heads) ** 0.5
        weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf))
        return self.out(jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, t, n))


class Block(nnx.Module):
    """Attention and two linear layers, each after a norm and beside a residual."""

    def __init__(self, c: Config, like: dict[str, Any]) -> None:
        self.norm1, self.norm2 = (nnx.LayerNorm(c.width, epsilon=1e-5, **like) for _ in range(2))
        self.attention = Attention(c, like)
        self.wide, self.narrow = nnx.Linear(c.width, 4 * c.width, **like), nnx.Linear(4 * c.width, c.width, **like)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the next hidden state."""
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(jax.nn.gelu(self.wide(self.norm2(x)), approximate=False))


class GPT(nnx.Module):
    """Logits of the next words."""

    def __init__(self, dtype: Any = jnp.float32, *, rngs: nnx.Rngs) -> None:
        c, like = Config(), {"param_dtype": dtype, "rngs": rngs}
        self.tokens, self.places = nnx.Embed(c.words, c.width, **like), nnx.Embed(c.block, c.width, **like)
        self.blocks = nnx.List([Block(c, like) for _ in range(c.layers)])
        self.norm = nnx.LayerNorm(c.width, epsilon=1e-5, **like)

    def __call__(self, idx: jax.Array) -> jax.Array:
        """Return logits, [batch, time, words], of words, int [batch, time]."""
        x = self.tokens(idx) + self.places(jnp.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.tokens.attend(self.norm(x))


def clip(most: float) -> optax.GradientTransformation:
    """Return PyTorch's clipping, which adds 1e-6 to the norm."""

    def update(grads: Any, state: Any, params: Any = None) -> Any:
        scale = jnp.minimum(1.0, most / (optax.tree.norm(grads) + 1e-6))
        return jax.tree.map(lambda one: one * scale, grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def schedule(step: Any) -> jax.Array:
    """Return the rate of a step, from a table."""
    return jnp.asarray([rate(at) for at in range(100)])[jnp.minimum(step, 99)]


def matrices(params: Any) -> Any:
    """Return which leaves decay."""
    return jax.tree.map(lambda one: one.ndim >= 2, params)


tx = optax.chain(clip(1.0), optax.adamw(schedule, b1=0.9, b2=0.95, weight_decay=0.1, mask=matrices))


@nnx.jit
def update(model: GPT, optimizer: nnx.Optimizer, x: jax.Array, y: jax.Array) -> jax.Array:
    """Move model and optimizer by one step, and return its loss."""

    def loss_of(model: GPT) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


def train(folder: Path, steps: int = 40, dtype: str = "float32") -> Iterator[int]:
    """Train; continue from `folder/ckpt`, as `parity convert` writes it, if there is one."""
    model, begin = GPT(jnp.dtype(dtype), rngs=nnx.Rngs(0)), 0
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    if (folder / "ckpt").exists():
        begin = jax_side.take_over(folder / "ckpt", model, optimizer).step
    for step in range(begin, steps):
        yield step
        loss = update(model, optimizer, *map(jnp.asarray, batch(step)))
        with (folder / "losses.txt").open("a") as file:
            print(step, loss.item(), file=file)

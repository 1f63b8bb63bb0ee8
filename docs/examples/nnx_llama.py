"""Llama in Flax NNX: weights with an axis of heads and einsum, rotary positions, grouped queries, a gated layer."""

import jax
import jax.numpy as jnp
from flax import nnx


def weight(rngs: nnx.Rngs, dtype: jnp.dtype, *shape: int) -> nnx.Param:
    """Return a parameter drawn from a normal distribution."""
    return nnx.Param(0.02 * jax.random.normal(rngs.params(), shape, dtype))


class RootMeanSquare(nnx.Module):
    """A norm that scales and does not shift."""

    def __init__(self, width: int, dtype: jnp.dtype, epsilon: float = 1e-6) -> None:
        self.gain, self.epsilon = nnx.Param(jnp.ones(width, dtype)), epsilon

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return x over the root of its mean square, times the gain."""
        return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + self.epsilon) * self.gain[...]


def rotated(x: jax.Array, base: float = 10000.0) -> jax.Array:
    """Return queries or keys turned by their position, [batch, time, heads, size]; halves are turned together."""
    half = x.shape[-1] // 2
    turns = base ** (-jnp.arange(half, dtype=x.dtype) / half)
    angles = (jnp.arange(x.shape[1], dtype=x.dtype)[:, None] * turns)[:, None, :]
    cos, sin, low, high = jnp.cos(angles), jnp.sin(angles), x[..., :half], x[..., half:]
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


class Attention(nnx.Module):
    """Causal attention in which several query heads share the keys and values of one."""

    def __init__(self, width: int, heads: int, groups: int, fused: bool, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.heads, self.groups, size = heads, groups, width // heads
        if fused:
            self.wqkv = weight(rngs, dtype, width, heads + 2 * groups, size)
        else:
            self.wq = weight(rngs, dtype, width, heads, size)
            self.wk, self.wv = (weight(rngs, dtype, width, groups, size) for _ in range(2))
        self.wo = weight(rngs, dtype, heads, size, width)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return what each position gets of those up to it, [batch, time, width]."""
        if hasattr(self, "wqkv"):
            all_heads = jnp.einsum("btd,dhk->bthk", x, self.wqkv[...])
            q, k, v = jnp.split(all_heads, [self.heads, self.heads + self.groups], axis=2)
        else:
            q, k, v = (jnp.einsum("btd,dhk->bthk", x, one[...]) for one in (self.wq, self.wk, self.wv))
        q, k = rotated(q), rotated(k)
        q = q.reshape(*q.shape[:2], self.groups, -1, q.shape[-1])
        scores = jnp.einsum("bqgrk,bsgk->bgrqs", q, k) * q.shape[-1] ** -0.5
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        shares = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        mixed = jnp.einsum("bgrqs,bsgk->bqgrk", shares, v)
        return jnp.einsum("bthk,hkd->btd", mixed.reshape(*x.shape[:2], self.heads, -1), self.wo[...])


class Gated(nnx.Module):
    """Two projections, one of them a gate, and one back; the two may be one array."""

    def __init__(self, width: int, hidden: int, fused: bool, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        if fused:
            self.both = weight(rngs, dtype, width, 2 * hidden)
        else:
            self.gate, self.up = (weight(rngs, dtype, width, hidden) for _ in range(2))
        self.down = weight(rngs, dtype, hidden, width)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the gated layer of x, [batch, time, width]."""
        if hasattr(self, "both"):
            gate, up = jnp.split(x @ self.both[...], 2, axis=-1)
        else:
            gate, up = x @ self.gate[...], x @ self.up[...]
        return (jax.nn.silu(gate) * up) @ self.down[...]


class Layer(nnx.Module):
    """Attention and the gated layer, each behind a norm and beside a residual."""

    def __init__(
        self, width: int, hidden: int, heads: int, groups: int, fused: bool, dtype: jnp.dtype, rngs: nnx.Rngs
    ) -> None:
        self.before, self.between = RootMeanSquare(width, dtype), RootMeanSquare(width, dtype)
        self.attention = Attention(width, heads, groups, fused, dtype, rngs)
        self.mlp = Gated(width, hidden, fused, dtype, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the residual stream after this layer, [batch, time, width]."""
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class Llama(nnx.Module):
    """Llama.

    Args:
        words: Size of the vocabulary.
        width: Of the residual stream.
        hidden: Of the gated layers.
        layers: How many.
        heads: Of the queries.
        groups: Heads of keys and values.
        fused: Whether query, key and value are one array, and gate and up.
        tied: Whether the logits come of the embedding.
        stacked: Whether the leaves of all layers lie in one array each.
        dtype: Of the parameters.
        rngs: Of the initial values.
    """

    def __init__(
        self, words: int, width: int, hidden: int, layers: int, heads: int, groups: int, *, fused: bool = False,
        tied: bool = False, stacked: bool = False, dtype: jnp.dtype = jnp.float32, rngs: nnx.Rngs,
    ) -> None:  # fmt: skip
        def layer(rngs: nnx.Rngs) -> Layer:
            return Layer(width, hidden, heads, groups, fused, dtype, rngs)

        self.table, self.norm = weight(rngs, dtype, words, width), RootMeanSquare(width, dtype)
        self.stacked, self.readout = stacked, None if tied else weight(rngs, dtype, width, words)
        if stacked:
            self.layers = nnx.split_rngs(splits=layers)(nnx.vmap(layer))(rngs)
        else:
            self.layers = nnx.List([layer(rngs) for _ in range(layers)])

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Return logits, [batch, time, words], of tokens, int [batch, time]."""
        x = self.table[...][tokens]
        if self.stacked:
            x = nnx.scan(lambda x, one: one(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.layers)
        else:
            for one in self.layers:
                x = one(x)
        return self.norm(x) @ (self.table[...].T if self.readout is None else self.readout[...])


def loss(model: Llama, tokens: jax.Array) -> jax.Array:
    """Return the mean cross entropy of each next token."""
    scores = jax.nn.log_softmax(model(tokens)[:, :-1], axis=-1)
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1).mean()

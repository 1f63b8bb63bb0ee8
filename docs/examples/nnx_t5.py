"""T5 in Flax NNX: an encoder and a decoder without biases, relative positions, one table for both and the logits."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx


class Scale(nnx.Module):
    """The norm of T5: over the root of the mean square, times a weight."""

    def __init__(self, width: int, dtype: jnp.dtype) -> None:
        self.scale = nnx.Param(jnp.ones(width, dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the scaled positions."""
        return x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * self.scale[...]


def buckets(queries: int, keys: int, both_ways: bool, count: int = 32, furthest: int = 128) -> np.ndarray:
    """Return the bucket of each distance, int [queries, keys]: exact near by, logarithmic further away."""
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    base = np.zeros_like(distance)
    if both_ways:
        count //= 2
        base, distance = (distance > 0) * count, np.abs(distance)
    else:
        distance = -np.minimum(distance, 0)
    exact = count // 2
    far = np.log(np.maximum(distance, 1) / exact) / math.log(furthest / exact) * (count - exact)
    return base + np.where(distance < exact, distance, np.minimum(exact + far.astype(int), count - 1))


class Attention(nnx.Module):
    """Attention without a scale: T5 leaves that to the initial values."""

    def __init__(self, width: int, heads: int, size: int, fused: bool, dtype: jnp.dtype, rngs: nnx.Rngs, *,
                 across: bool = False) -> None:  # fmt: skip
        linear = partial(nnx.Linear, use_bias=False, param_dtype=dtype, rngs=rngs)
        self.heads, inner = heads, heads * size
        if fused and not across:
            self.qkv = linear(width, 3 * inner)
        elif fused:
            self.q, self.kv = linear(width, inner), linear(width, 2 * inner)
        else:
            self.q, self.k, self.v = (linear(width, inner) for _ in range(3))
        self.o = linear(inner, width)

    def __call__(self, x: jax.Array, memory: jax.Array | None = None, bias: jax.Array | float = 0.0) -> jax.Array:
        """Return what positions get of themselves, or of a memory; the bias is [heads, queries, keys]."""
        source = x if memory is None else memory
        if hasattr(self, "qkv"):
            parts = jnp.split(self.qkv(x), 3, axis=-1)
        elif hasattr(self, "kv"):
            parts = [self.q(x), *jnp.split(self.kv(source), 2, axis=-1)]
        else:
            parts = [self.q(x), self.k(source), self.v(source)]
        q, k, v = (one.reshape(*one.shape[:2], self.heads, -1) for one in parts)
        shares = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) + bias, axis=-1)
        return self.o(jnp.einsum("bhqk,bkhd->bqhd", shares, v).reshape(*x.shape[:2], -1))


class Block(nnx.Module):
    """Attention to itself, to the memory in a decoder, and two linear layers; each behind a norm."""

    def __init__(self, width: int, hidden: int, heads: int, size: int, fused: bool, decoder: bool, dtype: jnp.dtype,
                 rngs: nnx.Rngs) -> None:  # fmt: skip
        attention = partial(Attention, width, heads, size, fused, dtype, rngs)
        self.own, self.own_norm = attention(), Scale(width, dtype)
        if decoder:
            self.cross, self.cross_norm = attention(across=True), Scale(width, dtype)
        self.wide = nnx.Linear(width, hidden, use_bias=False, param_dtype=dtype, rngs=rngs)
        self.narrow = nnx.Linear(hidden, width, use_bias=False, param_dtype=dtype, rngs=rngs)
        self.mlp_norm = Scale(width, dtype)

    def __call__(self, x: jax.Array, bias: jax.Array, memory: jax.Array | None = None) -> jax.Array:
        """Return the positions after this layer, [batch, time, width]."""
        x = x + self.own(self.own_norm(x), bias=bias)
        if memory is not None:
            x = x + self.cross(self.cross_norm(x), memory)
        return x + self.narrow(jax.nn.relu(self.wide(self.mlp_norm(x))))


class Stack(nnx.Module):
    """The blocks of an encoder or of a decoder, whose biases of positions are one table for all of them."""

    def __init__(self, width: int, hidden: int, layers: int, heads: int, size: int, *, fused: bool, decoder: bool,
                 stacked: bool, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:  # fmt: skip
        def block(rngs: nnx.Rngs) -> Block:
            return Block(width, hidden, heads, size, fused, decoder, dtype, rngs)

        self.distances = nnx.Param(0.1 * jax.random.normal(rngs.params(), (32, heads), dtype))
        self.decoder, self.stacked, self.norm = decoder, stacked, Scale(width, dtype)
        if stacked:
            self.blocks = nnx.split_rngs(splits=layers)(nnx.vmap(block))(rngs)
        else:
            self.blocks = nnx.List([block(rngs) for _ in range(layers)])

    def __call__(self, x: jax.Array, memory: jax.Array | None = None) -> jax.Array:
        """Return the positions after all layers, [batch, time, width]."""
        time = x.shape[1]
        bias = jnp.moveaxis(self.distances[...][buckets(time, time, not self.decoder)], -1, 0)
        if self.decoder:
            bias = jnp.where(jnp.tril(jnp.ones((time, time), bool)), bias, -jnp.inf)
        if self.stacked:
            run = nnx.scan(lambda x, one: one(x, bias, memory), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
            return self.norm(run(x, self.blocks))
        for one in self.blocks:
            x = one(x, bias, memory)
        return self.norm(x)


class T5(nnx.Module):
    """T5 of the first version: an activation without a gate, logits of the scaled table.

    Args:
        words: Size of the vocabulary.
        width: Of each position.
        hidden: Of the linear layers.
        layers: Of the encoder, and as many of the decoder.
        heads: Of each attention.
        size: Of a head.
        fused: Whether projections of one input are one matrix.
        tied: Whether the logits come of the table.
        stacked: Whether the leaves of all layers lie in one array each.
        dtype: Of the parameters.
        rngs: Of the initial values.
    """

    def __init__(
        self, words: int, width: int, hidden: int, layers: int, heads: int, size: int, *, fused: bool = False,
        tied: bool = True, stacked: bool = False, dtype: jnp.dtype = jnp.float32, rngs: nnx.Rngs,
    ) -> None:  # fmt: skip
        stack = partial(
            Stack, width, hidden, layers, heads, size, fused=fused, stacked=stacked, dtype=dtype, rngs=rngs
        )
        self.table = nnx.Embed(words, width, param_dtype=dtype, rngs=rngs)
        self.encoder, self.decoder = stack(decoder=False), stack(decoder=True)
        self.head = None if tied else nnx.Linear(width, words, use_bias=False, param_dtype=dtype, rngs=rngs)

    def __call__(self, source: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return logits, [batch, time, words], of what comes after the target, and the memory of the source."""
        memory = self.encoder(self.table(source))
        x = self.decoder(self.table(target), memory)
        if self.head is not None:
            return self.head(x), memory
        return self.table.attend(x * x.shape[-1] ** -0.5), memory


def loss(model: T5, source: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross entropy of labels, int [batch, time], which the decoder reads one step later."""
    logits, _ = model(source, jnp.pad(labels, ((0, 0), (1, 0)))[:, :-1])
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), labels[..., None], axis=-1).mean()

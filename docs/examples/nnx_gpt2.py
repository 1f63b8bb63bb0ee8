"""GPT-2 in Flax NNX: fused or separate projections, a list of layers or one scan over all of them, tied or not."""

import jax
import jax.numpy as jnp
from flax import nnx


class Block(nnx.Module):
    """One layer: attention, then two linear layers, each behind a norm and beside a residual."""

    def __init__(self, width: int, heads: int, fused: bool, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        def linear(features_in: int, features_out: int) -> nnx.Linear:
            init = nnx.initializers.normal(0.02)
            return nnx.Linear(features_in, features_out, kernel_init=init, param_dtype=dtype, rngs=rngs)

        self.heads = heads
        self.norm_attention = nnx.LayerNorm(width, epsilon=1e-5, param_dtype=dtype, rngs=rngs)
        self.norm_mlp = nnx.LayerNorm(width, epsilon=1e-5, param_dtype=dtype, rngs=rngs)
        if fused:
            self.qkv = linear(width, 3 * width)
        else:
            self.query, self.key, self.value = (linear(width, width) for _ in range(3))
        self.out = linear(width, width)
        self.wide, self.narrow = linear(width, 4 * width), linear(4 * width, width)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the residual stream after this layer, [batch, time, width]."""
        h = self.norm_attention(x)
        parts = jnp.split(self.qkv(h), 3, -1) if hasattr(self, "qkv") else (self.query(h), self.key(h), self.value(h))
        x = x + self.out(causal_attention(*parts, heads=self.heads))
        return x + self.narrow(jax.nn.gelu(self.wide(self.norm_mlp(x)), approximate=True))


def causal_attention(query: jax.Array, key: jax.Array, value: jax.Array, heads: int) -> jax.Array:
    """Return what each position gets of those up to it, [batch, time, width]."""
    q, k, v = (one.reshape(*one.shape[:2], heads, -1) for one in (query, key, value))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(query.shape)


class Gpt2(nnx.Module):
    """GPT-2.

    Args:
        words: Size of the vocabulary.
        length: Most positions.
        width: Of the residual stream.
        layers: Blocks.
        heads: Of each attention.
        fused: Whether query, key and value are one projection.
        tied: Whether the logits come of the embedding.
        stacked: Whether the leaves of all layers lie in one array each, and the layers are one `nnx.scan`.
        dtype: Of the parameters.
        rngs: Of the initial values.
    """

    def __init__(
        self, words: int, length: int, width: int, layers: int, heads: int, *, fused: bool = True, tied: bool = True,
        stacked: bool = False, dtype: jnp.dtype = jnp.float32, rngs: nnx.Rngs,
    ) -> None:  # fmt: skip
        def block(rngs: nnx.Rngs) -> Block:
            return Block(width, heads, fused, dtype, rngs)

        init = nnx.initializers.normal(0.02)
        self.tokens = nnx.Embed(words, width, embedding_init=init, param_dtype=dtype, rngs=rngs)
        self.places = nnx.Embed(length, width, embedding_init=init, param_dtype=dtype, rngs=rngs)
        self.stacked = stacked
        if stacked:
            self.blocks = nnx.split_rngs(splits=layers)(nnx.vmap(block))(rngs)
        else:
            self.blocks = nnx.List([block(rngs) for _ in range(layers)])
        self.norm = nnx.LayerNorm(width, epsilon=1e-5, param_dtype=dtype, rngs=rngs)
        self.head = None if tied else nnx.Linear(width, words, use_bias=False, param_dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Return logits, [batch, time, words], of tokens, int [batch, time]."""
        x = self.tokens(tokens) + self.places(jnp.arange(tokens.shape[1]))
        if self.stacked:
            layers = nnx.scan(lambda x, block: block(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
            x = layers(x, self.blocks)
        else:
            for block in self.blocks:
                x = block(x)
        x = self.norm(x)
        return self.tokens.attend(x) if self.head is None else self.head(x)


def loss(model: Gpt2, tokens: jax.Array) -> jax.Array:
    """Return the mean cross entropy of each next token."""
    scores = jax.nn.log_softmax(model(tokens)[:, :-1], axis=-1)
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1).mean()

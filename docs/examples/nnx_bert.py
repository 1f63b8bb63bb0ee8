"""BERT with its pretraining heads in Flax NNX: Flax's own attention or a fused projection; norms after residuals."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx


class FusedAttention(nnx.Module):
    """Attention of all positions to all, its three projections one matrix."""

    def __init__(self, width: int, heads: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.heads = heads
        self.qkv = nnx.Linear(width, 3 * width, param_dtype=dtype, rngs=rngs)
        self.out = nnx.Linear(width, width, param_dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        """Return what each position gets, [batch, time, width]; the mask is [batch, 1, 1, time]."""
        batch, time, width = x.shape
        q, k, v = jnp.moveaxis(self.qkv(x).reshape(batch, time, 3, self.heads, -1), 2, 0)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width / self.heads) ** 0.5
        if mask is not None:
            scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
        return self.out(mixed.reshape(batch, time, width))


class Layer(nnx.Module):
    """Attention and two linear layers, a norm after each residual."""

    def __init__(self, width: int, hidden: int, heads: int, fused: bool, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        norm = partial(nnx.LayerNorm, width, epsilon=1e-12, param_dtype=dtype, rngs=rngs)
        if fused:
            self.attention = FusedAttention(width, heads, dtype, rngs)
        else:
            self.attention = nnx.MultiHeadAttention(heads, width, decode=False, param_dtype=dtype, rngs=rngs)
        self.attention_norm, self.mlp_norm = norm(), norm()
        self.wide = nnx.Linear(width, hidden, param_dtype=dtype, rngs=rngs)
        self.narrow = nnx.Linear(hidden, width, param_dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        """Return the positions after this layer, [batch, time, width]."""
        x = self.attention_norm(x + self.attention(x, mask=mask))
        return self.mlp_norm(x + self.narrow(jax.nn.gelu(self.wide(x), approximate=False)))


class Bert(nnx.Module):
    """BERT for pretraining: masked words, and whether the second text follows the first.

    Args:
        words: Size of the vocabulary.
        length: Most positions.
        width: Of each position.
        hidden: Of the linear layers.
        layers: How many.
        heads: Of each attention.
        padding: The word whose embedding learns nothing from where it stands, as `nn.Embedding(padding_idx=...)` has
            it; the tied head does teach it.
        fused: Whether query, key and value are one projection.
        tied: Whether the logits come of the embedding.
        stacked: Whether the leaves of all layers lie in one array each.
        dtype: Of the parameters.
        rngs: Of the initial values.
    """

    def __init__(
        self, words: int, length: int, width: int, hidden: int, layers: int, heads: int, *, padding: int = 0,
        fused: bool = False, tied: bool = True, stacked: bool = False, dtype: jnp.dtype = jnp.float32, rngs: nnx.Rngs,
    ) -> None:  # fmt: skip
        embed = partial(nnx.Embed, features=width, param_dtype=dtype, rngs=rngs)
        linear = partial(nnx.Linear, width, param_dtype=dtype, rngs=rngs)
        norm = partial(nnx.LayerNorm, width, epsilon=1e-12, param_dtype=dtype, rngs=rngs)

        def layer(rngs: nnx.Rngs) -> Layer:
            return Layer(width, hidden, heads, fused, dtype, rngs)

        self.word, self.place, self.segment = embed(words), embed(length), embed(2)
        self.padding, self.stacked, self.embed_norm = padding, stacked, norm()
        if stacked:
            self.layers = nnx.split_rngs(splits=layers)(nnx.vmap(layer))(rngs)
        else:
            self.layers = nnx.List([layer(rngs) for _ in range(layers)])
        self.pool, self.follows = linear(width), linear(2)
        self.guess, self.guess_norm = linear(width), norm()
        self.guess_bias = nnx.Param(jnp.zeros(words, dtype))
        self.guess_words = None if tied else linear(words, use_bias=False)

    def __call__(
        self, tokens: jax.Array, mask: jax.Array | None = None, segments: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Return logits of words, [batch, time, words], and of what follows, [batch, 2].

        Args:
            tokens: int [batch, time].
            mask: Whether a position is no padding, [batch, time]; all of them without.
            segments: 0 or 1, [batch, time]; 0 without.
        """
        known = self.word(tokens)
        known = jnp.where((tokens == self.padding)[..., None], jax.lax.stop_gradient(known), known)
        x = known + self.place(jnp.arange(tokens.shape[1]))
        x = self.embed_norm(x + self.segment(jnp.zeros_like(tokens) if segments is None else segments))
        seen = None if mask is None else mask.astype(bool)[:, None, None, :]
        if self.stacked:
            x = nnx.scan(lambda x, one: one(x, seen), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.layers)
        else:
            for one in self.layers:
                x = one(x, seen)
        guess = self.guess_norm(jax.nn.gelu(self.guess(x), approximate=False))
        words = self.word.attend(guess) if self.guess_words is None else self.guess_words(guess)
        return words + self.guess_bias[...], self.follows(jnp.tanh(self.pool(x[:, 0])))


def loss(
    model: Bert, tokens: jax.Array, segments: jax.Array, mask: jax.Array, labels: jax.Array, follows: jax.Array
) -> jax.Array:
    """Return the mean cross entropy of masked words (labels of -100 are no such) plus that of what follows."""
    words, next_text = model(tokens, mask, segments)
    masked = labels != -100
    of_words = jax.nn.log_softmax(words, axis=-1)
    picked = jnp.take_along_axis(of_words, jnp.where(masked, labels, 0)[..., None], axis=-1)[..., 0]
    of_next = jnp.take_along_axis(jax.nn.log_softmax(next_text, axis=-1), follows[:, None], axis=-1)
    return -jnp.where(masked, picked, 0.0).sum() / masked.sum() - of_next.mean()

"""The small GPT in JAX: NNX with its own attention or written out, linen, and a scan over stacked layers."""

import jax
import jax.numpy as jnp
from flax import linen, nnx

WIDTH, HEADS, LAYERS, VOCABULARY, LENGTH = 16, 2, 2, 31, 8


def attend(q, k, v, ahead=0):
    """Return causal attention, [batch, time, heads, size]; each place sees `ahead` places more than it should."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool), ahead)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1), v)


def split_heads(x):
    return x.reshape(*x.shape[:-1], HEADS, -1)


class Block(nnx.Module):
    def __init__(self, how, eps, approximate, rngs, dropout, ahead):
        self.norm1 = nnx.LayerNorm(WIDTH, epsilon=eps, rngs=rngs)
        self.norm2 = nnx.LayerNorm(WIDTH, epsilon=eps, rngs=rngs)
        self.how, self.approximate, self.ahead = how, approximate, ahead
        if how == "own":
            self.attn = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        elif how == "fused":
            self.qkv, self.o = nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs), nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        else:
            self.q, self.k, self.v, self.o = (nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(4))
        self.up, self.down = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs), nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)
        self.drop = nnx.Dropout(dropout, rngs=rngs)

    def __call__(self, x):
        h = self.norm1(x)
        if self.how == "own":
            y = self.attn(h, mask=nnx.make_causal_mask(x[..., 0]))
        else:
            parts = jnp.split(self.qkv(h), 3, -1) if self.how == "fused" else (self.q(h), self.k(h), self.v(h))
            y = self.o(attend(*map(split_heads, parts), ahead=self.ahead).reshape(x.shape))
        x = x + self.drop(y)
        return x + self.drop(self.down(jax.nn.gelu(self.up(self.norm2(x)), approximate=self.approximate)))


class Model(nnx.Module):
    def __init__(
        self, how="separate", layers=LAYERS, eps=1e-5, approximate=False, tied=True, dropout=0.1, ahead=0, *, rngs
    ):
        self.tok, self.pos = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs), nnx.Embed(LENGTH, WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(how, eps, approximate, rngs, dropout, ahead) for _ in range(layers)])
        self.norm = nnx.LayerNorm(WIDTH, epsilon=eps, rngs=rngs)
        self.head = None if tied else nnx.Linear(WIDTH, VOCABULARY, use_bias=False, rngs=rngs)

    def __call__(self, tokens):
        x = self.tok(tokens) + self.pos(jnp.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.tok.attend(x) if self.head is None else self.head(x)


DRAWN = linen.initializers.normal(0.2)


class LinenBlock(linen.Module):
    eps: float = 1e-5
    dropout: float = 0.1

    @linen.compact
    def __call__(self, x, deterministic):
        h = linen.LayerNorm(epsilon=self.eps)(x)
        q, k, v = (
            linen.DenseGeneral((HEADS, WIDTH // HEADS), name=name, kernel_init=DRAWN)(h)
            for name in ("query", "key", "value")
        )
        y = linen.DenseGeneral(WIDTH, axis=(-2, -1), name="out", kernel_init=DRAWN)(attend(q, k, v))
        x = x + linen.Dropout(self.dropout, deterministic=deterministic)(y)
        h = linen.gelu(
            linen.Dense(4 * WIDTH, kernel_init=DRAWN)(linen.LayerNorm(epsilon=self.eps)(x)), approximate=False
        )
        return x + linen.Dropout(self.dropout, deterministic=deterministic)(linen.Dense(WIDTH, kernel_init=DRAWN)(h))


class LinenModel(linen.Module):
    layers: int = LAYERS
    eps: float = 1e-5
    dropout: float = 0.1

    @linen.compact
    def __call__(self, tokens, deterministic=False):
        embed = linen.Embed(VOCABULARY, WIDTH, name="wte", embedding_init=DRAWN)
        x = embed(tokens) + linen.Embed(LENGTH, WIDTH, name="wpe", embedding_init=DRAWN)(jnp.arange(tokens.shape[1]))
        for at in range(self.layers):
            x = LinenBlock(self.eps, self.dropout, name=f"h_{at}")(x, deterministic)
        return embed.attend(linen.LayerNorm(epsilon=self.eps, name="ln_f")(x))


def norm(p, x, eps=1e-5):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + eps) * p["g"] + p["b"]


def stacked(layers=LAYERS):
    """Return parameters with all layers in one leaf each, and the function of them."""
    draw = iter(jax.random.split(jax.random.key(0), 99))

    def normal(*shape):
        return jax.random.normal(next(draw), shape) * 0.02

    def scales(*shape):
        return {"g": jnp.ones(shape), "b": jnp.zeros(shape)}

    n = layers
    params = {
        "embed": {"tokens": normal(VOCABULARY, WIDTH), "places": normal(LENGTH, WIDTH)},
        "layers": {
            "ln1": scales(n, WIDTH),
            "ln2": scales(n, WIDTH),
            "wqkv": normal(n, WIDTH, 3 * WIDTH),
            "bqkv": jnp.zeros((n, 3 * WIDTH)),
            "wo": normal(n, WIDTH, WIDTH),
            "bo": jnp.zeros((n, WIDTH)),
            "w1": normal(n, WIDTH, 4 * WIDTH),
            "b1": jnp.zeros((n, 4 * WIDTH)),
            "w2": normal(n, 4 * WIDTH, WIDTH),
            "b2": jnp.zeros((n, WIDTH)),
        },
        "ln": scales(WIDTH),
    }

    def layer(x, p):
        q, k, v = map(split_heads, jnp.split(norm(p["ln1"], x) @ p["wqkv"] + p["bqkv"], 3, -1))
        x = x + attend(q, k, v).reshape(x.shape) @ p["wo"] + p["bo"]
        h = jax.nn.gelu(norm(p["ln2"], x) @ p["w1"] + p["b1"], approximate=False)
        return x + h @ p["w2"] + p["b2"], None

    def apply(params, tokens):
        x = params["embed"]["tokens"][tokens] + params["embed"]["places"][: tokens.shape[1]]
        x, _ = jax.lax.scan(layer, x, params["layers"])
        return norm(params["ln"], x) @ params["embed"]["tokens"].T

    return params, apply

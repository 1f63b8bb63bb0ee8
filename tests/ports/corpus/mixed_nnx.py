"""The port of `mixed_torch` to NNX, and what goes wrong in such ports: one fault at a time, by its name."""

import jax
import jax.numpy as jnp
from flax import nnx

WIDTH, HEADS, CLASSES = 8, 2, 5


class RMSNorm(nnx.Module):
    def __init__(self, width, fault):
        self.scale, self.epsilon = nnx.Param(jnp.ones(width)), 1e-5 if fault == "rms epsilon" else 1e-6
        self.offset = fault == "rms offset"

    def __call__(self, x):
        y = x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + self.epsilon)
        return y * (1.0 + self.scale[...]) if self.offset else y * self.scale[...]


class LayerNorm(nnx.Module):
    """A norm that was written by hand, with the unbiased variance."""

    def __init__(self, width):
        self.scale, self.bias = nnx.Param(jnp.ones(width)), nnx.Param(jnp.zeros(width))

    def __call__(self, x):
        var = x.var(-1, keepdims=True, ddof=1)
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(var + 1e-5) * self.scale[...] + self.bias[...]


class Attention(nnx.Module):
    def __init__(self, fault, rngs):
        self.q, self.k, self.v, self.out = (nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(4))
        self.fault = fault

    def __call__(self, x):
        q, k, v = (one(x).reshape(*x.shape[:2], HEADS, -1) for one in (self.q, self.k, self.v))
        if self.fault == "q and k exchanged":
            q, k = k, q
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        if self.fault != "no scale":
            scores = scores / jnp.sqrt(WIDTH if self.fault == "scale of all heads" else WIDTH // HEADS)
        if self.fault == "a temperature":
            scores = scores * 0.7
        if self.fault == "a window":
            near = jnp.abs(jnp.arange(scores.shape[-1])[:, None] - jnp.arange(scores.shape[-1])) < 3
            scores = jnp.where(near, scores, -jnp.inf)
        if self.fault != "no causal mask":
            scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
        weights = jax.nn.softmax(scores, -2 if self.fault == "softmax axis" else -1)
        weights = jnp.nan_to_num(weights)
        y = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
        if self.fault == "heads in another order":
            y = y.transpose(0, 1, 3, 2)
        return self.out(y.reshape(x.shape))


class Mlp(nnx.Module):
    def __init__(self, fault, rngs):
        self.up, self.down = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs), nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)
        self.fault = fault

    def __call__(self, x):
        acts = {
            "gelu tanh": jax.nn.gelu,
            "quick gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
            "relu for gelu": jax.nn.relu,
            "silu for gelu": jax.nn.silu,
        }
        h = acts.get(self.fault, lambda x: jax.nn.gelu(x, approximate=False))(self.up(x))
        return self.down(jax.lax.stop_gradient(h) if self.fault == "gradient stopped" else h)


class Block(nnx.Module):
    def __init__(self, fault, rngs):
        eps = 1e-6 if fault == "layer norm epsilon" else 1e-5
        biased = nnx.LayerNorm(WIDTH, epsilon=eps, rngs=rngs)
        self.norm1 = LayerNorm(WIDTH) if fault == "unbiased variance" else biased
        self.attn, self.norm2, self.mlp = Attention(fault, rngs), RMSNorm(WIDTH, fault), Mlp(fault, rngs)
        self.fault = fault

    def __call__(self, x):
        if self.fault == "norm after":
            x = x + self.norm1(self.attn(x))
        else:
            x = x + self.attn(self.norm1(x))
        y = self.mlp(self.norm2(x))
        return y if self.fault == "residual missing" else x + y


class Model(nnx.Module):
    def __init__(self, fault="", *, rngs):
        padding = "SAME" if fault == "padding same" else 1
        self.conv = nnx.Conv(3, WIDTH, (3, 3), strides=2, padding=padding, rngs=rngs)
        bn = {"momentum": 0.99 if fault == "batch norm momentum" else 0.9}
        self.bn = nnx.BatchNorm(WIDTH, epsilon=1e-3 if fault == "batch norm epsilon" else 1e-5, rngs=rngs, **bn)
        self.place = nnx.Param(jnp.zeros((16, WIDTH)))
        self.block = Block(fault, rngs)
        self.norm, self.head = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs), nnx.Linear(WIDTH, CLASSES, rngs=rngs)
        self.fault = fault

    def __call__(self, image):
        x = jax.nn.relu(self.bn(self.conv(image)))
        if self.fault == "columns before rows":
            x = x.transpose(0, 2, 1, 3)
        x = x.reshape(x.shape[0], -1, WIDTH) + self.place[...]
        if self.fault == "embedding scaled":
            x = x * WIDTH**0.5
        x = self.norm(self.block(x))
        return self.head(x[:, -1] if self.fault == "pooling of the last" else x.mean(1))

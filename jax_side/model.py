"""The models, as Flax NNX modules with PyTorch's semantics.

Differences from Flax's own layers, each shown by a test: LayerNorm epsilon 1e-5 and two-pass variance, GELU by
erf, attention written out with its softmax in the exact dtype, a BatchNorm that keeps PyTorch's unbiased running
variance, and convolutions as nine shifted slices and one matrix product (XLA's native CPU convolution rounds
differently inside a scan than outside).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from jax_side.dropout import Dropout
from jax_side.numerics import Dtypes, dtypes
from parity.spec import CnnSpec, DropoutSpec, GptSpec, LinearSpec, MlpSpec, RunSpec

__all__ = [
    "BatchNorm",
    "Cnn",
    "Conv3x3",
    "Gpt",
    "Linear",
    "Mlp",
    "build_model",
    "cross_entropy",
    "loss_function",
    "mean_squared_error",
]

NORM_EPS = 1e-5
BATCH_NORM_MOMENTUM = 0.1
"""Weight of the new statistics, PyTorch's meaning of the word."""


def build_model(spec: RunSpec) -> nnx.Module:
    """Return the model of a spec; its values are placeholders until a state is put in."""
    types, rngs = dtypes(spec.precision), nnx.Rngs(params=0, dropout=spec.seed)
    return MODELS[spec.model.kind](spec.model, spec.dropout, types, rngs)


def cross_entropy(logits: jax.Array, targets: jax.Array, types: Dtypes) -> jax.Array:
    """Return the mean over all targets of -log softmax(logits)[target], computed in the exact dtype.

    Args:
        logits: [..., classes], any float dtype.
        targets: int32 [...].
    """
    log_probs = jax.nn.log_softmax(logits.astype(types.exact))
    return -jnp.mean(jnp.take_along_axis(log_probs, targets[..., None], axis=-1))


def mean_squared_error(outputs: jax.Array, targets: jax.Array, types: Dtypes) -> jax.Array:
    """Return the mean over all elements of (output - target)^2, computed in the exact dtype.

    Args:
        outputs: [..., outputs], any float dtype.
        targets: Of the same shape, in the parameters' dtype.
    """
    return jnp.mean(jnp.square(outputs.astype(types.exact) - targets.astype(types.exact)))


def loss_function(spec: RunSpec) -> Callable[[jax.Array, jax.Array, Dtypes], jax.Array]:
    """Return the loss of a spec: of what a model returns, targets and dtypes."""
    return mean_squared_error if spec.data.source == "regression" else cross_entropy


def _linear(fan_in: int, fan_out: int, types: Dtypes, rngs: nnx.Rngs, *, bias: bool = True) -> nnx.Linear:
    return nnx.Linear(fan_in, fan_out, use_bias=bias, dtype=types.compute, param_dtype=types.params, rngs=rngs)


def _layer_norm(width: int, types: Dtypes, rngs: nnx.Rngs) -> nnx.LayerNorm:
    return nnx.LayerNorm(
        width,
        epsilon=NORM_EPS,
        use_fast_variance=False,
        dtype=types.exact,
        param_dtype=types.params,
        rngs=rngs,
    )


class Linear(nnx.Module):
    """One affine map."""

    def __init__(self, model: LinearSpec, dropout: DropoutSpec, types: Dtypes, rngs: nnx.Rngs) -> None:
        del dropout
        self.head = _linear(model.inputs, model.outputs, types, rngs)

    def __call__(self, x: jax.Array, key: jax.Array | None = None, *, train: bool = False) -> jax.Array:
        """Map [batch, inputs] to [batch, outputs]; training changes nothing."""
        del key, train
        return self.head(x)


class Mlp(nnx.Module):
    """Linear, ReLU, dropout for every hidden layer, then a linear head."""

    def __init__(self, model: MlpSpec, dropout: DropoutSpec, types: Dtypes, rngs: nnx.Rngs) -> None:
        widths = (model.inputs, *model.hidden, model.classes)
        pairs = list(itertools.pairwise(widths))
        self.layers = nnx.List([_linear(a, b, types, rngs) for a, b in pairs])
        self.dropouts = nnx.List([Dropout(dropout, i, rngs) for i in range(len(model.hidden))])

    def __call__(self, x: jax.Array, key: jax.Array | None = None, *, train: bool = False) -> jax.Array:
        """Map images [batch, inputs] to logits [batch, classes]; without `train` nothing is dropped."""
        for layer, drop in zip(self.layers[:-1], self.dropouts, strict=True):
            x = drop(jax.nn.relu(layer(x)), key, train=train)
        return self.layers[-1](x)


class Conv3x3(nnx.Module):
    """3x3 convolution, stride 1, zero padding 1, no bias, on [batch, height, width, channels]."""

    def __init__(self, c_in: int, c_out: int, types: Dtypes) -> None:
        self.kernel = nnx.Param(jnp.zeros((3, 3, c_in, c_out), types.params))
        self.compute = types.compute

    def __call__(self, x: jax.Array) -> jax.Array:
        """Stack the nine shifted images along the channels and multiply once."""
        _, height, width, _ = x.shape
        padded = jnp.pad(x.astype(self.compute), ((0, 0), (1, 1), (1, 1), (0, 0)))
        shifted = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        kernel = self.kernel[...].astype(self.compute)
        return jnp.concatenate(shifted, axis=-1) @ kernel.reshape(-1, kernel.shape[-1])


class BatchNorm(nnx.Module):
    """Batch normalisation over all axes but the last, with PyTorch's running statistics.

    Normalises with the biased variance and keeps the unbiased one; Flax keeps the biased one, which is
    smaller by (n - 1) / n. Source: torch.nn.BatchNorm2d (2.13); flax.nnx.BatchNorm (0.12).
    """

    def __init__(self, channels: int, types: Dtypes) -> None:
        self.scale = nnx.Param(jnp.ones(channels, types.params))
        self.bias = nnx.Param(jnp.zeros(channels, types.params))
        self.mean = nnx.BatchStat(jnp.zeros(channels, types.exact))
        self.var = nnx.BatchStat(jnp.ones(channels, types.exact))
        self.count = nnx.BatchStat(jnp.zeros((), jnp.int32))
        self.exact = types.exact

    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Normalise x [batch, height, width, channels], by its own statistics when training."""
        x = x.astype(self.exact)
        if train:
            axes = tuple(range(x.ndim - 1))
            n = x.size // x.shape[-1]
            mean, var = jnp.mean(x, axes), jnp.var(x, axes)
            keep = 1.0 - BATCH_NORM_MOMENTUM
            self.mean[...] = keep * self.mean[...] + BATCH_NORM_MOMENTUM * mean
            self.var[...] = keep * self.var[...] + BATCH_NORM_MOMENTUM * (var * (n / (n - 1)))
            self.count[...] = self.count[...] + 1
        else:
            mean, var = self.mean[...], self.var[...]
        return (x - mean) * (jax.lax.rsqrt(var + NORM_EPS) * self.scale[...]) + self.bias[...]


class Cnn(nnx.Module):
    """Convolution, BatchNorm, ReLU, 2x2 average pooling per stage; dropout and a linear head."""

    def __init__(self, model: CnnSpec, dropout: DropoutSpec, types: Dtypes, rngs: nnx.Rngs) -> None:
        channels = (1, *model.channels)
        self.size = model.size
        self.convs = nnx.List([Conv3x3(a, b, types) for a, b in itertools.pairwise(channels)])
        self.norms = nnx.List([BatchNorm(c, types) for c in model.channels])
        side = model.size // 2 ** len(model.channels)
        self.dropout = Dropout(dropout, 0, rngs)
        self.head = _linear(channels[-1] * side * side, model.classes, types, rngs)

    def __call__(self, x: jax.Array, key: jax.Array | None = None, *, train: bool = False) -> jax.Array:
        """Map images [batch, size * size] to logits [batch, classes], with statistics and dropout by `train`."""
        x = x.reshape(-1, self.size, self.size, 1)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = jax.nn.relu(norm(conv(x), train=train))
            batch, height, width, channels = x.shape
            x = x.reshape(batch, height // 2, 2, width // 2, 2, channels).mean((2, 4))
        x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)  # PyTorch flattens channels first
        return self.head(self.dropout(x, key, train=train))


class Block(nnx.Module):
    """One pre-norm decoder block."""

    def __init__(self, model: GptSpec, dropout: DropoutSpec, types: Dtypes, first: int, rngs: nnx.Rngs) -> None:
        width = model.width
        self.heads, self.exact = model.heads, types.exact
        self.norm1, self.norm2 = _layer_norm(width, types, rngs), _layer_norm(width, types, rngs)
        self.qkv = _linear(width, 3 * width, types, rngs)
        self.out = _linear(width, width, types, rngs)
        self.up = _linear(width, 4 * width, types, rngs)
        self.down = _linear(4 * width, width, types, rngs)
        self.drop1, self.drop2 = Dropout(dropout, first, rngs), Dropout(dropout, first + 1, rngs)

    def __call__(self, x: jax.Array, key: jax.Array | None, *, train: bool) -> jax.Array:
        """Map [batch, context, width] to the same shape."""
        x = x + self.drop1(self.out(self._attend(self.qkv(self.norm1(x)))), key, train=train)
        hidden = jax.nn.gelu(self.up(self.norm2(x)), approximate=False)
        return x + self.drop2(self.down(hidden), key, train=train)

    def _attend(self, qkv: jax.Array) -> jax.Array:
        batch, context, _ = qkv.shape  # [batch, context, 3 * width]
        heads = qkv.reshape(batch, context, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)
        q, k, v = heads[0], heads[1], heads[2]  # each [batch, heads, context, width / heads]
        scores = (q @ k.swapaxes(-2, -1)).astype(self.exact) * (q.shape[-1] ** -0.5)
        causal = jnp.tril(jnp.ones((context, context), bool))
        weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1).astype(v.dtype)
        return (weights @ v).transpose(0, 2, 1, 3).reshape(batch, context, -1)


class Gpt(nnx.Module):
    """Decoder over bytes with learned positions; the residual stream stays in the exact dtype."""

    def __init__(self, model: GptSpec, dropout: DropoutSpec, types: Dtypes, rngs: nnx.Rngs) -> None:
        self.types = types
        self.tokens = nnx.Embed(model.vocabulary, model.width, param_dtype=types.params, rngs=rngs)
        self.positions = nnx.Embed(model.context, model.width, param_dtype=types.params, rngs=rngs)
        self.dropout = Dropout(dropout, 0, rngs)
        self.blocks = nnx.List([Block(model, dropout, types, 1 + 2 * i, rngs) for i in range(model.layers)])
        self.norm = _layer_norm(model.width, types, rngs)
        self.head = None if model.tied else _linear(model.width, model.vocabulary, types, rngs, bias=False)

    def __call__(self, x: jax.Array, key: jax.Array | None = None, *, train: bool = False) -> jax.Array:
        """Map bytes int32 [batch, context] to logits [batch, context, vocabulary]."""
        positions = self.positions.embedding[...][: x.shape[1]]
        hidden = self.dropout(self.tokens.embedding[...][x] + positions, key, train=train)
        for block in self.blocks:
            hidden = block(hidden, key, train=train)
        hidden = self.norm(hidden)
        if self.head is not None:
            return self.head(hidden)
        compute = self.types.compute
        return hidden.astype(compute) @ self.tokens.embedding[...].astype(compute).T


MODELS: Mapping[str, Callable[..., nnx.Module]] = {"linear": Linear, "mlp": Mlp, "cnn": Cnn, "gpt": Gpt}
"""Kind to the class of its models."""

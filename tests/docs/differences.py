"""What PyTorch, Flax and Optax compute with their defaults from one input in float64, and with what makes them equal.

`python -m tests.docs.differences` prints the rows of docs/differences.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from flax import nnx
from torch.nn import functional

EQUAL = 1e-12
"""Relative, float64: what is below is rounding."""

Pair = Callable[[], tuple[Any, Any]]
DRAWS = np.random.default_rng(7)
X, IMAGE = DRAWS.normal(size=(4, 6)), DRAWS.normal(size=(2, 8, 8, 4))
LOGITS, LABELS = DRAWS.normal(size=(4, 6)), np.array([0, 3, 5, 2])


@dataclass(frozen=True)
class Difference:
    """A row of the page: two defaults, and what makes the second the first."""

    what: str
    torch: str
    jax: str
    defaults: Pair
    closing: str
    closed: Pair


def figure(pair: Pair) -> str:
    """Return how far two results are apart: relative to the largest element, or their shapes where these differ."""
    with jax.enable_x64(True):
        a, b = (np.asarray(one.detach() if isinstance(one, torch.Tensor) else one) for one in pair())
    assert a.dtype == b.dtype == np.float64
    if a.shape != b.shape:
        return f"{list(a.shape)} and {list(b.shape)}"
    apart = float(np.abs(a - b).max() / np.abs(a).max())
    return f"{apart:.1e}" if apart > EQUAL else "rounding"


def _torch(layer: Callable[..., Any], x: np.ndarray, *args: Any, **named: Any) -> torch.Tensor:
    """Return what a layer of PyTorch makes of an input with channels last."""
    return layer(*args, dtype=torch.float64, **named)(torch.from_numpy(x))


def _nnx(layer: Callable[..., Any], x: np.ndarray, *args: Any, **named: Any) -> jax.Array:
    made = layer(*args, dtype=jnp.float64, param_dtype=jnp.float64, rngs=nnx.Rngs(0), **named)
    return made(jnp.asarray(x))


def _conv(**named: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    here = torch.nn.Conv2d(4, 3, 3, stride=2, dtype=torch.float64, padding=named.pop("torch_padding", 0))
    there = nnx.Conv(4, 3, (3, 3), strides=2, dtype=jnp.float64, param_dtype=jnp.float64, rngs=nnx.Rngs(0), **named)
    there.kernel[...] = jnp.asarray(here.weight.detach().numpy().transpose(2, 3, 1, 0))
    there.bias[...] = jnp.asarray(here.bias.detach().numpy())
    return here(torch.from_numpy(IMAGE).permute(0, 3, 1, 2)).permute(0, 2, 3, 1), there(jnp.asarray(IMAGE))


def _running(name: str, correct: bool = False, **named: Any) -> tuple[Any, Any]:
    here = torch.nn.BatchNorm1d(6, dtype=torch.float64)
    here(torch.from_numpy(X))
    there = nnx.BatchNorm(6, dtype=jnp.float64, param_dtype=jnp.float64, rngs=nnx.Rngs(0), **named)
    there.mean, there.var = nnx.BatchStat(jnp.zeros(6)), nnx.BatchStat(jnp.ones(6))  # float32 otherwise
    old = {"mean": 0.0, "var": 1.0}[name]
    there(jnp.asarray(X))
    made = getattr(there, name)[...]
    if correct:
        made = old * 0.9 + (made - old * 0.9) * len(X) / (len(X) - 1)
    return getattr(here, f"running_{name}"), made


def _max_pool(**named: Any) -> tuple[Any, Any]:
    here = functional.max_pool2d(torch.from_numpy(IMAGE).permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
    return here, nnx.max_pool(jnp.asarray(IMAGE), (2, 2), **named)


def _kl(reduction: str) -> tuple[Any, Any]:
    logs = functional.log_softmax(torch.from_numpy(LOGITS), -1)
    target = functional.softmax(torch.from_numpy(X), -1)
    there = optax.losses.kl_divergence(jnp.asarray(logs.numpy()), jnp.asarray(target.numpy())).mean()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that `mean` is not what one means: the row says so
        return functional.kl_div(logs, target, reduction=reduction), there


def _entropy(finish: Callable[[Any], Any]) -> tuple[Any, Any]:
    here = functional.cross_entropy(torch.from_numpy(LOGITS), torch.from_numpy(LABELS))
    return here, finish(optax.softmax_cross_entropy_with_integer_labels(jnp.asarray(LOGITS), jnp.asarray(LABELS)))


FAR = np.linspace(20.5, 40.0, 24).reshape(4, 6)
"""Inputs beyond the threshold."""
SMALL = 3e-3 * X
"""Inputs whose variance is about an epsilon."""

LAYERS = (
    Difference(
        "`LayerNorm` of normal numbers", "`eps=1e-5`", "`epsilon=1e-6`",
        lambda: (_torch(torch.nn.LayerNorm, X, 6), _nnx(nnx.LayerNorm, X, 6)),
        "`epsilon=1e-5`", lambda: (_torch(torch.nn.LayerNorm, X, 6), _nnx(nnx.LayerNorm, X, 6, epsilon=1e-5)),
    ),
    Difference(
        "`LayerNorm` of 0.003 times these", "`eps=1e-5`", "`epsilon=1e-6`",
        lambda: (_torch(torch.nn.LayerNorm, SMALL, 6), _nnx(nnx.LayerNorm, SMALL, 6)),
        "`epsilon=1e-5`", lambda: (_torch(torch.nn.LayerNorm, SMALL, 6), _nnx(nnx.LayerNorm, SMALL, 6, epsilon=1e-5)),
    ),
    Difference(
        "`GroupNorm` of 2 groups", "`eps=1e-5`", "`epsilon=1e-6`",
        lambda: (_torch(torch.nn.GroupNorm, X, 2, 6), _nnx(nnx.GroupNorm, X, 6, num_groups=2)),
        "`epsilon=1e-5`",
        lambda: (_torch(torch.nn.GroupNorm, X, 2, 6), _nnx(nnx.GroupNorm, X, 6, num_groups=2, epsilon=1e-5)),
    ),
    Difference(
        "`RMSNorm`", "`eps=None`: that of the dtype, 2.2e-16", "`epsilon=1e-6`",
        lambda: (_torch(torch.nn.RMSNorm, X, 6), _nnx(nnx.RMSNorm, X, 6)),
        "`eps=1e-6` in PyTorch", lambda: (_torch(torch.nn.RMSNorm, X, 6, eps=1e-6), _nnx(nnx.RMSNorm, X, 6)),
    ),
    Difference(
        "`BatchNorm`, running mean after a step", "`momentum=0.1`, of the new", "`momentum=0.99`, of the old",
        lambda: _running("mean"), "`momentum=0.9`", lambda: _running("mean", momentum=0.9),
    ),
    Difference(
        "`BatchNorm`, running variance, `momentum=0.9`", "unbiased", "biased",
        lambda: _running("var", momentum=0.9),
        "the new part times n / (n - 1)", lambda: _running("var", correct=True, momentum=0.9),
    ),
    Difference(
        "GELU", "`approximate='none'`: erf", "`approximate=True`: tanh",
        lambda: (functional.gelu(torch.from_numpy(X)), nnx.gelu(jnp.asarray(X))),
        "`approximate=False`", lambda: (functional.gelu(torch.from_numpy(X)), nnx.gelu(jnp.asarray(X), False)),
    ),
    Difference(
        "softplus above 20", "`threshold=20`: the input itself", "no threshold",
        lambda: (functional.softplus(torch.from_numpy(FAR)), nnx.softplus(jnp.asarray(FAR))),
        "`threshold=1e3` in PyTorch",
        lambda: (functional.softplus(torch.from_numpy(FAR), threshold=1e3), nnx.softplus(jnp.asarray(FAR))),
    ),
    Difference(
        "convolution of 3, stride 2, of 8 by 8", "`padding=0`", "`padding='SAME'`",
        _conv, "`padding='VALID'`", lambda: _conv(padding="VALID"),
    ),
    Difference(
        "the same, `padding=1` in PyTorch", "1 on each side", "`'SAME'`: 0 before, 1 after",
        lambda: _conv(torch_padding=1), "`padding=1`", lambda: _conv(torch_padding=1, padding=1),
    ),
    Difference(
        "max pooling of 2, of 8 by 8", "stride of the window", "`strides=None`: 1",
        _max_pool, "`strides=(2, 2)`", lambda: _max_pool(strides=(2, 2)),
    ),
    Difference(
        "`x.var(-1)` of 6", "unbiased", "`ddof=0`",
        lambda: (torch.from_numpy(X).var(-1), jnp.asarray(X).var(-1)),
        "`ddof=1`", lambda: (torch.from_numpy(X).var(-1), jnp.asarray(X).var(-1, ddof=1)),
    ),
)  # fmt: skip

LOSSES = (
    Difference(
        "cross entropy of labels, 4 samples", "`reduction='mean'`", "one for each sample",
        lambda: _entropy(lambda x: x), "`.mean()`", lambda: _entropy(lambda x: x.mean()),
    ),
    Difference(
        "`mse_loss` and the mean of `optax.l2_loss`", "the square", "half the square",
        lambda: (functional.mse_loss(torch.from_numpy(X), torch.from_numpy(LOGITS)), optax.l2_loss(X, LOGITS).mean()),
        "`optax.squared_error`",
        lambda: (
            functional.mse_loss(torch.from_numpy(X), torch.from_numpy(LOGITS)), optax.squared_error(X, LOGITS).mean()
        ),
    ),
    Difference(
        "`kl_div` and the mean of `optax.losses.kl_divergence`, 6 classes", "mean over samples and classes",
        "sum over classes", lambda: _kl("mean"), "`reduction='batchmean'` in PyTorch", lambda: _kl("batchmean"),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Start:
    """A row of initial values: leaves of 65,536 elements or of a bias, as each framework draws them."""

    what: str
    torch: Callable[[], torch.Tensor]
    jax: Callable[[], jax.Array]
    closing: str
    closed: Callable[[], jax.Array]


def spread(values: Any) -> str:
    """Return the standard deviation of what was drawn, two digits."""
    return f"{float(np.asarray(values.detach() if isinstance(values, torch.Tensor) else values).std()):.2g}"


def _seeded(layer: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return layer()


def _linear(**named: Any) -> nnx.Linear:
    return nnx.Linear(256, 256, rngs=nnx.Rngs(0), **named)


UNIFORM = nnx.initializers.variance_scaling(1.0 / 3.0, "fan_in", "uniform")

STARTS = (
    Start(
        "`Linear(256, 256)`, weight", lambda: _seeded(lambda: torch.nn.Linear(256, 256)).weight,
        lambda: _linear().kernel[...],
        "`kernel_init=variance_scaling(1 / 3, 'fan_in', 'uniform')`",
        lambda: _linear(kernel_init=UNIFORM).kernel[...],
    ),
    Start(
        "`Linear(256, 4096)`, bias", lambda: _seeded(lambda: torch.nn.Linear(256, 4096)).bias,
        lambda: nnx.Linear(256, 4096, rngs=nnx.Rngs(0)).bias[...],
        "`bias_init`: uniform of plus and minus 1 / sqrt(256)",
        lambda: nnx.Linear(
            256, 4096, rngs=nnx.Rngs(0), bias_init=lambda key, shape, dtype, out_sharding=None: jax.random.uniform(
                key, shape, dtype, -(256**-0.5), 256**-0.5)
        ).bias[...],
    ),
    Start(
        "convolution of 3 by 3, 64 to 128, weight", lambda: _seeded(lambda: torch.nn.Conv2d(64, 128, 3)).weight,
        lambda: nnx.Conv(64, 128, (3, 3), rngs=nnx.Rngs(0)).kernel[...],
        "`kernel_init=variance_scaling(1 / 3, 'fan_in', 'uniform')`",
        lambda: nnx.Conv(64, 128, (3, 3), kernel_init=UNIFORM, rngs=nnx.Rngs(0)).kernel[...],
    ),
    Start(
        "`Embedding(256, 256)` and `Embed(256, 256)`", lambda: _seeded(lambda: torch.nn.Embedding(256, 256)).weight,
        lambda: nnx.Embed(256, 256, rngs=nnx.Rngs(0)).embedding[...],
        "`embedding_init=normal(1.0)`",
        lambda: nnx.Embed(256, 256, embedding_init=nnx.initializers.normal(1.0), rngs=nnx.Rngs(0)).embedding[...],
    ),
)  # fmt: skip


def rows(differences: tuple[Difference, ...]) -> list[tuple[str, ...]]:
    """Return the rows of a table of differences, measured now."""
    return [
        (one.what, one.torch, one.jax, figure(one.defaults), one.closing, figure(one.closed)) for one in differences
    ]


def start_rows() -> list[tuple[str, ...]]:
    """Return the rows of the table of initial values, measured now."""
    with jax.enable_x64(False):
        return [
            (one.what, spread(one.torch()), spread(one.jax()), one.closing, spread(one.closed())) for one in STARTS
        ]


if __name__ == "__main__":
    for table in (rows(LAYERS), rows(LOSSES), start_rows()):
        print(*(f"| {' | '.join(row)} |" for row in table), "", sep="\n")

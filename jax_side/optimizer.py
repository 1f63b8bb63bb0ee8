"""PyTorch's optimizers as Optax transforms.

The learning rate is an argument of each update (`lr=`), not a schedule inside the chain: PyTorch advances it every
completed step, Optax's `scale_by_schedule` only with applied updates.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from parity.spec import AdamSpec, OptimizerSpec, RunSpec

__all__ = ["build_optimizer", "clip_by_global_norm", "scale_by_adam", "scale_by_lr", "slots"]

CLIP_EPS = 1e-6
"""Added to the norm by torch.nn.utils.clip_grad_norm_; Optax adds nothing."""


def build_optimizer(spec: RunSpec) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer of a spec: clipping, decay, moments, learning rate; call `update(..., lr=lr)`.

    The state is a dict by part name (`optax.named_chain`), so leaves are found by name, not by index.
    """
    optimizer = spec.optimizer
    parts: list[tuple[str, Any]] = []
    if spec.clip_norm:
        parts.append(("clip", clip_by_global_norm(spec.clip_norm)))
    decay = optax.add_decayed_weights(optimizer.weight_decay, mask=_decay_mask(optimizer))
    if isinstance(optimizer, AdamSpec):
        moments = ("adam", scale_by_adam(optimizer.beta1, optimizer.beta2, optimizer.eps))
        parts += [moments, ("decay", decay)] if optimizer.kind == "adamw" else [("decay", decay), moments]
    else:
        parts.append(("decay", decay))
        if optimizer.momentum:
            parts.append(("momentum", optax.trace(optimizer.momentum, nesterov=optimizer.nesterov)))
    parts.append(("lr", scale_by_lr()))
    return optax.named_chain(*parts)


def slots(optimizer: OptimizerSpec) -> dict[str, tuple[str, str]]:
    """Return neutral slot name to (part of the chain, field of its state)."""
    if isinstance(optimizer, AdamSpec):
        return {"first_moment": ("adam", "mu"), "second_moment": ("adam", "nu")}
    return {"momentum": ("momentum", "trace")} if optimizer.momentum else {}


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Scale all gradients by min(1, max_norm / (norm + 1e-6)).

    Numerics: relative to Optax's own, smaller by 1e-6 / norm wherever it clips. Source:
    torch.nn.utils.clip_grad_norm_ (torch 2.13).
    """

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        norm = optax.tree.norm(updates)
        factor = jnp.minimum(1.0, max_norm / (norm + CLIP_EPS))
        return jax.tree.map(lambda g: _rounded(g * factor), updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def scale_by_adam(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """Rescale by bias-corrected moments, m_hat / (sqrt(v_hat) + eps), with torch.optim's arithmetic.

    The corrections 1 - b**t are taken as -expm1(t log b), log b in float64: Optax subtracts a float32 power from 1,
    which is off by 6e-6 relative in an early step with b2 = 0.999, while PyTorch has them in float64. The
    state is Optax's own `ScaleByAdamState`.

    Args:
        b1: Decay of the first moment, in [0, 1).
        b2: Decay of the second moment, in [0, 1).
        eps: Added to the root of the corrected second moment.

    Returns:
        A transformation of trees of gradients. Its moments have the shapes and dtypes of the parameters and start at
        0; its count is an int32 scalar.

    Source: Kingma and Ba, arXiv:1412.6980; torch.optim.Adam (2.13), optax.scale_by_adam (0.2.8).
    """

    def init(params: Any) -> optax.ScaleByAdamState:
        zeros = lambda: jax.tree.map(jnp.zeros_like, params)  # noqa: E731
        return optax.ScaleByAdamState(count=jnp.zeros((), jnp.int32), mu=zeros(), nu=zeros())

    def update(updates: Any, state: optax.ScaleByAdamState, params: Any = None) -> tuple[Any, Any]:
        del params
        count = state.count + 1
        mu = jax.tree.map(partial(_lerp, weight=1 - b1), state.mu, updates)
        nu = jax.tree.map(lambda g, v: b2 * v + (1 - b2) * (g * g), updates, state.nu)
        t = count.astype(jnp.result_type(float))
        correction1, correction2 = (-jnp.expm1(t * math.log(b)) if b else jnp.ones_like(t) for b in (b1, b2))
        root2 = jnp.sqrt(correction2)
        step = jax.tree.map(lambda m, v: (m / correction1) / (jnp.sqrt(v) / root2 + eps), mu, nu)
        return step, optax.ScaleByAdamState(count=count, mu=mu, nu=nu)

    return optax.GradientTransformation(init, update)


def scale_by_lr() -> optax.GradientTransformationExtraArgs:
    """Multiply by minus the learning rate given to `update` as `lr`, a scalar of the parameters' dtype."""

    def update(updates: Any, state: Any, params: Any = None, *, lr: jax.Array, **extra: Any) -> tuple[Any, Any]:
        del params, extra
        return jax.tree.map(lambda u: u * -lr.astype(u.dtype), updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def _lerp(start: jax.Array, end: jax.Array, weight: float) -> jax.Array:
    """Interpolate as torch.lerp does: from the nearer end."""
    return start + weight * (end - start) if weight < 0.5 else end - (end - start) * (1 - weight)


def _rounded(x: jax.Array) -> jax.Array:
    """Round to the type of x at once: XLA would contract the product into the addition that follows.

    It does so in a scan of two steps and more but not in a single step, and the last bits then differ (CNN, CPU).
    """
    info = jnp.finfo(x.dtype)
    return jax.lax.reduce_precision(x, info.nexp, info.nmant)


def _decay_mask(optimizer: OptimizerSpec) -> Any:
    if optimizer.decay == "all":
        return None
    return lambda params: jax.tree.map(lambda p: p.ndim >= 2, params)

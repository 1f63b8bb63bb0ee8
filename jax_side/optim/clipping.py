"""Clipping of gradients with the arithmetic of torch.nn.utils: by global norm, by group, by value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jax_side.optim.arithmetic import like
from jax_side.optim.groups import Optimizer
from parity.errors import SpecError

__all__ = ["clip_by_global_norm", "clip_by_group_norm", "clip_by_value"]

EPS = 1e-6
"""Added to the norm by torch.nn.utils.clip_grad_norm_; Optax adds nothing."""


def _limit(limit: float, where: str) -> float:
    if not limit > 0:
        raise SpecError(where, f"must be above 0, got {limit!r}")
    return float(limit)


def _scaled(grads: list[Any], max_norm: float) -> list[Any]:
    """Scale gradients, None left out, by min(1, max_norm / (norm + EPS))."""
    there = [g for g in grads if g is not None]
    if not there:
        return grads
    norms = jnp.stack([jnp.linalg.norm(g.ravel()) for g in there])  # of mixed dtypes: the widest
    factor = jnp.minimum(1.0, max_norm / (jnp.linalg.norm(norms) + EPS))
    return [None if g is None else g * like(factor, g) for g in grads]


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformationExtraArgs:
    """Scale all gradients by min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_.

    Gradients that are None stay so and have no part in the norm. A gradient that is not finite makes all of them so,
    as in PyTorch: unscale a loss first, and skip the step by `mask` of the update.

    Args:
        max_norm: Largest norm to keep, above 0.

    Raises:
        SpecError: It is not above 0.

    Numerics: smaller than Optax's by 1e-6 / norm relative wherever it clips. Source: torch.nn.utils.clip_grad (2.13).

    Example:
        >>> import jax.numpy as jnp
        >>> clip = clip_by_global_norm(2.5)
        >>> [f"{g:.4f}" for g in clip.update({"w": jnp.array([3.0, 4.0])}, clip.init({}))[0]["w"].tolist()]
        ['1.5000', '2.0000']
    """
    limit = _limit(max_norm, "max_norm")

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        del params, extra
        grads, treedef = jax.tree.flatten(updates, is_leaf=lambda x: x is None)
        return treedef.unflatten(_scaled(grads, limit)), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def clip_by_group_norm(max_norms: Mapping[str, float], tx: Optimizer) -> optax.GradientTransformationExtraArgs:
    """Clip the gradients of each group by the norm of that group.

    Args:
        max_norms: Label of a group to its largest norm; other groups are left as they are.
        tx: The optimizer that has the groups.

    Raises:
        SpecError: A label that no group has, or a norm that is not above 0.

    Numerics: as of `clip_by_global_norm`, over the gradients of a group. Source: torch.nn.utils.clip_grad (2.13),
    called for each group.

    Example:
        >>> import jax.numpy as jnp
        >>> from jax_side.optim import sgd
        >>> from parity.state import GroupRule
        >>> tx = sgd(groups=(GroupRule(label="head", names=("head.*",)), GroupRule(label="body")))
        >>> params = {"body": {"w": jnp.ones(1)}, "head": {"w": jnp.ones(1)}}
        >>> grads = {"body": {"w": jnp.array([8.0])}, "head": {"w": jnp.array([8.0])}}
        >>> clipped, _ = clip_by_group_norm({"head": 1.0}, tx).update(grads, (), params)
        >>> [round(float(clipped[part]["w"][0]), 4) for part in ("body", "head")]
        [8.0, 1.0]
    """
    limits = {label: _limit(limit, f"max_norms.{label}") for label, limit in max_norms.items()}
    labels = {group.label for group in tx.groups}
    for label in limits:
        if label not in labels:
            raise SpecError(f"max_norms.{label}", f"is no group; groups: {', '.join(sorted(labels))}")

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        del extra
        names, leaves, treedef = tx.leaves.flatten(updates if params is None else params)
        grads = treedef.flatten_up_to(updates)
        group_of = tx.group_of(tx.leaves.shapes(names, leaves))
        for label, limit in limits.items():
            own = [at for at, name in enumerate(names) if name in group_of and group_of[name].label == label]
            for at, g in zip(own, _scaled([grads[at] for at in own], limit), strict=True):
                grads[at] = g
        return treedef.unflatten(grads), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def clip_by_value(limit: float) -> optax.GradientTransformationExtraArgs:
    """Clip every element to [-limit, limit], as torch.nn.utils.clip_grad_value_; NaN stays NaN.

    Args:
        limit: Largest size of an element, above 0.

    Raises:
        SpecError: It is not above 0.

    Source: torch.nn.utils.clip_grad (2.13).

    Example:
        >>> import jax.numpy as jnp
        >>> clip_by_value(1.0).update({"w": jnp.array([3.0, -0.5])}, ())[0]["w"].tolist()
        [1.0, -0.5]
    """
    most = _limit(limit, "limit")

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        del params, extra
        return jax.tree.map(lambda g: jnp.clip(g, -most, most), updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)

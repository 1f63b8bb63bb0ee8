"""Dynamic loss scaling with the semantics of torch.amp.GradScaler, as a pure function of a small state."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from parity.spec import RunSpec, ScalerSpec

__all__ = ["ScalerState", "all_finite", "build_scaler", "unscale", "update_scaler"]


class ScalerState(NamedTuple):
    """State of the scaler."""

    scale: jax.Array
    """float32 scalar."""
    growth_tracker: jax.Array
    """int32 scalar: good steps since the scale last changed."""


def build_scaler(spec: RunSpec) -> ScalerState | None:
    """Return the state of the scaler at the start of a run; None unless the precision is float16."""
    return ScalerState(jnp.float32(spec.scaler.init_scale), jnp.int32(0)) if spec.scaled else None


def unscale(grads: Any, scale: jax.Array) -> Any:
    """Multiply gradients by the reciprocal of the scale (exact while the scale is a power of two).

    Args:
        grads: A tree of arrays.
        scale: float32 scalar.
    """
    return jax.tree.map(lambda g: g * (1.0 / scale), grads)


def all_finite(grads: Any) -> jax.Array:
    """Return whether every element of every gradient is finite: bool scalar."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(grads)]))


def update_scaler(state: ScalerState, spec: ScalerSpec, finite: jax.Array) -> ScalerState:
    """Back off after an overflow; grow on the `growth_interval`-th good step in a row, unless that gives infinity.

    flax's DynamicScale grows one step later. Source: `_amp_update_scale_` of torch 2.13.

    Args:
        state: The state before the step.
        spec: Factors and interval.
        finite: bool scalar: whether all gradients of the step were finite.

    Returns:
        The state after the step: scale in float32, tracker in int32.
    """
    tracker = jnp.where(finite, state.growth_tracker + 1, 0)
    grown = state.scale * spec.growth_factor
    due = tracker == spec.growth_interval
    scale = jnp.where(
        finite, jnp.where(due & jnp.isfinite(grown), grown, state.scale), state.scale * spec.backoff_factor
    )
    return ScalerState(scale.astype(jnp.float32), jnp.where(due, 0, tracker).astype(jnp.int32))

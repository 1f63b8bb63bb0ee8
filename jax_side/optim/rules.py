"""Rules of the optimizers: pure functions of one parameter, and what they know of the step they are taken in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_side.optim.arithmetic import halved, like, rounded
from parity.state import has_effect

__all__ = ["RULES", "Scalars", "Slots", "StepContext", "UpdateRule", "moved", "register"]


class StepContext(NamedTuple):
    """What a rule knows beside the gradient, the parameter and its slots."""

    once: Mapping[str, jax.Array]
    """What the optimizer's `Scalars` computed for this parameter: scalars of the wide dtype."""
    first: jax.Array
    """Whether this is its first update."""
    h: Mapping[str, Any]
    """Arguments of its group; `lr`, and what else a schedule moves, as scalars of the wide dtype."""
    dtype: Any
    """Of the parameter."""
    zero: jax.Array
    """Of `unknown_zero`."""

    def stored(self, x: jax.Array) -> jax.Array:
        """Return what PyTorch's kernels leave of a result for the next one: rounded where the dtype is narrow."""
        return halved(x, self.dtype)

    def product(self, x: jax.Array) -> jax.Array:
        """Return what PyTorch stores of a product, not to be contracted with the sum of the next kernel."""
        return halved(x, self.dtype) if self.dtype.itemsize < 4 else rounded(x, self.zero)

    def term(self, x: Any, leaf: jax.Array) -> jax.Array:
        """Return a scalar as PyTorch adds it, or by which it scales what it adds: in the dtype of the parameter."""
        return halved(like(x, leaf), self.dtype)

    def decayed(self, p: jax.Array) -> jax.Array:
        """Return the parameter after decoupled decay, which PyTorch multiplies by 1 - lr * weight_decay."""
        return self.product(p * like(self.h["keep"], p)) if has_effect(self.h["weight_decay"]) else p


Slots = dict[str, jax.Array]
"""Neutral slot name to value, of one parameter."""

UpdateRule = Callable[[jax.Array, jax.Array, Slots, StepContext], tuple[jax.Array, Slots]]
"""Gradient, parameter, slots, step to what is added to the parameter, and its new slots; in PyTorch's layout.

Written kernel by kernel as PyTorch runs them on a CPU: what one kernel leaves for the next passes `Step.stored` or
`Step.product`, and within a kernel XLA may contract a product and a sum, as PyTorch's own compiler does."""

Scalars = Callable[[Mapping[str, Any], jax.Array, jax.Array, Mapping[str, jax.Array]], dict[str, jax.Array]]
"""Arguments of a group, updates of each of its parameters with this one included, whether it is the first, and slots
that are scalars, all as vectors over the parameters; to vectors by name, new values of those slots among them.

Once for all parameters: a kernel for each would take most of the time of compilation."""

RULES: dict[str, tuple[UpdateRule, Scalars | None]] = {}


def register(name: str, rule: UpdateRule, scalars: Scalars | None = None) -> None:
    """Give an optimizer of the table its rule.

    Args:
        name: Its name in the table, such as `Adam`.
        rule: What computes its update of one parameter.
        scalars: What computes the scalars of a step, of all parameters of a group.
    """
    RULES[name] = rule, scalars


def moved(p: jax.Array, start: jax.Array, step: jax.Array) -> jax.Array:
    """Return what is added to a parameter so that it becomes `start + step`.

    Args:
        p: The parameter.
        start: The parameter, or what decay has left of it.
        step: The step from there.

    Numerics: the last difference is exact unless a step is as large as the parameter itself.
    """
    if start is p:
        return step
    after = start + step
    return jnp.where(after == p, -0.0, after - p)  # also where it is infinite

"""The optimizers of torch.optim as Optax transforms, whose learning rate is an argument of each update.

It is no schedule inside the chain: PyTorch advances it every completed step, Optax's `scale_by_schedule` only with
applied updates. The optimizers are those of `jax_side.optim`; Adam, AdamW and SGD of runs that could be described
before those were there keep the chain that trained them, its bits and its files (`parity.twins.is_former`).
"""

from __future__ import annotations

import glob
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jax_side.numerics import dtypes
from jax_side.optim import Leaves, Optimizer, by_name
from parity.mapping import Permute
from parity.spec import OptimizerSpec, RunSpec
from parity.state import GroupRule, assign_groups
from parity.twins import Layout, kind_of

__all__ = ["build_optimizer", "clip_by_global_norm", "leaves_of", "scale_by_adam", "scale_by_lr", "slots"]

CLIP_EPS = 1e-6
"""Added to the norm by torch.nn.utils.clip_grad_norm_; Optax adds nothing."""

FORMER_SLOTS = {"first_moment": ("adam", "mu"), "second_moment": ("adam", "nu"), "momentum": ("momentum", "trace")}
"""Neutral slot name to part of the chain and field of its state."""


def build_optimizer(spec: RunSpec) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer of a spec, clipping included; call `update(..., lr=lr)`.

    The state is a dict by part name, so leaves are found by name, not by index.

    Raises:
        SpecError: As of `parity.state.assign_groups`.
    """
    clip = clip_by_global_norm(spec.clip_norm) if spec.clip_norm else None
    layout = Layout.of(spec)
    if layout.former:
        return optax.named_chain(*([("clip", clip)] if clip else []), *_former_parts(spec.optimizer))
    row, rules = spec.optimizer.row, _rules(layout)
    options: dict[str, Any] = {"leaves": leaves_of(layout), "scalar_dtype": "float32"}
    if row.name == "Muon":  # in bfloat16, its own, elements of a step differ by 0.01 between two frameworks
        options["iteration_dtype"] = dtypes(spec.precision).params
    arguments = spec.optimizer.arguments()
    return _rated(clip, by_name(row.name, arguments, groups=[rule for rule, _ in rules], **options), rules)


def leaves_of(layout: Layout) -> Leaves:
    """Return the names and layouts of the parameters on PyTorch's side."""
    turned = {one.name: turn for one in layout.params for turn in one.transforms if isinstance(turn, Permute)}
    return Leaves(
        names={f"{one.path}.value": one.name for one in layout.params},
        axes={name: turn.inverse().axes for name, turn in turned.items()},
    )


def _rules(layout: Layout) -> list[tuple[GroupRule, int]]:
    """Return the rules of the groups, each with the number of its group in PyTorch.

    Muon has a class of its own for what is no matrix, which is one more group here.
    """
    optimizer, shapes, rules = layout.spec.optimizer, {row.name: row.shape for row in layout.params}, []
    label_of = assign_groups(layout.groups, shapes)
    for number, rule in enumerate(layout.groups):
        members = [name for name in shapes if label_of[name] == rule.label]
        for kind in dict.fromkeys(kind_of(optimizer, len(shapes[name])).name for name in members):
            if kind == optimizer.row.name and len(members) == len(shapes):
                rules.append((rule, number))
                continue
            names = tuple(glob.escape(n) for n in members if kind_of(optimizer, len(shapes[n])).name == kind)
            other = (
                {}
                if kind == optimizer.row.name
                else {"optimizer": kind, "weight_decay": optimizer.arguments()["weight_decay"]}
            )
            label = f"{rule.label}, {kind}"
            rules.append((GroupRule(label=label, names=names, arguments={**other, **rule.arguments}), number))
    return rules


def _rated(
    clip: optax.GradientTransformation | None, tx: Optimizer, rules: Sequence[tuple[GroupRule, int]]
) -> optax.GradientTransformationExtraArgs:
    """Return an optimizer behind a clipping; `update(..., lr=lr)` takes one rate, or one for each group,
    and behind them their momenta.
    """
    count = 1 + max(number for _, number in rules)

    def init(params: Any) -> dict[str, Any]:
        return {"optimizer": tx.init(params)}

    def update(updates: Any, state: Any, params: Any = None, *, lr: jax.Array, **extra: Any) -> tuple[Any, Any]:
        del extra
        if clip is not None:
            updates, _ = clip.update(updates, optax.EmptyState())
        given: dict[str, Any] = {"learning_rate": lr}
        if lr.ndim:
            given["learning_rate"] = {rule.label: lr[number] for rule, number in rules}
        if lr.ndim and len(lr) > count:  # the schedule moves the momentum, or the first beta
            given |= _momenta(tx, {rule.label: lr[count + number] for rule, number in rules})
        updates, new = tx.update(updates, state["optimizer"], params, **given)
        return updates, {"optimizer": new}

    return optax.GradientTransformationExtraArgs(init, update)


def _momenta(tx: Optimizer, by_label: dict[str, jax.Array]) -> dict[str, Any]:
    """Return the argument of an update that gives each group its momentum, as PyTorch's cyclic schedulers set it."""
    own = tx.groups[0].arguments
    if "betas" not in own:
        return {"momentum": by_label}
    return {"betas": {label: (first, own["betas"][1]) for label, first in by_label.items()}}


def _former_parts(optimizer: OptimizerSpec) -> list[tuple[str, Any]]:
    """Return the parts of the chain after clipping: decay, moments, learning rate."""
    own = optimizer.arguments()
    decay = ("decay", optax.add_decayed_weights(own["weight_decay"], mask=_decay_mask(optimizer)))
    if optimizer.kind == "sgd":
        trace = optax.trace(own["momentum"], nesterov=own["nesterov"])
        moments = [decay, *([("momentum", trace)] if own["momentum"] else [])]
    else:
        adam = ("adam", scale_by_adam(own["betas"][0], own["betas"][1], own["eps"]))
        moments = [adam, decay] if optimizer.kind == "adamw" else [decay, adam]
    return [*moments, ("lr", scale_by_lr())]


def slots(layout: Layout) -> dict[str, tuple[str, str]]:
    """Return neutral slot name to (part of the state, field of it that holds the slot's tree)."""
    names = [one.slot.name for one in layout.slots]
    return {name: FORMER_SLOTS[name] if layout.former else ("optimizer", name) for name in names}


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

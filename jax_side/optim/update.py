"""An update of all parameters: torch's counts and scalars once, then the rule of each parameter's group.

The update counts those of each parameter, leaves those without a gradient alone, and hands the learning rate over.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_side.optim.arithmetic import unknown_zero, wide
from jax_side.optim.groups import Group, Optimizer, OptimState
from jax_side.optim.rules import RULES, Slots, StepContext
from parity.errors import SpecError, UnknownNameError
from parity.state import OptimizerKind, has_effect

__all__ = ["updated"]

MOVED = {"learning_rate": "lr", "betas": "betas", "momentum": "momentum"}
"""What an update may be given, and the argument it stands for."""


def updated(
    tx: Optimizer, updates: Any, state: OptimState, params: Any = None, *, mask: Any = None, **extra: Any
) -> tuple[Any, OptimState]:
    """Return what is added to the parameters, and the new state.

    Where `mask` is false, nothing changes: one scalar for all parameters, or a tree of scalars, None for true.
    """
    if params is None:
        raise SpecError("params", "the update needs the parameters: tx.update(grads, state, params)")
    names, leaves, treedef = tx.leaves.flatten(params)
    grads = treedef.flatten_up_to(updates)
    masks = _masks(mask, treedef, names)
    group_of = tx.group_of(tx.leaves.shapes(names, leaves))
    hyper = {group.label: _hyper(tx, group, state.count, extra) for group in tx.groups}
    slots = {name: treedef.flatten_up_to(tree) for name, tree in state.slots.items()}
    given = [leaf is not None and grad is not None for leaf, grad in zip(leaves, grads, strict=True)]
    after = state.step + 1
    once = _once(tx, state, group_of, (names, given, slots, masks), hyper)
    applied = _applied(tx, hyper, isinstance(state.count, jax.core.Tracer))
    deltas: list[Any] = []
    for at, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        if not given[at]:
            deltas.append(None if leaf is None else jnp.full_like(leaf, -0.0))  # x + -0.0 is x, also for x = -0.0
            continue
        own = {slot: values[at] for slot, values in slots.items() if values[at] is not None}
        delta, kept = applied(group_of[name], name)(grads[at], leaf, own, once[at], masks[at])
        deltas.append(delta)
        for slot, value in kept.items():
            slots[slot][at] = value
    counts = [name in group_of and group_of[name].kind.counts for name in names]
    new = OptimState(
        count=state.count + 1,
        step=_counted(state.step, after, given, counts, masks),
        slots={slot: treedef.unflatten(values) for slot, values in slots.items()},
    )
    return treedef.unflatten(deltas), new


def _once(
    tx: Optimizer, state: OptimState, group_of: Mapping[str, Group], values: tuple[Any, ...], hyper: Mapping[str, Any]
) -> dict[int, dict[str, jax.Array]]:
    """Return the scalars of each parameter's rule, by its place; put new values of scalar slots into the slots."""
    names, given, slots, masks = values
    zero, found = unknown_zero(state.count), {}
    for group in tx.groups:
        places = [at for at, name in enumerate(names) if given[at] and group_of[name].label == group.label]
        if not places:
            continue
        h, scalars = hyper[group.label], RULES[group.kind.name][1]
        before = state.step if len(places) == len(names) else state.step[np.array(places)]
        first = before == 0
        t = (before + 1 if group.kind.counts else jnp.ones_like(before)).astype(wide())
        kept = [slot.name for slot in group.kind.slots if slot.form == "scalar"]
        old = {name: jnp.stack([slots[name][at] for at in places]) for name in kept}
        vectors = scalars(h, t, first, old) if scalars else {}
        rows = _rows({**vectors, "first": first, "zero": zero}, len(places))
        for at, row in zip(places, rows, strict=True):
            found[at] = row
            for name in kept:
                past = slots[name][at]
                new = row.pop(name).astype(past.dtype)
                slots[name][at] = new if masks[at] is None else jnp.where(masks[at], new, past)
    return found


def _rows(vectors: Mapping[str, jax.Array], count: int) -> list[dict[str, jax.Array]]:
    """Return the elements of vectors for each parameter.

    A slice of its own would be compiled for each parameter, or, within the kernel that updates it, make one of each
    where those of one shape are the same to the letter. So the rows of a table leave a branch: nearly always they are
    all equal, and copies of one; else a loop moves them out one after the other.
    """
    names = list(vectors)
    table = jnp.stack([jnp.broadcast_to(vectors[name].astype(wide()), (count,)) for name in names], axis=1)
    equal = jnp.all(table == table[0])  # a NaN is unequal, and takes the loop
    rows = jax.lax.cond(equal, lambda t: [t[0]] * count, _split, table) if count > 1 else [table[0]]
    return [{name: row[at] for at, name in enumerate(names)} for row in rows]


def _split(table: jax.Array) -> list[jax.Array]:
    """Return the rows of a table, by a loop that compiles as one kernel: the last row goes in first, and moves on."""
    count = len(table)

    def push(at: jax.Array, rows: list[jax.Array]) -> list[jax.Array]:
        return [jax.lax.dynamic_index_in_dim(table, count - 1 - at, keepdims=False), *rows[:-1]]

    return jax.lax.fori_loop(0, count, push, [table[0]] * count)


def _counted(
    before: jax.Array, after: jax.Array, given: Sequence[bool], counts: Sequence[bool], masks: Sequence[Any]
) -> jax.Array:
    """Return the counts after an update: of those that have a gradient and are not masked."""
    new = after if all(counts) else jnp.where(np.array(counts, bool), after, 1)
    if not all(given):
        new = jnp.where(np.array(given, bool), new, before)
    if all(mask is None for mask in masks):
        return new
    return jnp.where(_one(masks), new, before)


def _one(masks: Sequence[Any]) -> Any:
    """Return one mask for a vector: a scalar where it is the same for all."""
    if all(mask is masks[0] for mask in masks):
        return True if masks[0] is None else masks[0]
    return jnp.stack([jnp.asarray(True if mask is None else mask) for mask in masks])


def _masks(mask: Any, treedef: Any, names: Sequence[str]) -> list[Any]:
    """Return the mask of each parameter, None where it is always updated."""
    one = mask is None or jax.tree_util.all_leaves([mask])
    masks = [mask] * len(names) if one else treedef.flatten_up_to(mask)
    for name, own in zip(names, masks, strict=True):
        if own is not None and jnp.ndim(own):
            raise SpecError("mask", f"must be a scalar for each parameter; of {name} it has shape {jnp.shape(own)}")
    return masks


def _applied(tx: Optimizer, hyper: Mapping[str, Any], traced: bool) -> Callable[..., Callable[..., Any]]:
    """Return what gives the function that updates a parameter: gradient, value, slots, scalars, mask to new ones.

    Args:
        tx: The optimizer.
        hyper: Label of a group to its arguments for this update.
        traced: Whether this is compiled: parameters of one group and shape then share one trace.
    """
    made: dict[Any, Callable[..., Any]] = {}

    def of(group: Group, name: str) -> Callable[..., Any]:
        key = group.label, tx.leaves.axes.get(name)
        if key not in made:
            one = partial(_leaf, tx, name, group, hyper[group.label])
            made[key] = jax.jit(one) if traced else one
        return made[key]

    return of


def _leaf(
    tx: Optimizer,
    name: str,
    group: Group,
    h: Mapping[str, Any],
    grad: Any,
    leaf: Any,
    own: Slots,
    once: Any,
    mask: Any,
) -> tuple[jax.Array, Slots]:
    """Apply the rule of a group to one parameter, in PyTorch's layout and at least in float32."""
    exact = jnp.promote_types(leaf.dtype, jnp.float32)
    forms = {slot.name: slot.form for slot in group.kind.slots}
    turn = lambda x: tx.leaves.to_torch(x, name)  # noqa: E731
    g = turn(grad).astype(exact)
    inside = {k: turn(v).astype(exact) for k, v in own.items() if forms[k] != "scalar"}
    step = StepContext(once, once["first"] != 0, h, leaf.dtype, once["zero"])
    rule, _ = RULES[group.kind.name]
    delta, after = rule(-g if group.arguments.get("maximize") else g, turn(leaf).astype(exact), inside, step)
    back = {k: tx.leaves.to_jax(v, name).astype(own[k].dtype) for k, v in after.items()}
    delta = tx.leaves.to_jax(delta.astype(exact), name)  # a scalar that was given in float64 has promoted it
    if mask is not None:
        delta = jnp.where(mask, delta, -0.0)
        back = {k: jnp.where(mask, v, own[k]) for k, v in back.items()}
    return delta, back


def _require_foreign(given: str, kind: OptimizerKind) -> None:
    """Refuse a name that is meant for this optimizer, or nearly one of its own; what is left is for another part.

    Optax hands the arguments of an update to every part of a chain, such as the `value` of a plateau, and each passes
    over those of others. Nothing says whose a name is, so one that shares a word with an own one is refused.
    """
    known = ["mask", *MOVED]
    words = {word for name in known for word in name.split("_")}
    own = given in (*kind.arguments, *kind.flags) or words & {*given.split("_")}
    if own or difflib.get_close_matches(given, known, n=1, cutoff=0.7):
        raise UnknownNameError("argument of an update", given, known)


def _hyper(tx: Optimizer, group: Group, count: jax.Array, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a group for this update: those given with it come first."""
    h = dict(group.arguments)
    for given, value in extra.items():
        if given not in MOVED:
            _require_foreign(given, group.kind)
            continue
        if isinstance(value, Mapping) and group.label not in value:
            given_for = ", ".join(map(str, value)) or "none"
            raise SpecError(given, f"has no value for the group {group.label!r}; it has: {given_for}")
        one = value[group.label] if isinstance(value, Mapping) else value
        argument = MOVED[given]
        if one is None or argument not in h:
            if one is not None and len(tx.groups) == 1:
                raise UnknownNameError(f"argument of {group.kind.name}", argument, group.kind.arguments)
            continue
        if argument == "momentum" and not has_effect(group.arguments["momentum"]):
            raise SpecError("momentum", "cannot be given with an update of an optimizer that was made without it")
        h[argument] = tuple(jnp.asarray(x, wide()) for x in one) if argument == "betas" else jnp.asarray(one, wide())
    if callable(h["lr"]):
        h["lr"] = h["lr"](count)
    if isinstance(h["lr"], jax.Array):
        h["lr"] = h["lr"].astype(wide())  # a schedule may give float32, in which 1 - lr * decay would be rounded
    h["keep"] = 1 - h["lr"] * h.get("weight_decay", 0)  # in float64 as long as both are numbers of Python
    h["lr"] = jnp.asarray(h["lr"], wide())
    return h

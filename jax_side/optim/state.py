"""State of the optimizers in the neutral form and back, bit for bit."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_side.optim.transform import (
    Leaves,
    Optimizer,
    OptimState,
    by_name,
    leaf_names,
    to_jax,
    to_torch,
    torch_shapes,
)
from parity.contract import GroupRule, NeutralGroup, NeutralOptimizer, TrainingState, optimizer_kind
from parity.errors import StateError

__all__ = ["from_neutral", "optimizer_of", "to_neutral"]


def to_neutral(tx: Optimizer, state: OptimState, params: Any, learning_rate: Any = None) -> TrainingState:
    """Return the neutral form of a state.

    Args:
        tx: The optimizer that made it; all of its groups of one class.
        state: Its state.
        params: The parameters, for names and layouts.
        learning_rate: What the groups show as `lr`: a number, or label to number; the value that `tx` was made with
            by default, and that of its schedule at this point.

    Raises:
        StateError: Groups of several classes: torch has an optimizer for each, so convert them one by one.
    """
    kinds = {group.kind.name for group in tx.groups}
    if len(kinds) > 1:
        raise StateError("optimizer.name", f"groups of {' and '.join(sorted(kinds))}; torch has one optimizer each")
    kind = tx.groups[0].kind
    names, leaves, treedef = leaf_names(tx, params)
    group_of = tx.group_of(torch_shapes(tx, names, leaves))
    steps = treedef.flatten_up_to(state.step)
    trees = {slot: treedef.flatten_up_to(tree) for slot, tree in state.slots.items()}
    slots: dict[str, dict[str, Any]] = {}
    for at, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        if leaf is None or (not kind.eager and not float(steps[at])):
            continue
        own = {"step": np.asarray(steps[at])} if kind.counts else {}
        for slot in kind.kept(group_of[name].arguments, leaf.ndim):
            value = np.asarray(trees[slot.name][at])
            own[slot.name] = value if slot.form == "scalar" else np.ascontiguousarray(to_torch(value, tx, name, leaf))
        slots[name] = own
    groups = []
    for group in tx.groups:
        arguments = {k: v for k, v in group.arguments.items() if k in kind.arguments or k in kind.flags}
        rate = learning_rate[group.label] if isinstance(learning_rate, Mapping) else learning_rate
        if rate is None:
            rate = arguments["lr"](state.count) if callable(arguments["lr"]) else arguments["lr"]
        arguments["lr"] = rate if isinstance(rate, int | float) else float(rate)
        members = [name for name, own in group_of.items() if own.label == group.label]
        groups.append(NeutralGroup.of(kind, members, {**group.carried, **arguments}))
    return NeutralOptimizer(kind=kind, groups=tuple(groups), slots=slots).pack()


def optimizer_of(state: TrainingState, leaves: Leaves | None = None, **options: Any) -> Optimizer:
    """Build the optimizer that a neutral state is of, with its groups and everything they carry.

    Args:
        state: A neutral state, as either side gives it.
        leaves: Names and layouts on PyTorch's side.
        **options: As of `jax_side.optim.sgd`; `scalar_dtype` is that of the counts unless given.

    Raises:
        StateError: It is not whole.
    """
    groups, name = state.scalars.get("optimizer.groups"), state.scalars.get("optimizer.name")
    if not isinstance(groups, list) or not isinstance(name, str):
        raise StateError("optimizer.name", "is missing, or optimizer.groups is")
    kind = optimizer_kind(name)
    counts = [v.dtype for k, v in state.arrays.items() if k.startswith("optimizer.step.")]
    options.setdefault("scalar_dtype", str(counts[0]) if counts else "float32")
    known = {*kind.arguments, *kind.flags}
    own = [{k: tuple(v) if isinstance(v, list) else v for k, v in one.items() if k in known} for one in groups]
    carried = [{k: v for k, v in one.items() if k not in known and k != "params"} for one in groups]
    if len(groups) == 1:
        tx = by_name(name, own[0], leaves=leaves, **options)
    else:
        rules = [
            GroupRule(label=f"group {at}", names=tuple(map(glob.escape, one["params"])), arguments=own[at])
            for at, one in enumerate(groups)
        ]
        tx = by_name(name, {}, groups=rules, leaves=leaves, **options)
    pairs = zip(tx.groups, carried, strict=True)
    tx.groups = tuple(replace(group, carried=more) for group, more in pairs)
    return tx


def from_neutral(tx: Optimizer, state: TrainingState, params: Any, count: int | None = None) -> OptimState:
    """Return the state of an optimizer from its neutral form.

    Args:
        tx: The optimizer; `optimizer_of` builds one that fits.
        state: A neutral state, as either side gives it.
        params: The parameters.
        count: Position of a learning rate that is a schedule; the largest count of updates by default.

    Raises:
        StateError: A leaf that is missing, unexpected, or of another dtype or shape; groups or arguments that are not
            those of `tx`.
    """
    names, leaves, treedef = leaf_names(tx, params)
    shapes = torch_shapes(tx, names, leaves)
    found = NeutralOptimizer.unpack(state, shapes)
    _compare(tx, found, shapes)
    empty = tx.init(params)
    steps = treedef.flatten_up_to(empty.step)
    trees = {slot: treedef.flatten_up_to(tree) for slot, tree in empty.slots.items()}
    forms = {slot.name: slot.form for slot in found.kind.slots}
    for at, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        for slot, value in found.slots.get(name, {}).items():
            old = steps[at] if slot == "step" else trees[slot][at]
            if value.dtype != old.dtype:
                raise StateError(f"optimizer.{slot}.{name}", f"expected {old.dtype}, got {value.dtype}")
            if slot == "step":
                steps[at] = jnp.asarray(value)
            else:
                new = jnp.asarray(value)
                trees[slot][at] = new if forms[slot] == "scalar" else to_jax(new, tx, name, leaf)
        if not found.kind.counts and found.slots.get(name):
            steps[at] = jnp.ones_like(steps[at])
    position = count if count is not None else int(max((float(s) for s in steps if s is not None), default=0))
    return OptimState(
        count=jnp.asarray(position, jnp.int32),
        step=treedef.unflatten(steps),
        slots={slot: treedef.unflatten(values) for slot, values in trees.items()},
    )


def _compare(tx: Optimizer, found: NeutralOptimizer, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a state whose class, groups or arguments are not those of an optimizer; its rate may be another one."""
    if {found.kind.name} != {group.kind.name for group in tx.groups}:
        raise StateError("optimizer.name", f"expected {tx.groups[0].kind.name}, got {found.kind.name}")
    group_of = tx.group_of(shapes)
    for at, group in enumerate(found.groups):
        labels = {group_of[name].label for name in group.params}
        if len(labels) > 1 or len(found.groups) != len(tx.groups):
            raise StateError(f"optimizer.groups.{at}", "has other parameters than the groups of this optimizer")
        for own in (group_of[name] for name in group.params[:1]):
            for name in found.kind.arguments:
                if name != "lr" and group.arguments[name] != own.arguments[name]:
                    expected, got = own.arguments[name], group.arguments[name]
                    raise StateError(f"optimizer.groups.{at}.{name}", f"expected {expected!r}, got {got!r}")

"""State of the optimizers in the neutral form and back, bit for bit."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_side.optim.groups import Group, Optimizer, OptimState
from jax_side.optim.leaves import Leaves
from jax_side.optim.transform import by_name
from parity.errors import StateError, UnknownNameError
from parity.state import GroupRule, NeutralGroup, NeutralOptimizer, TrainingState, optimizer_kind

__all__ = ["from_neutral", "optimizer_of", "to_neutral"]


def to_neutral(
    tx: Optimizer,
    state: OptimState,
    params: Any,
    learning_rate: Any = None,
    *,
    betas: Any = None,
    momentum: Any = None,
) -> TrainingState:
    """Return the neutral form of a state.

    Args:
        tx: The optimizer that made it; all of its groups of one class.
        state: Its state.
        params: The parameters, for names and layouts.
        learning_rate: What the groups show as `lr`: a number, or label to number; the value that `tx` was made with
            by default, and that of its schedule at this point.
        betas: What the groups show as `betas`, as of `learning_rate`; for a schedule that moves them.
        momentum: What the groups show as `momentum`, likewise. `optimizer_of` builds an optimizer with these values,
            and `from_neutral` takes the state for no other.

    Raises:
        StateError: Groups of several classes: torch has an optimizer for each, so convert them one by one; or a group
            without a value where others have one.
        UnknownNameError: Betas or a momentum of an optimizer that takes none.

    Numerics: bit for bit; arrays are transposed to PyTorch's layout, never rounded.

    Example:
        >>> import jax.numpy as jnp
        >>> from jax_side.optim import sgd
        >>> tx, params = sgd(lr=0.5, momentum=0.9), {"w": jnp.ones(2)}
        >>> _, state = tx.update({"w": jnp.ones(2)}, tx.init(params), params)
        >>> neutral = to_neutral(tx, state, params)
        >>> sorted(neutral.arrays), neutral.scalars["optimizer.groups"][0]["lr"]
        (['optimizer.momentum.w'], 0.5)
        >>> from_neutral(optimizer_of(neutral), neutral, params).slots["momentum"]["w"].tolist()
        [1.0, 1.0]
    """
    kinds = {group.kind.name for group in tx.groups}
    if len(kinds) > 1:
        raise StateError("optimizer.name", f"groups of {' and '.join(sorted(kinds))}; torch has one optimizer each")
    kind = tx.groups[0].kind
    names, leaves, treedef = tx.leaves.flatten(params)
    group_of = tx.group_of(tx.leaves.shapes(names, leaves))
    steps = np.asarray(state.step)
    trees = {slot: treedef.flatten_up_to(tree) for slot, tree in state.slots.items()}
    slots: dict[str, dict[str, Any]] = {}
    for at, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        if leaf is None or (not kind.eager and not float(steps[at])):
            continue
        own = {"step": np.asarray(steps[at])} if kind.counts else {}
        for slot in kind.kept(group_of[name].arguments, leaf.ndim):
            value = np.asarray(trees[slot.name][at])
            turned = value if slot.form == "scalar" else tx.leaves.to_torch(value, name)
            own[slot.name] = np.asarray(turned, order="C")  # ascontiguousarray would give a scalar a dimension
        slots[name] = own
    groups = []
    for group in tx.groups:
        arguments = _shown(group, state, {"lr": learning_rate, "betas": betas, "momentum": momentum})
        members = [name for name, own in group_of.items() if own.label == group.label]
        groups.append(NeutralGroup.of(kind, members, {**group.carried, **arguments}))
    return NeutralOptimizer(kind=kind, groups=tuple(groups), slots=slots).pack()


def _shown(group: Group, state: OptimState, moved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments and flags of a group as a state shows them, with the values that a schedule has moved."""
    known = {*group.kind.arguments, *group.kind.flags}
    arguments = {k: v for k, v in group.arguments.items() if k in known}
    for name, value in moved.items():
        if isinstance(value, Mapping) and group.label not in value:
            raise StateError(f"optimizer.groups.{name}", f"has no value for the group {group.label!r}")
        one = value[group.label] if isinstance(value, Mapping) else value
        if one is not None and name not in arguments:
            raise UnknownNameError(f"argument of {group.kind.name}", name, group.kind.arguments)
        if one is not None:
            arguments[name] = one
    rate = arguments["lr"](state.count) if callable(arguments["lr"]) else arguments["lr"]
    arguments["lr"] = rate if isinstance(rate, int | float) else float(rate)
    for name in {"betas", "momentum"} & arguments.keys():
        value = arguments[name]
        plain = isinstance(value, int | float)
        arguments[name] = value if plain else tuple(map(float, value)) if name == "betas" else float(value)
    return arguments


def optimizer_of(state: TrainingState, leaves: Leaves | None = None, **options: Any) -> Optimizer:
    """Build the optimizer that a neutral state is of, with its groups and everything they carry.

    Args:
        state: A neutral state, as either side gives it.
        leaves: Names and layouts on PyTorch's side.
        **options: As of `jax_side.optim.sgd`; `scalar_dtype` is that of the counts unless given, JAX's default where
            there is no count yet.

    Raises:
        StateError: It has no `optimizer.name` or no `optimizer.groups`.
        SpecError: An argument outside of its range, or an optimizer without a counterpart.
        UnknownNameError: There is no such optimizer, or no such option.
    """
    groups, name = state.scalars.get("optimizer.groups"), state.scalars.get("optimizer.name")
    if not isinstance(groups, list) or not isinstance(name, str):
        raise StateError("optimizer.name", "is missing, or optimizer.groups is")
    kind = optimizer_kind(name)
    counts = [v.dtype for k, v in state.arrays.items() if k.startswith("optimizer.step.")]
    if counts:
        options.setdefault("scalar_dtype", str(counts[0]))
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
        count: Calls of `update` so far, also those that a mask skipped: the position of a learning rate that is a
            schedule, needed where there is one. The state has the updates of each parameter only.

    Raises:
        StateError: A leaf that is missing, unexpected, or of another dtype or shape; groups or arguments that are not
            those of `tx`; a learning rate that is a schedule, without its position.
        SpecError: An argument outside of its range, or an optimizer without a counterpart.
        UnknownNameError: There is no such optimizer.

    Numerics: bit for bit; arrays are transposed from PyTorch's layout, never rounded.
    """
    names, leaves, treedef = tx.leaves.flatten(params)
    shapes = tx.leaves.shapes(names, leaves)
    found = NeutralOptimizer.unpack(state, shapes)
    _compare(tx, found, shapes)
    empty = _empty(tx, found, params)
    steps = np.array(empty.step)
    trees = {slot: treedef.flatten_up_to(tree) for slot, tree in empty.slots.items()}
    forms = {slot.name: slot.form for slot in found.kind.slots}
    for at, name in enumerate(names):
        for slot, value in found.slots.get(name, {}).items():
            dtype = steps.dtype if slot == "step" else trees[slot][at].dtype
            if value.dtype != dtype:
                raise StateError(f"optimizer.{slot}.{name}", f"expected {dtype}, got {value.dtype}")
            if slot == "step":
                steps[at] = value
            else:
                new = jnp.asarray(value)
                trees[slot][at] = new if forms[slot] == "scalar" else tx.leaves.to_jax(new, name)
        if not found.kind.counts and found.slots.get(name):
            steps[at] = 1
    if count is None and any(callable(group.arguments["lr"]) for group in tx.groups):
        raise StateError(
            "optimizer.groups.lr", "is a schedule here; give its position: from_neutral(..., count=CALLS)"
        )
    position = count if count is not None else int(steps.max(initial=0))
    return OptimState(
        count=jnp.asarray(position, jnp.int32),
        step=jnp.asarray(steps),
        slots={slot: treedef.unflatten(values) for slot, values in trees.items()},
    )


def _empty(tx: Optimizer, found: NeutralOptimizer, params: Any) -> OptimState:
    """Return the state before the first step, its scalars in the dtype of those counts unless `tx` has one."""
    counts = [own["step"].dtype for own in found.slots.values() if "step" in own]
    if tx.scalar_dtype is not None or not counts:
        return tx.init(params)
    tx.scalar_dtype = jnp.dtype(counts[0])
    try:
        return tx.init(params)
    finally:
        tx.scalar_dtype = None


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

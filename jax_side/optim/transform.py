"""Build an optimizer as a transformation of Optax, and its state before the first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from jax_side.optim.arguments import resolved
from jax_side.optim.arithmetic import wide
from jax_side.optim.groups import Group, Optimizer, OptimState
from jax_side.optim.leaves import Leaves
from jax_side.optim.update import updated
from parity.errors import SpecError, StateError
from parity.state import GroupRule, OptimizerKind, optimizer_kind, slot_shape

__all__ = ["by_name", "make"]


def make(name: str, given: Mapping[str, Any], options: Mapping[str, Any]) -> Optimizer:
    """Build an optimizer.

    Args:
        name: Class of torch.optim.
        given: Its arguments; torch's defaults for the others.
        options: Further arguments, torch's flags among them, and four of ours. `groups`: rules of parameter groups,
            one group of all parameters without. `kinds`: neutral name to kind of parameter, where rules ask for it.
            `leaves`: names and layouts on PyTorch's side. `scalar_dtype`: of counts, NAdam's product and ASGD's rate;
            by default that of JAX's own numbers, float64 with 64-bit types and float32 without, as PyTorch keeps them
            in its default dtype. Where the two defaults differ, as for a model in float64 under PyTorch's default of
            float32, say it here; `optimizer_of` and `from_neutral` take it from the counts of a state.

    Raises:
        UnknownNameError: An optimizer or an argument that does not exist.
        SpecError: A value outside of its range.
    """
    kind, own = optimizer_kind(name), {**options, **(options.get("options") or {})}
    own.pop("options", None)  # optax.inject_hyperparams binds what it does not know to the name of the parameter
    rules: Sequence[GroupRule] = own.pop("groups", ())
    kinds, leaves = own.pop("kinds", None), own.pop("leaves", None)
    scalar_dtype, iteration = own.pop("scalar_dtype", None), own.pop("iteration_dtype", None)
    given = {**given, **own}
    if not rules:
        groups: tuple[Group, ...] = (Group(label="all", kind=kind, arguments=resolved(kind, given)),)
    else:
        groups = tuple(_group(rule, kind, given) for rule in rules)
    scalar = None if scalar_dtype is None else jnp.dtype(scalar_dtype)
    if scalar not in (None, jnp.float32, jnp.float64):
        raise SpecError("scalar_dtype", f"must be float32 or float64, got {scalar}")
    if iteration is not None:  # of Muon alone, and no argument of torch's
        groups = tuple(replace(g, arguments={**g.arguments, "iteration_dtype": jnp.dtype(iteration)}) for g in groups)
    tx: Optimizer = Optimizer(lambda params: _init(tx, params), lambda *args, **extra: updated(tx, *args, **extra))
    tx.groups, tx.rules, tx.kinds = groups, tuple(rules), kinds
    tx.leaves, tx.scalar_dtype = leaves or Leaves(), scalar
    return tx


def _group(rule: GroupRule, kind: OptimizerKind, given: Mapping[str, Any]) -> Group:
    own = dict(rule.arguments)
    other = own.pop("optimizer", None)
    if other is not None and optimizer_kind(other).name != kind.name:
        kind, given = optimizer_kind(other), {}
    named = {slot.start for slot in kind.slots if isinstance(slot.start, str)} & own.keys() if other is None else ()
    starts = {name: resolved(kind, given)[name] for name in named}
    return Group(label=rule.label, kind=kind, arguments=resolved(kind, {**given, **own}), starts=starts)


def _init(tx: Optimizer, params: Any) -> OptimState:
    names, leaves, treedef = tx.leaves.flatten(params)
    if not leaves:
        return _outline(tx, params)
    if tx.scalar_dtype == jnp.float64 and wide() != jnp.float64:
        raise SpecError("scalar_dtype", "float64 needs 64-bit types: jax.enable_x64(True)")
    scalar = tx.scalar_dtype or wide()
    shapes = tx.leaves.shapes(names, leaves)
    group_of = tx.group_of(shapes)
    _check(names, leaves, group_of)
    slots: dict[str, list[Any]] = {slot.name: [None] * len(names) for g in tx.groups for slot in g.kind.slots}
    for at, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        if leaf is None:
            continue
        group = group_of[name]
        for slot in group.kind.kept(group.arguments, leaf.ndim):
            dtype = scalar if slot.form == "scalar" else leaf.dtype
            start = {**group.arguments, **group.starts}[slot.start] if isinstance(slot.start, str) else slot.start
            value = tx.leaves.to_jax(jnp.full(slot_shape(slot, shapes[name]), start, dtype), name)
            slots[slot.name][at] = _placed(value, leaf)
    return OptimState(
        count=_beginning(leaves),
        step=jnp.zeros(len(leaves), scalar),
        slots={
            name: treedef.unflatten(values) for name, values in slots.items() if any(v is not None for v in values)
        },
    )


def _outline(tx: Optimizer, params: Any) -> OptimState:
    """Return the state of a tree without leaves, such as the stand-in of `optax.tree.map_params` for any parameters.

    A slot in the shape of its parameter is the tree itself. Which parameters have the others follows from shapes,
    which are not known: the slots of a group that has such are one value that stands for none.
    """
    slots: Any = {}
    for group in tx.groups:
        for slot in group.kind.slots:
            if slot.form in ("rows", "columns", "unfactored"):
                return OptimState(jnp.zeros((), jnp.int32), jnp.zeros(0), slots=jnp.zeros(0))
            if slot.is_kept(group.arguments, 0):
                slots[slot.name] = jnp.zeros(0) if slot.form == "scalar" else params
    return OptimState(jnp.zeros((), jnp.int32), jnp.zeros(0, tx.scalar_dtype or wide()), slots)


def _placed(value: jax.Array, leaf: Any) -> jax.Array:
    """Put a slot beside its parameter: on the same devices, and divided as it is where it is as long."""
    if isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, jax.Array) or not leaf.committed:
        return value
    sharding = leaf.sharding
    if value.shape == leaf.shape:
        return jax.device_put(value, sharding)
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return value
    spec = [*sharding.spec, *[None] * leaf.ndim][: leaf.ndim] if value.ndim == leaf.ndim else []
    own = [part if value.shape[at] == leaf.shape[at] else None for at, part in enumerate(spec)]
    return jax.device_put(value, jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*own)))


def _beginning(leaves: Sequence[Any]) -> jax.Array:
    """Return the count 0; within a compiled function as one that only its run knows, which `unknown_zero` needs."""
    traced = [leaf for leaf in leaves if isinstance(leaf, jax.core.Tracer) and leaf.size]
    if not traced or getattr(jax.typeof(traced[0]), "vma", None):
        return jnp.zeros((), jnp.int32)
    smallest = min(traced, key=lambda leaf: leaf.size)
    first = jax.lax.slice(smallest, (0,) * smallest.ndim, (1,) * smallest.ndim).reshape(())
    bits = jax.lax.bitcast_convert_type(first.astype(jnp.float32), jnp.int32)
    return jnp.where((bits * bits & 7) == 5, bits, 0)


def _check(names: Sequence[str], leaves: Sequence[Any], group_of: Mapping[str, Group]) -> None:
    """Refuse parameters that an optimizer is not for."""
    dtypes: dict[str, set[Any]] = {}
    for name, leaf in zip(names, leaves, strict=True):
        if leaf is None:
            continue
        group = group_of[name]
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise StateError(name, f"expected a floating dtype, got {leaf.dtype}; split a complex parameter in two")
        if group.kind.name == "Muon" and leaf.ndim != 2:
            raise StateError(
                name, f"Muon is for matrices, got shape {leaf.shape}; give a group of its own with another optimizer"
            )
        dtypes.setdefault(group.label, set()).add(leaf.dtype)
        eps = group.arguments.get("eps")
        if isinstance(eps, tuple) and eps[0] is None and len(dtypes[group.label]) > 1:
            raise StateError(
                name, "Adafactor's first eps follows the dtype, and torch takes that of the first parameter; give eps"
            )


def by_name(name: str, arguments: Mapping[str, Any], **options: Any) -> Optimizer:
    """Build an optimizer by the name of its class in torch.optim.

    Args:
        name: Such as `NAdam`, in any case of letters.
        arguments: Its arguments; torch's defaults for the others.
        **options: As of `jax_side.optim.sgd`.

    Raises:
        UnknownNameError: An optimizer, an argument or an option that does not exist.
        SpecError: A value outside of its range, or an optimizer without a counterpart; says why.

    Example:
        >>> by_name("Rprop", {"lr": 0.1}).groups[0].arguments["etas"]
        (0.5, 1.2)
    """
    return make(name, arguments, options)

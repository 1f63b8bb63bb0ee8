"""The transformation of every optimizer of this package: one rule per parameter, torch's counts and arguments.

A rule is a pure function of one parameter. The transformation applies it to each parameter of its group, counts the
updates of each parameter, leaves those without a gradient alone, and hands the learning rate over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_side.optim.arithmetic import halved, like, rounded, unknown_zero, wide
from jax_side.optim.leaves import Leaves
from parity.contract import GroupRule, OptimizerKind, assign_groups, optimizer_kind, slot_shape
from parity.errors import SpecError, StateError, UnknownNameError

__all__ = [
    "Group",
    "OptimState",
    "Optimizer",
    "Rule",
    "Scalars",
    "Slots",
    "Step",
    "by_name",
    "make",
    "moved",
    "register",
]

MOVED = {"learning_rate": "lr", "betas": "betas", "momentum": "momentum"}
"""What an update may be given, and the argument it stands for."""


class Step(NamedTuple):
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
        return self.product(p * like(self.h["keep"], p)) if self.h["weight_decay"] else p


Slots = dict[str, jax.Array]
"""Neutral slot name to value, of one parameter."""

Rule = Callable[[jax.Array, jax.Array, Slots, Step], tuple[jax.Array, Slots]]
"""Gradient, parameter, slots, step to what is added to the parameter, and its new slots; in PyTorch's layout.

Written kernel by kernel as PyTorch runs them on a CPU: what one kernel leaves for the next passes `Step.stored` or
`Step.product`, and within a kernel XLA may contract a product and a sum, as PyTorch's own compiler does."""

Scalars = Callable[[Mapping[str, Any], jax.Array, jax.Array, Mapping[str, jax.Array]], dict[str, jax.Array]]
"""Arguments of a group, updates of each of its parameters with this one included, whether it is the first, and slots
that are scalars, all as vectors over the parameters; to vectors by name, new values of those slots among them.

Once for all parameters: a kernel for each would take most of the time of compilation."""

_RULES: dict[str, tuple[Rule, Scalars | None]] = {}


def register(name: str, rule: Rule, scalars: Scalars | None = None) -> None:
    """Give an optimizer of the table its rule.

    Args:
        name: Its name in the table, such as `Adam`.
        rule: What computes its update of one parameter.
        scalars: What computes the scalars of a step, of all parameters of a group.
    """
    _RULES[name] = rule, scalars


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


class OptimState(NamedTuple):
    """State of an optimizer.

    PyTorch counts updates for each parameter, Optax once for all; a parameter that is unfrozen late has another bias
    correction, so the types of Optax, which have one count, cannot hold the state.
    """

    count: jax.Array
    """Calls of `update`, int32: the position of a learning rate that is a schedule."""
    step: jax.Array
    """Updates of each parameter, in the order of the leaves, 0 before its first one; where torch keeps no count (SGD,
    Muon, Lion), 1 after the first. One vector: a hundred scalars cost a call half a millisecond."""
    slots: dict[str, Any]
    """Neutral slot name to a tree like the parameters, None where a parameter has no such slot."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """One parameter group with all of its arguments."""

    label: str
    kind: OptimizerKind
    arguments: Mapping[str, Any]
    carried: Mapping[str, Any] = field(default_factory=dict)
    """Keys of torch's group that mean nothing here, such as the `initial_lr` of a scheduler."""


class Optimizer(optax.GradientTransformationExtraArgs):
    """An Optax transformation that knows its groups, so that its state can be converted.

    `init(params)` returns an `OptimState`. `update(grads, state, params)` also takes `mask`, and the values that a
    schedule moves: `learning_rate`, `betas`, `momentum`, each one for all groups or label to value.
    """

    groups: tuple[Group, ...]
    rules: tuple[GroupRule, ...]
    kinds: Mapping[str, str] | None
    leaves: Leaves
    scalar_dtype: Any
    """Of counts, NAdam's product and ASGD's rate; None to follow JAX's default, when a state is made."""

    def group_of(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, Group]:
        """Return the group of each parameter, by neutral name.

        Args:
            shapes: Neutral name to shape, in PyTorch's layout.

        Raises:
            SpecError: As of `parity.contract.assign_groups`.
        """
        if not self.rules:
            return dict.fromkeys(shapes, self.groups[0])
        by_label = {group.label: group for group in self.groups}
        return {name: by_label[label] for name, label in assign_groups(self.rules, shapes, self.kinds).items()}


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
    kind, own = optimizer_kind(name), dict(options)
    rules: Sequence[GroupRule] = own.pop("groups", ())
    kinds, leaves = own.pop("kinds", None), own.pop("leaves", None)
    scalar_dtype, iteration = own.pop("scalar_dtype", None), own.pop("iteration_dtype", None)
    given = {**given, **own}
    if not rules:
        groups: tuple[Group, ...] = (Group(label="all", kind=kind, arguments=kind.resolve(given)),)
    else:
        groups = tuple(_group(rule, kind, given) for rule in rules)
    scalar = None if scalar_dtype is None else jnp.dtype(scalar_dtype)
    if scalar not in (None, jnp.float32, jnp.float64):
        raise SpecError("scalar_dtype", f"must be float32 or float64, got {scalar}")
    if iteration is not None:  # of Muon alone, and no argument of torch's
        groups = tuple(replace(g, arguments={**g.arguments, "iteration_dtype": jnp.dtype(iteration)}) for g in groups)
    tx: Optimizer = Optimizer(lambda params: _init(tx, params), lambda *args, **extra: _update(tx, *args, **extra))
    tx.groups, tx.rules, tx.kinds = groups, tuple(rules), kinds
    tx.leaves, tx.scalar_dtype = leaves or Leaves(), scalar
    return tx


def _group(rule: GroupRule, kind: OptimizerKind, given: Mapping[str, Any]) -> Group:
    own = dict(rule.arguments)
    other = own.pop("optimizer", None)
    if other is not None and optimizer_kind(other).name != kind.name:
        kind, given = optimizer_kind(other), {}
    return Group(label=rule.label, kind=kind, arguments=kind.resolve({**given, **own}))


def _init(tx: Optimizer, params: Any) -> OptimState:
    names, leaves, treedef = tx.leaves.flatten(params)
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
            start = group.arguments[slot.start] if isinstance(slot.start, str) else slot.start
            value = jnp.full(slot_shape(slot, shapes[name]), start, dtype)
            slots[slot.name][at] = tx.leaves.to_jax(value, name)
    return OptimState(
        count=_beginning(leaves),
        step=jnp.zeros(len(leaves), scalar),
        slots={
            name: treedef.unflatten(values) for name, values in slots.items() if any(v is not None for v in values)
        },
    )


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


def _update(
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
    steps = _steps(tx, state, group_of, (names, leaves, given, slots, masks), hyper)
    deltas: list[Any] = []
    for at, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        if not given[at]:
            deltas.append(None if leaf is None else jnp.full_like(leaf, -0.0))  # x + -0.0 is x, also for x = -0.0
            continue
        own = {slot: values[at] for slot, values in slots.items() if values[at] is not None}
        delta, kept = _leaf(tx, name, group_of[name], steps[at], (grads[at], leaf, own), masks[at])
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


def _steps(
    tx: Optimizer, state: OptimState, group_of: Mapping[str, Group], values: tuple[Any, ...], hyper: Mapping[str, Any]
) -> dict[int, Step]:
    """Return what each parameter's rule knows, by its place; put the new values of scalar slots into the slots."""
    names, leaves, given, slots, masks = values
    zero, found = unknown_zero(state.count), {}
    for group in tx.groups:
        places = [at for at, name in enumerate(names) if given[at] and group_of[name].label == group.label]
        if not places:
            continue
        h, scalars = hyper[group.label], _RULES[group.kind.name][1]
        before = state.step if len(places) == len(names) else state.step[np.array(places)]
        first = before == 0
        t = (before + 1 if group.kind.counts else jnp.ones_like(before)).astype(wide())
        kept = [slot.name for slot in group.kind.slots if slot.form == "scalar"]
        old = {name: jnp.stack([slots[name][at] for at in places]) for name in kept}
        vectors = scalars(h, t, first, old) if scalars else {}
        for name in kept:
            new = vectors.pop(name).astype(old[name].dtype)
            own = [masks[at] for at in places]
            if any(mask is not None for mask in own):
                new = jnp.where(_one(own), new, old[name])
            slots[name] = _put(slots[name], places, new)
        rows = _rows({**vectors, "first": first}, len(places), zero)
        for at, row in zip(places, rows, strict=True):
            found[at] = Step(row, row.pop("first") != 0, h, leaves[at].dtype, zero)
    return found


def _rows(vectors: Mapping[str, jax.Array], count: int, zero: jax.Array) -> list[dict[str, jax.Array]]:
    """Return the elements of vectors for each parameter.

    Parameters of one shape share one compiled kernel as long as it is the same to the letter. A slice of its own in
    it would make one of each: so slices are taken in a branch of their own, which nothing is fused into. With it 60
    parameters compile in the time of Optax, without it in four times that.
    """
    names = list(vectors)
    table = jnp.stack([jnp.broadcast_to(vectors[name].astype(wide()), (count,)) for name in names], axis=1)
    split = lambda t: [jax.lax.index_in_dim(t, row, keepdims=False) for row in range(count)]  # noqa: E731
    none = lambda t: [jnp.zeros(len(names), t.dtype)] * count  # noqa: E731
    rows = jax.lax.cond(zero == 0, split, none, table) if count > 1 else split(table)
    return [{name: row[at] for at, name in enumerate(names)} for row in rows]


def _put(values: Sequence[Any], places: Sequence[int], vector: jax.Array) -> list[Any]:
    """Return values with the elements of a vector at some places."""
    new = list(values)
    for row, at in enumerate(places):
        new[at] = jax.lax.index_in_dim(vector, row, keepdims=False)
    return new


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


def _leaf(
    tx: Optimizer, name: str, group: Group, step: Step, values: tuple[Any, ...], mask: Any
) -> tuple[jax.Array, Slots]:
    """Apply the rule of a group to one parameter, in PyTorch's layout and at least in float32."""
    grad, leaf, own = values
    exact = jnp.promote_types(leaf.dtype, jnp.float32)
    forms = {slot.name: slot.form for slot in group.kind.slots}
    turn = lambda x: tx.leaves.to_torch(x, name)  # noqa: E731
    g = turn(grad).astype(exact)
    inside = {k: turn(v).astype(exact) for k, v in own.items() if forms[k] != "scalar"}
    rule, _ = _RULES[group.kind.name]
    delta, after = rule(-g if group.arguments.get("maximize") else g, turn(leaf).astype(exact), inside, step)
    back = {k: tx.leaves.to_jax(v, name).astype(own[k].dtype) for k, v in after.items()}
    delta = tx.leaves.to_jax(delta, name)
    if mask is not None:
        delta = jnp.where(mask, delta, -0.0)
        back = {k: jnp.where(mask, v, own[k]) for k, v in back.items()}
    return delta, back


def _hyper(tx: Optimizer, group: Group, count: jax.Array, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a group for this update: those given with it come first."""
    h = dict(group.arguments)
    for given, value in extra.items():
        if given not in MOVED:
            raise UnknownNameError("argument of an update", given, ["mask", *MOVED])
        if isinstance(value, Mapping) and group.label not in value:
            given_for = ", ".join(map(str, value)) or "none"
            raise SpecError(given, f"has no value for the group {group.label!r}; it has: {given_for}")
        one = value[group.label] if isinstance(value, Mapping) else value
        argument = MOVED[given]
        if one is None or argument not in h:
            if one is not None and len(tx.groups) == 1:
                raise UnknownNameError(f"argument of {group.kind.name}", argument, group.kind.arguments)
            continue
        if argument == "momentum" and not group.arguments["momentum"]:
            raise SpecError("momentum", "cannot be given with an update of an optimizer that was made without it")
        h[argument] = tuple(jnp.asarray(x, wide()) for x in one) if argument == "betas" else jnp.asarray(one, wide())
    if callable(h["lr"]):
        h["lr"] = h["lr"](count)
    h["keep"] = 1 - h["lr"] * h.get("weight_decay", 0)  # in float64 as long as both are numbers of Python
    h["lr"] = jnp.asarray(h["lr"], wide())
    return h


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

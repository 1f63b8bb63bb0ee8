"""What the state of an Optax transformation is made of: moments, counts and hyperparameters, through its wrappers.

A saved state has no names of transformations, only the fields of their states. Each of those below has fields of its
own, so that a state with any other fields is of no transformation that is known, and is refused by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from parity.errors import CheckpointError
from parity.formats import Array, InMemory, Key, Tree, leaf_name, leaves

__all__ = ["HYPERPARAMETERS", "Hyperparameter", "Moments", "Parts", "parts_of_optax"]

SECOND = "second_moment"

MOMENTS: Mapping[frozenset[str], Mapping[str, str]] = {
    frozenset({"count", "mu", "nu"}): {"mu": "first_moment", "nu": SECOND},
    frozenset({"trace"}): {"trace": "momentum"},
}
"""Fields of a state to its trees like the parameters, and the slot that each is: `scale_by_adam`, `trace`."""

INJECTED = {"count", "hyperparams", "inner_state"}
MULTI_STEPS = {"mini_step", "gradient_step", "inner_opt_state", "acc_grads", "skip_state"}
IF_FINITE = {"notfinite_count", "last_finite", "total_notfinite", "inner_state"}

KNOWN_FIELDS = {
    *MOMENTS,
    frozenset(MULTI_STEPS),
    frozenset(IF_FINITE),
    *map(frozenset, ({"inner_state"}, {"inner_states"})),
}
HYPER = "hyperparams"
"""The field by which leaves of `inject_hyperparams` are told from others; no name in a `named_chain`."""

HYPERPARAMETERS = {
    "learning_rate": "lr",
    "weight_decay": "weight_decay",
    "eps": "eps",
    "momentum": "momentum",
    "b1": "betas.0",
    "b2": "betas.1",
}
"""Arguments of Optax's functions to those of torch's groups; a number after the dot is the place in a tuple."""

KNOWN = (
    "chain, named_chain, scale_by_adam, trace, schedules, clipping and decay, masked, partition, inject_hyperparams, "
    "MultiSteps and apply_if_finite are"
)


@dataclass(frozen=True)
class Moments:
    """The state of one transformation that keeps arrays like the parameters."""

    slots: Mapping[str, Mapping[str, tuple[str, Array]]]
    """Slot to path of a parameter to the leaf and its array."""
    count: tuple[str, Array] | None
    """Leaf that counts its updates."""

    @property
    def paths(self) -> set[str]:
        """Return the paths of the parameters that it has arrays of."""
        return {path for own in self.slots.values() for path in own}


@dataclass(frozen=True)
class Hyperparameter:
    """One value of `inject_hyperparams`."""

    leaf: str
    name: str
    """Argument of Optax's function."""
    value: Array
    paths: frozenset[str] | None
    """Parameters that it is for; None where what it is given to keeps nothing like them, as SGD without momentum."""
    masked: bool
    """Whether a part of what it is given to is masked, as decay is that some parameters do not have."""
    within: bool = False
    """Whether it is within a mask or one of several labels, so that it may be for some parameters alone."""
    moved: bool = False
    """Whether a schedule of the code gives it anew with each update, so that it is that of the last one."""
    place: Literal["", "before", "after"] = ""
    """Where what it is given to stands beside the moments in the chain; empty where nothing tells."""


@dataclass
class Parts:
    """The state of a transformation, taken apart."""

    moments: list[Moments] = field(default_factory=list)
    schedules: dict[str, Array] = field(default_factory=dict)
    """Leaves that count updates for a schedule."""
    counts: dict[str, Array] = field(default_factory=dict)
    """Other leaves that count updates."""
    hyperparameters: list[Hyperparameter] = field(default_factory=list)
    masked: bool = False
    """Whether a part of it is masked."""
    zeros: dict[str, Array] = field(default_factory=dict)
    """Leaves that are zero between two updates, such as gradients that are accumulated."""
    flags: dict[str, Array] = field(default_factory=dict)
    """Leaves that are as at the beginning unless a gradient was not finite."""

    def of_kind(self, kind: str) -> Parts:
        """Return it with the slots of a class of torch.optim: what Adamax keeps as `nu` is a largest value."""
        if kind == "Adamax":
            slots = [{"infinity_norm" if s == SECOND else s: own for s, own in m.slots.items()} for m in self.moments]
            self.moments = [replace(one, slots=own) for one, own in zip(self.moments, slots, strict=True)]
        return self

    def take(self, other: Parts) -> None:
        """Add what a part of it is made of."""
        self.moments += other.moments
        self.hyperparameters += other.hyperparameters
        self.masked |= other.masked
        for mine, its in (
            (self.schedules, other.schedules),
            (self.counts, other.counts),
            (self.zeros, other.zeros),
            (self.flags, other.flags),
        ):
            mine |= its

    def paths(self) -> set[str]:
        """Return the paths of all parameters that have arrays."""
        return {path for one in self.moments for path in one.paths}


def parts_of_optax(tree: Tree, where: str, at: tuple[Key, ...] = ("opt_state",)) -> Parts:
    """Take the state of a transformation apart.

    Args:
        tree: Its containers as they are saved: a tuple as a list, or a dict of "0", "1", ...; fields as a dict.
        where: The checkpoint or the transformation, for messages.
        at: Keys on the way to it.

    Raises:
        CheckpointError: A part of it is of no transformation that is known; names its place and its fields.

    Example:
        >>> import numpy as np
        >>> from parity.formats import InMemory
        >>> one = InMemory(np.zeros(2))
        >>> parts = parts_of_optax([{}, [{"trace": {"w": one}}, {"count": InMemory(np.array(7))}]], "checkpoint")
        >>> parts.paths(), list(parts.schedules)
        ({'w'}, ['opt_state.1.1.count'])
    """
    found = Parts()
    _visit(tree, at, found, where)
    return found


def _visit(node: Tree, at: tuple[Key, ...], found: Parts, where: str) -> None:
    children = _children(node)
    if children is not None:
        for key, child in children:
            _visit(child, (*at, key), found, where)
        return
    fields = set(node) if isinstance(node, dict) else set()
    arrays = MOMENTS.get(frozenset(map(str, fields)))
    if arrays is not None:
        found.moments.append(_moments(node, at, arrays))
    elif fields == {"count"} and (count := _small(node["count"])) is not None:
        found.schedules[leaf_name((*at, "count"))] = count
    elif fields == {"inner_state"}:
        found.masked = True
        _visit_within(node["inner_state"], (*at, "inner_state"), found, where)
    elif fields == {"inner_states"} and isinstance(node["inner_states"], dict):
        for label, child in node["inner_states"].items():
            _visit_label(child, (*at, "inner_states", label), found, where)
    elif fields - {"hyperparams_states"} == INJECTED:
        _visit_injected(node, at, found, where)
    elif fields == MULTI_STEPS:
        _take(node, at, ("mini_step", "acc_grads"), found.zeros)
        _take(node, at, ("gradient_step",), found.counts)
        _take(node, at, ("skip_state",), found.flags)
        _visit(node["inner_opt_state"], (*at, "inner_opt_state"), found, where)
    elif fields == IF_FINITE:
        _take(node, at, ("notfinite_count", "last_finite", "total_notfinite"), found.flags)
        _visit(node["inner_state"], (*at, "inner_state"), found, where)
    elif isinstance(node, dict) and _is_named(node):
        for name, child in node.items():
            _visit(child, (*at, name), found, where)
    else:
        what = f"has the fields {', '.join(sorted(map(str, fields)))}" if fields else f"is {node!s}"
        raise CheckpointError(
            f"{where}: {leaf_name(at)} {what}, which no transformation of Optax has that is known here; {KNOWN}"
        )


def _children(node: Tree) -> list[tuple[Key, Tree]] | None:
    """Return what a chain holds, nothing for a state without arrays; None for what is no chain."""
    if node is None or (isinstance(node, dict | list | tuple) and not node):
        return []
    if isinstance(node, list | tuple):
        return list(enumerate(node))
    if isinstance(node, dict) and {str(key) for key in node} == {str(at) for at in range(len(node))}:
        return list(node.items())
    return None


def _is_named(node: Mapping[Key, Tree]) -> bool:
    """Return whether a dict is the state of a `named_chain`: each of its values is the state of a transformation.

    Fields of a state that is not known hold arrays, or trees like the parameters, and those are no states.
    """
    return all(isinstance(name, str) and name not in ("", HYPER) and "." not in name for name in node) and all(
        _is_state(child) for child in node.values()
    )


def _is_state(node: Tree) -> bool:
    children = _children(node)
    if children is not None:
        return all(_is_state(child) for _, child in children)
    if not isinstance(node, dict):
        return False
    fields = frozenset(map(str, node))
    small = fields == {"count"} and _small(node["count"]) is not None
    return small or fields in KNOWN_FIELDS or fields - {"hyperparams_states"} == INJECTED or _is_named(node)


def _visit_within(node: Tree, at: tuple[Key, ...], found: Parts, where: str) -> None:
    """Visit what is applied to some parameters alone."""
    known = len(found.hyperparameters)
    _visit(node, at, found, where)
    found.hyperparameters[known:] = [replace(one, within=True) for one in found.hyperparameters[known:]]


def _visit_label(node: Tree, at: tuple[Key, ...], found: Parts, where: str) -> None:
    """Visit what is applied to the parameters of one label: what others have is not before or behind it."""
    own = Parts()
    _visit_within(node, at, own, where)
    found.take(own)


def _visit_injected(node: Mapping[str, Tree], at: tuple[Key, ...], found: Parts, where: str) -> None:
    inner = parts_of_optax(node["inner_state"], where, (*at, "inner_state"))
    _take(node, at, ("count",), found.counts)
    _take(node, at, ("hyperparams_states",), found.schedules)
    states = node.get("hyperparams_states")
    paths = frozenset(inner.paths()) or None
    moved = {str(key) for key in states} if isinstance(states, dict) else set()
    place: Literal["before", "after"] = "after" if found.moments else "before"
    for name, given in node["hyperparams"].items():
        value = _small(given)
        if value is None:
            continue
        one = Hyperparameter(
            leaf=leaf_name((*at, "hyperparams", name)),
            name=name,
            value=value,
            paths=paths,
            masked=inner.masked,
            moved=name in moved,
            place=_place(node["inner_state"]) if inner.moments else place,
        )
        found.hyperparameters.append(one)
    found.take(inner)


def _place(node: Tree) -> Literal["", "before", "after"]:
    """Return where a decay must be in a chain with moments, by the parts of it without state; empty if unknown.

    `adamw` has its decay and its rate behind the moments; `add_decayed_weights` and `adam` have the one before them
    and the other behind. With a clip in front of `adamw`, nothing tells.
    """
    flat = list(_flat(node))
    if True not in flat:
        return ""
    first = flat.index(True)
    last = len(flat) - 1 - flat[::-1].index(True)
    before, after = first, len(flat) - 1 - last
    if before and after < 2:
        return "before"
    return "after" if not before and after > 1 else ""


def _flat(node: Tree) -> Iterator[bool]:
    """Yield for each transformation of a chain, in order, whether it keeps moments."""
    children = _children(node)
    if children:
        for _, child in children:
            yield from _flat(child)
    else:
        fields = frozenset(map(str, node)) if isinstance(node, dict) else frozenset()
        yield fields in MOMENTS


def _moments(node: Mapping[str, Tree], at: tuple[Key, ...], arrays: Mapping[str, str]) -> Moments:
    slots = {
        slot: {
            leaf_name(keys): (leaf_name((*at, key, *keys)), leaf)
            for keys, leaf in leaves(node[key])
            if isinstance(leaf, Array)
        }
        for key, slot in arrays.items()
    }
    count = _small(node.get("count"))
    return Moments(slots, None if count is None else (leaf_name((*at, "count")), count))


def _small(leaf: Tree) -> Array | None:
    """Return an array, or a number as one: Orbax keeps numbers of Python as such; None for anything else."""
    if isinstance(leaf, bool | int | float):
        return InMemory(np.array(leaf))
    return leaf if isinstance(leaf, Array) else None


def _take(node: Mapping[str, Tree], at: tuple[Key, ...], keys: tuple[str, ...], into: dict[str, Array]) -> None:
    into |= dict(_arrays(node, at, keys))


def _arrays(node: Mapping[str, Tree], at: tuple[Key, ...], keys: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    for key in keys:
        for below, leaf in leaves(node.get(key)):
            value = _small(leaf)
            if value is not None:
                yield leaf_name((*at, key, *below)), value

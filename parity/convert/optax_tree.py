"""The state of any known Optax chain, filled from a state in our own layout, and back into it.

Our layout counts the updates of each parameter; Optax counts once for each transformation. So parameters of one
transformation must have one count, and the schedules of all transformations one position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.convert.optax_parts import HYPERPARAMETERS, Hyperparameter, Moments, Parts, parts_of_optax
from parity.convert.optimizer_layout import OptimizerTree, no_counterpart, put
from parity.convert.torch_state import OptimizerPart
from parity.errors import CheckpointError
from parity.formats import Array, InMemory, Tree, count_of, leaf_name, leaves, map_leaves, number_of
from parity.mapping import Zeros

__all__ = ["OptaxState", "argument_of", "fill_optax", "read_optax"]


@dataclass
class OptaxState:
    """What an Optax state holds of an optimizer's, in our layout."""

    tree: dict[str, Any]
    """`count`, `slots` and `step`, as `jax_side.optim` has them; no count where nothing counts updates."""
    origin: dict[str, str] = field(default_factory=dict)
    """Leaf of our layout to the leaf that it was."""
    scheduled: bool = False
    """Whether a schedule counts its position."""
    fresh: set[str] = field(default_factory=set)
    """Leaves of our layout that are of parameters without an update."""
    hyperparameters: list[Hyperparameter] = field(default_factory=list)


def read_optax(tree: Tree, order: Sequence[str], where: str, kind: str = "") -> OptaxState:
    """Return the state of an Optax transformation in our layout.

    Args:
        tree: What is below `opt_state`.
        order: Paths of all parameters in the order of JAX's leaves.
        where: The checkpoint, for messages.
        kind: The class of torch.optim that it is taken for.

    Raises:
        CheckpointError: A transformation is not known; a parameter has two states; schedules are at several
            positions; gradients are accumulated that PyTorch has no place for.
    """
    parts = parts_of_optax(tree, where).of_kind(kind)
    _require_rest(parts, where)
    out = OptaxState({"slots": {}}, scheduled=bool(parts.schedules))
    places = {path: at for at, path in enumerate(order)}
    steps = np.zeros(len(order), np.int64)
    for one in parts.moments:
        count = None if one.count is None else _count(*one.count, where)
        for slot, own in one.slots.items():
            for path, (leaf, array) in own.items():
                name = f"opt_state.slots.{slot}.{path}"
                if path not in places:
                    raise CheckpointError(f"{where}: {leaf} is of no parameter: params has no {path}")
                if name in out.origin:
                    raise CheckpointError(f"{where}: {out.origin[name]} and {leaf} are both the {slot} of {path}")
                put(out.tree["slots"].setdefault(slot, {}), path, array)
                out.origin[name] = leaf
                steps[places[path]] = max(1 if count is None else count, steps[places[path]])
                if count == 0:
                    out.fresh.add(name)
    counted = {leaf: _count(leaf, value, where) for leaf, value in parts.schedules.items()}
    if len(set(counted.values())) > 1:
        shown = ", ".join(f"{leaf} at {value}" for leaf, value in list(counted.items())[:4])
        raise CheckpointError(f"{where}: schedules are at several positions: {shown}; PyTorch's has one")
    # without a schedule, what counts updates says where one would be; SGD alone counts none
    updates = [_count(*one.count, where) for one in parts.moments if one.count is not None]
    updates += [count_of(value) or 0 for value in parts.counts.values()]
    position = next(iter(counted.values()), max(updates, default=None))
    out.tree["step"] = InMemory(steps)
    if position is not None:
        out.tree["count"] = InMemory(np.array(position, np.int32))
    out.hyperparameters += [one for one in parts.hyperparameters if one.value.size == 1]
    return out


def _count(leaf: str, value: Any, where: str) -> int:
    count = count_of(value)
    if count is None:
        raise CheckpointError(f"{where}: {leaf} is {number_of(value)}, expected a count")
    return count


def _require_rest(parts: Parts, where: str) -> None:
    """Check that what has no place in PyTorch holds nothing.

    Raises:
        CheckpointError: Some of it does.
    """
    for leaf, value in parts.zeros.items():
        if leaf.endswith(".mini_step") and number_of(value) != 0:
            raise CheckpointError(
                f"{where}: {leaf} is {number_of(value)}: MultiSteps is between two updates, and PyTorch's optimizer "
                "has no place for gradients that are half accumulated; save after an update"
            )
    for leaf, value in parts.flags.items():
        expected = leaf.endswith("last_finite")
        if value.size == 1 and bool(number_of(value)) != expected:
            raise CheckpointError(
                f"{where}: {leaf} is {number_of(value)}: gradients were not finite, and PyTorch's optimizer has no "
                "place for the count of them"
            )


def fill_optax(
    template: Tree,
    state: OptimizerTree,
    part: OptimizerPart,
    given: Mapping[str, str],
    order: Sequence[str],
    *,
    known: bool = True,
) -> Tree:
    """Return the state of an Optax transformation with the values of one in our layout, and say where they went.

    Args:
        template: What the transformation makes of the parameters: arrays of which only the small ones have values.
        state: The state in our layout; its `tree` has the values.
        part: The optimizer of PyTorch, for its hyperparameters.
        given: Path of each parameter to its name in PyTorch.
        order: Paths of all parameters in the order of JAX's leaves.
        known: Whether anything says how many updates there were.

    Raises:
        CheckpointError: A transformation is not known, or keeps other values than the state has, or counts updates
            that nothing tells.
    """
    where = "--optimizer"
    if (why := no_counterpart(part, filled=True)) != "":
        raise CheckpointError(f"{where}: Optax cannot hold this state of {part.kind.name}: {why}")
    parts = parts_of_optax(template, where).of_kind(part.kind.name)
    values = {leaf_name(keys): leaf for keys, leaf in leaves(state.tree["slots"]) if isinstance(leaf, Array)}
    steps = dict(zip(order, state.tree["step"].load().tolist(), strict=True))
    filled: dict[str, Array] = {}
    for one in parts.moments:
        filled |= _filled(one, values, steps, part, where)
    kept = [(slot, own) for one in parts.moments for slot, own in one.slots.items()]
    _require_one_place(kept, where)
    left = values.keys() - {f"{slot}.{path}" for slot, own in kept for path in own}
    if left:
        raise CheckpointError(
            f"{where} has no place for {min(left)}, which {part.kind.name} keeps; it keeps "
            f"{', '.join(sorted({slot for slot, _ in kept})) or 'nothing'}"
        )
    if parts.schedules and not known:
        raise CheckpointError(
            f"{where}: {min(parts.schedules)} counts updates for a schedule, and nothing says how many there were: "
            f"{part.kind.name} counts none, and the checkpoint has neither a scheduler nor a counter such as step; "
            "--reset schedule starts it at 0"
        )
    position = number_of(state.tree["count"])
    filled |= {leaf: _as(position, like) for leaf, like in parts.schedules.items()}
    filled |= {leaf: _as(state.count, like) for leaf, like in parts.counts.items()}
    for hyper in parts.hyperparameters:
        names = set(part.names.values()) if hyper.paths is None else {given[path] for path in hyper.paths}
        value = _argument(part, hyper, names, where)
        if value is not None:
            filled[hyper.leaf] = _as(value, hyper.value)
    return map_leaves(template, lambda keys, leaf: filled.get(leaf_name(("opt_state", *keys)), leaf))


def _require_one_place(kept: Sequence[tuple[str, Mapping[str, tuple[str, Array]]]], where: str) -> None:
    """Check that no value of PyTorch has two places: a second one would be another moment, which PyTorch never had.

    Raises:
        CheckpointError: One has, such as under two momenta in a chain.
    """
    places: dict[str, str] = {}
    for slot, own in kept:
        for path, (leaf, _) in own.items():
            first = places.setdefault(f"{slot}.{path}", leaf)
            if first != leaf:
                raise CheckpointError(f"{where}: {first} and {leaf} are both the {slot} of {path}: PyTorch has one")


def _filled(
    one: Moments, values: Mapping[str, Array], steps: Mapping[str, int], part: OptimizerPart, where: str
) -> dict[str, Array]:
    """Return the leaves of one transformation with their values."""
    out: dict[str, Array] = {}
    counts = {path: int(steps[path]) for path in one.paths if path in steps}
    if one.count is not None:
        if len(set(counts.values())) > 1:
            least, most = min(counts, key=lambda p: counts[p]), max(counts, key=lambda p: counts[p])
            raise CheckpointError(
                f"{where}: {least} had {counts[least]} updates and {most} {counts[most]}, and Optax counts them once "
                "for all; use --optimizer parity"
            )
        out[one.count[0]] = _as(next(iter(counts.values()), 0), one.count[1])
    for slot, own in one.slots.items():
        for path, (leaf, like) in own.items():
            array = values.get(f"{slot}.{path}")
            if array is None and (path not in counts or counts[path]):
                raise CheckpointError(f"{where}: {leaf} is the {slot} of {path}, and {part.kind.name} has none")
            array = Zeros(like.shape, like.dtype) if array is None else array
            if (array.shape, array.dtype) != (like.shape, like.dtype):
                raise CheckpointError(f"{where}: {leaf} is {like}, and the state has {array}")
            out[leaf] = array
    return out


def _as(value: float, like: Array) -> Array:
    return InMemory(np.array(value).astype(like.dtype).reshape(like.shape))


def _argument(part: OptimizerPart, hyper: Hyperparameter, names: set[str], where: str) -> float | None:
    """Return a hyperparameter of the groups that some parameters are in; None for one that torch does not have."""
    name = hyper.name
    if name not in HYPERPARAMETERS:
        return None
    found = {
        argument_of(group, HYPERPARAMETERS[name])
        for group in part.groups
        if any(part.names.get(key) in names for key in _keys(part, group))
    }
    found.discard(None)
    if name == "weight_decay" and hyper.masked and len(found) > 1:
        found.discard(0.0)  # the mask leaves these parameters out, as the group without decay does
    if len(found) > 1:
        raise CheckpointError(
            f"{where}: {hyper.leaf} is one {HYPERPARAMETERS[name].partition('.')[0]}, and the groups of its "
            f"parameters have {', '.join(sorted(map(str, found)))}"
        )
    return next(iter(found), None)


def _keys(part: OptimizerPart, group: Mapping[str, Any]) -> list[Any]:
    return [key for number in group.get("params", ()) for key in (number, str(number)) if key in part.names]


def argument_of(group: Mapping[str, Any], argument: str) -> float | None:
    """Return an argument of a group; None if it has no such number.

    Args:
        group: Of a `state_dict`.
        argument: Its key; a number after a dot is the place in a tuple.

    Example:
        >>> argument_of({"lr": 0.1, "betas": (0.9, 0.99)}, "betas.1")
        0.99
    """
    name, _, at = argument.partition(".")
    value = number_of(group.get(name))
    value = value[int(at)] if at and isinstance(value, list | tuple) else value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

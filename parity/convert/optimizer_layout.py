"""The state of a torch.optim optimizer as a tree of JAX: in Optax's types where they hold it, else in ours.

Optax counts updates once, PyTorch for each parameter. So a state whose parameters have different counts, parameters
without one, or a class whose state Optax keeps in another form, goes into the layout of `jax_side.optim`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from parity.convert.complete import MOST_UPDATES
from parity.convert.torch_state import OptimizerPart
from parity.errors import CheckpointError
from parity.formats import Array, InMemory, Key, Tree, count_of, number_of
from parity.mapping import RulePlacement, Zeros
from parity.state import Slot, slot_shape

__all__ = [
    "COUNT",
    "LAYOUTS",
    "SCALAR",
    "STEPS",
    "OptimizerLayout",
    "OptimizerTree",
    "no_counterpart",
    "optimizer_tree",
    "put",
]

OptimizerLayout = Literal["optax", "parity"]
LAYOUTS: tuple[OptimizerLayout, ...] = ("optax", "parity")
STEPS = "opt_state.step"
"""Leaf of the counts in the layout of `jax_side.optim`."""

COUNT = "opt_state.count"
"""Leaf of the position of the schedule in the layout of `jax_side.optim`."""

SCALAR = "scalar"
"""Key of a reference to a number that all parts of a parameter have alike."""

_OPTAX = {kind: {"first_moment": "mu", "second_moment": "nu"} for kind in ("Adam", "AdamW")}
"""Classes to the names that Optax has for their slots."""


@dataclass
class OptimizerTree:
    """The JAX tree of an optimizer, and where each array of the `state_dict` is in it."""

    layout: OptimizerLayout
    tree: Tree
    count: int
    """Updates, the largest where parameters differ."""
    position: int | None = None
    """Position of the schedule, where it is counted."""
    position_at: str = ""
    """Leaf that counts it."""
    references: dict[tuple[Key, ...], dict[str, Any]] = field(default_factory=dict)
    """Keys in PyTorch's tree to a reference, as the document of a conversion has it."""
    absent: dict[str, list[str]] = field(default_factory=dict)
    """Path of a parameter for which PyTorch has no entry, to the leaves that stand for it until its first update."""
    places: dict[str, int] = field(default_factory=dict)
    """Where the counts of these parameters are in the vector of counts."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Leaf and why it has no place."""


def put(tree: dict[str, Any], path: str, value: Any) -> None:
    """Put a value at a path of keys joined by dots, making the dicts on the way.

    Args:
        tree: Nested dicts; changed in place.
        path: The keys on the way, and the key of the value last.
        value: What is put there; it replaces what was there.

    Example:
        >>> tree = {}
        >>> put(tree, "layers.0.kernel", 1.5)
        >>> tree
        {'layers': {'0': {'kernel': 1.5}}}
    """
    *above, last = path.split(".")
    for key in above:
        tree = tree.setdefault(key, {})
    tree[last] = value


def optimizer_tree(
    part: OptimizerPart,
    model: Mapping[str, Array],
    placements: Mapping[str, RulePlacement],
    *,
    order: Sequence[str],
    layout: OptimizerLayout | None = None,
    position: int | None = None,
    counted: int | None = None,
) -> OptimizerTree:
    """Return the state of an optimizer as a JAX tree, below `opt_state`.

    Args:
        part: The optimizer, its parameters named.
        model: Parameters by name.
        placements: Name to where it goes.
        order: Paths of all parameters in the order of JAX's leaves.
        layout: The layout; by default Optax's where it holds the state.
        position: Position of the schedule, where there is one: Optax counts it in the state of the optimizer.
        counted: Steps that the trainer counted, for a class that counts no updates itself, such as SGD.

    Raises:
        CheckpointError: The layout that was asked for cannot hold the state; says why, with the names.
    """
    why = _no_optax(part)
    if layout == "optax" and why:
        raise CheckpointError(
            f"plain Optax cannot hold this state of {part.kind.name}: {why}; use --optimizer parity"
        )
    chosen: OptimizerLayout = layout or ("parity" if why else "optax")
    steps = _steps(part)
    count = max(steps.values(), default=0) if part.kind.counts else counted or 0
    out = OptimizerTree(chosen, {}, count)
    slots: dict[str, dict[str, Any]] = {}
    for slot in part.kind.slots:
        key = _OPTAX.get(part.kind.name, {}).get(slot.name, slot.name) if chosen == "optax" else slot.name
        tree = _slot_tree(part, slot, model, placements, out, _prefix(chosen, key))
        if tree:
            slots[key] = tree
    if chosen == "parity":
        out.position, out.position_at = count if position is None else position, COUNT
        out.tree = {"count": _int32(out.position), "slots": slots}
        _lay_steps(part, model, placements, out, order)
        return out
    head: dict[str, Any] = {"trace": slots["momentum"]} if part.kind.name == "SGD" and slots else {}
    if part.kind.name in _OPTAX:
        head = {"count": _int32(count), **slots}
        for number, entry in part.state.items():
            if (dtype := _count_type(entry.get("step"))) is not None:
                keys = (*part.at, "state", number, "step")
                out.references[keys] = {"count": "opt_state.0.count", "dtype": dtype}
    last = {} if position is None else {"count": _int32(position)}
    # groups with and without decay are one `adamw` with a mask, whose decay keeps the state of the mask
    decays = {bool(group.get("weight_decay")) for group in part.groups if group.get("params")}
    middle: dict[str, Any] = {"inner_state": {}} if len(decays) > 1 else {}
    out.tree = [head, middle, last] if part.kind.name == "AdamW" else [head, last]
    if position is not None:
        out.position, out.position_at = position, f"opt_state.{len(out.tree) - 1}.count"
    return out


def _prefix(layout: OptimizerLayout, key: str) -> str:
    if layout == "parity":
        return f"opt_state.slots.{key}"
    return "opt_state.0.trace" if key == "momentum" else f"opt_state.0.{key}"


def _no_optax(part: OptimizerPart) -> str:
    """Return why plain Optax cannot hold a state; empty if it can."""
    kind, groups = part.kind, part.groups
    if why := no_counterpart(part):
        return why
    if kind.name != "AdamW" and any(group.get("weight_decay") for group in groups):
        return "weight decay is added to the gradient, which is a part of a chain that only its author knows"
    for argument in ("lr", "betas", "eps", "momentum"):
        if len({repr(group.get(argument)) for group in groups}) > 1:
            return f"groups differ in {argument}, and Optax has one transformation for all"
    if kind.name == "SGD" and not groups[0].get("momentum"):
        return ""
    slot_keys = {slot.key for slot in kind.slots if not slot.when or kind.name == "SGD"}
    lacking = [name for number, name in part.names.items() if not _has(part.state.get(number, {}), slot_keys)]
    if lacking:
        return f"{', '.join(lacking[:4])} had no update yet, and Optax counts updates once for all"
    steps = _steps(part)
    if len(set(steps.values())) > 1:
        least = min(steps, key=lambda name: steps[name])
        most = max(steps, key=lambda name: steps[name])
        return f"{least} had {steps[least]} updates and {most} {steps[most]}, and Optax counts them once for all"
    return ""


def no_counterpart(part: OptimizerPart, *, filled: bool = False) -> str:
    """Return why no transformation of Optax takes the steps of an optimizer; empty if one does.

    Args:
        part: The optimizer.
        filled: Whether the state of a transformation of the user's own is filled, of which it is known that it takes
            the steps of this class.
    """
    if part.kind.name not in ("Adam", "AdamW", "SGD", *(("Adamax", "RAdam") if filled else ())):
        return f"Optax keeps the state of {part.kind.name} in another form, or computes other steps"
    for argument in ("amsgrad", "maximize", "dampening"):
        if any(group.get(argument) for group in part.groups):
            return f"{argument} is on, which Optax does not have or computes in another way"
    return ""


def _has(entry: Mapping[str, Any], keys: set[str]) -> bool:
    return all(isinstance(entry.get(key), Array) for key in keys)


def _steps(part: OptimizerPart) -> dict[str, int]:
    """Return the updates of each parameter that has state.

    Raises:
        CheckpointError: A count is none.
    """
    found = {}
    for number, entry in part.state.items():
        value = entry.get("step")
        if value is None:
            continue
        count = count_of(value)
        if count is None:
            raise CheckpointError(
                f"optimizer: step of {part.names[number]} is {number_of(value)!r}, expected a count of at least 0"
            )
        found[part.names[number]] = count
    return found


def _slot_tree(
    part: OptimizerPart,
    slot: Slot,
    model: Mapping[str, Array],
    placements: Mapping[str, RulePlacement],
    out: OptimizerTree,
    prefix: str,
) -> dict[str, Any]:
    """Return the tree of one slot, like that of the parameters."""
    numbers = {name: number for number, name in part.names.items()}
    values = {
        name: value
        for name, number in numbers.items()
        if isinstance(value := part.state.get(number, {}).get(slot.key), Array)
    }
    tree: dict[str, Any] = {}
    done = set()
    for name in numbers:
        placement = placements[name]
        if placement.source in done:
            continue
        done.add(placement.source)
        members = [member for member in placement.source if member in numbers]
        there = [member for member in members if member in values]
        if not there and not slot.is_kept(_arguments(part, numbers[name]), len(model[name].shape)):
            continue  # another group keeps it: JAX has it for the parameters of that group alone, too
        if slot.form not in ("same", "scalar") and (placement.rule.how or len(placement.source) > 1):
            leaf = f"{slot.name} of {name}"
            out.refused.append((leaf, f"its shape is not the parameter's, which is {placement.rule.how or 'joined'}"))
            continue
        given = [values.get(member) or _start(part, slot, numbers, member, model) for member in placement.source]
        if slot.form == "scalar":  # a tied name that the optimizer does not have says nothing
            given = [one for member, one in zip(placement.source, given, strict=True) if member in numbers]
        if slot.form == "scalar" and not _alike(given):
            why = f"{' and '.join(placement.source)} have different values, and JAX keeps one for them"
            out.refused.append((f"{slot.name} of {name}", why))
            continue
        # a number is that of the parameter however its axes lie, and of each part of it
        moved = [given[0]] * len(placement.target) if slot.form == "scalar" else placement.forward(given)
        for path, array in zip(placement.target, moved, strict=True):
            put(tree, path, array)
            if not there:
                out.absent.setdefault(path, []).append(f"{prefix}.{path}")
        for member in there:
            keys = (*part.at, "state", numbers[member], slot.key)
            array = values[member]
            reference = {"from": prefix, "name": member, "shape": list(array.shape), "dtype": array.dtype.name}
            out.references[keys] = {**reference, **({SCALAR: True} if slot.form == "scalar" else {})}
    return tree


def _alike(arrays: Sequence[Array]) -> bool:
    """Return whether numbers are one, bit for bit."""
    first = arrays[0]
    return all(one.dtype == first.dtype and one.load().tobytes() == first.load().tobytes() for one in arrays[1:])


def _arguments(part: OptimizerPart, number: Key) -> dict[str, Any]:
    """Return the arguments of the group that a parameter is in, those that are not recorded at their defaults."""
    group = next((one for one in part.groups if number in one.get("params", ())), part.groups[0])
    return {**part.kind.arguments, **group}


def _start(
    part: OptimizerPart, slot: Slot, numbers: Mapping[str, Key], name: str, model: Mapping[str, Array]
) -> Array:
    """Return what a slot is before the first update of its parameter."""
    value = slot.start
    if isinstance(value, str):
        group = next((g for g in part.groups if numbers.get(name) in g.get("params", ())), part.groups[0])
        value = float(group.get(value, 0.0))
    dtype = _scalar_dtype(part, model) if slot.form == "scalar" else model[name].dtype
    return Zeros(slot_shape(slot, model[name].shape), dtype, value)


def _scalar_dtype(part: OptimizerPart, model: Mapping[str, Array]) -> np.dtype[Any]:
    """Return the type of counts and of other numbers of a parameter: PyTorch's default when they were made.

    Before the first update, and in classes that count nothing, nothing says it: JAX has float64 where it has
    parameters in float64.
    """
    for entry in part.state.values():
        if isinstance(count := entry.get("step"), Array):
            return count.dtype
    wide = any(model[name].dtype == np.float64 for name in part.names.values())
    return np.dtype(np.float64 if wide else np.float32)


def _lay_steps(
    part: OptimizerPart,
    model: Mapping[str, Array],
    placements: Mapping[str, RulePlacement],
    out: OptimizerTree,
    order: Sequence[str],
) -> None:
    """Put the counts of the parameters into one vector, in the order of JAX's leaves; 0 before the first update."""
    steps, numbers = _steps(part), {name: number for number, name in part.names.items()}
    places = {path: at for at, path in enumerate(order)}
    vector = np.zeros(len(order), _scalar_dtype(part, model))
    for name, number in numbers.items():
        placement, entry = placements[name], part.state.get(number, {})
        members = [member for member in placement.source if member in numbers]
        if part.kind.counts:
            own = {steps.get(member, 0) for member in members}
        else:  # whose momentum began is all that is known
            own = {int(_has_begun(part, numbers[member])) for member in members}
        if len(own) > 1:
            out.refused.append((f"step of {name}", f"{' and '.join(placement.source)} differ: {sorted(own)}"))
            continue
        for path in placement.target:
            vector[places[path]] = own.copy().pop()
            if not any(_has_begun(part, numbers[member]) for member in members):
                out.absent.setdefault(path, [])
        dtype = _count_type(entry.get("step"))
        if dtype is not None:
            reference = {"count": STEPS, "index": places[placement.target[0]], "dtype": dtype}
            out.references[(*part.at, "state", number, "step")] = reference
    out.tree["step"] = InMemory(vector)
    out.places = {path: places[path] for path in out.absent}


def _has_begun(part: OptimizerPart, number: Key) -> bool:
    """Return whether a parameter has state: older versions of PyTorch write None for a momentum before its first."""
    return any(value is not None for value in part.state.get(number, {}).values())


def _count_type(value: Any) -> str | None:
    """Return the type of a count, `int` for Python's own, which older versions of PyTorch had; None for no count."""
    if isinstance(value, Array):
        return value.dtype.name
    return "int" if type(value) is int else None


def _int32(value: int) -> Array:
    if value > MOST_UPDATES:
        raise CheckpointError(f"optimizer: {value:,} steps were counted, and JAX counts them in int32")
    return InMemory(np.array(value, np.int32))

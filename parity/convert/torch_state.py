"""Where a tree of PyTorch has its model and its optimizer, and which parameter each entry of the optimizer is of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parity.contract import OPTIMIZERS, OptimizerKind, slot_shape
from parity.convert.components import component_of_key, top_values
from parity.errors import CheckpointError
from parity.formats import Array, Key, Tree, leaf_name

__all__ = ["OptimizerPart", "TorchState", "is_buffer", "read_torch_state"]

_WRAPPER = re.compile(r"^(?:(?:_orig_mod|module|_fsdp_wrapped_module)\.)+")
_BUFFER = re.compile(r"(?:^|\.)(?:running_mean|running_var|num_batches_tracked)$")
_FLAGS = {"foreach", "fused", "capturable", "differentiable", "params", "param_names", "initial_lr"}
"""Keys of a group that do not tell classes apart."""


@dataclass(frozen=True)
class OptimizerPart:
    """A `state_dict` of torch.optim with the names of its parameters."""

    at: tuple[Key, ...]
    """Keys of it in the tree."""
    kind: OptimizerKind
    names: Mapping[Key, str]
    """Key in the state, a number or a name, to the parameter's name, wrappers removed."""
    state: Mapping[Key, Mapping[str, Any]]
    groups: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class TorchState:
    """A tree of PyTorch, taken apart."""

    model_at: tuple[Key, ...]
    """Keys of the model's state dict; empty where it is all of the tree."""
    model: Mapping[str, Array]
    """Arrays by name, wrappers removed, in the order of the file."""
    spelled: Mapping[str, str]
    """Name to how the file spells it."""
    others: Mapping[tuple[Key, ...], Mapping[str, Array]]
    """Other state dicts of the same names, such as averaged parameters, by their keys."""
    optimizer: OptimizerPart | None


def read_torch_state(tree: Tree, names: Sequence[str] | None = None, *, alone: bool = False) -> TorchState:
    """Take a tree apart by the customary names.

    Args:
        tree: The tree of a checkpoint.
        names: Names of the optimizer's parameters in its order, where the model's order does not give them.
        alone: Whether the model alone is wanted, and its optimizer not looked at.

    Raises:
        CheckpointError: There is no model, or several; an optimizer whose parameters cannot be named: their number or
            a shape does not fit.
    """
    at, model = _find_model(tree)
    spelled = {_WRAPPER.sub("", name): name for name in model}
    if len(spelled) < len(model):
        raise CheckpointError("two parameters have one name once wrappers such as module. are removed")
    plain = {name: model[spelling] for name, spelling in spelled.items()}
    others: dict[tuple[Key, ...], dict[str, Array]] = {}
    if at and isinstance(tree, dict):
        for key, child in tree.items():
            if (key,) != at and _is_state_dict(child) and {_WRAPPER.sub("", name) for name in child} <= set(plain):
                others[(key,)] = {_WRAPPER.sub("", name): child[name] for name in child}
    found = None if alone else _find_optimizer(tree)
    optimizer = None if found is None else _read_optimizer(*found, plain, names)
    return TorchState(at, plain, spelled, others, optimizer)


def _find_model(tree: Tree) -> tuple[tuple[Key, ...], Mapping[str, Array]]:
    if not isinstance(tree, dict):
        raise CheckpointError("the checkpoint is no dict, so nothing in it is known to be a model")
    if _is_state_dict(tree):
        return (), tree
    found = [
        (key,) for key, child in tree.items() if component_of_key(str(key)) == "parameters" and _is_state_dict(child)
    ]
    if not found:
        nested = list(_state_dicts_below(tree, ()))
        if len(nested) == 1:
            return nested[0]
        if nested:
            names = [leaf_name(keys) for keys, _ in nested]
            raise CheckpointError(
                f"several state dicts ({', '.join(names[:6])}): each may be the model; convert one: --keys {names[0]}"
            )
    if len(found) != 1:
        have = ", ".join(str(keys[0]) for keys in found) or f"none among {', '.join(map(str, list(tree)[:8]))}"
        raise CheckpointError(
            f"expected one state dict of a model by a customary name (model, state_dict), found {have}; of several, "
            "--keys says which"
        )
    return found[0], tree[found[0][0]]


def _state_dicts_below(tree: Tree, keys: tuple[Key, ...]) -> Iterator[tuple[tuple[Key, ...], Mapping[str, Array]]]:
    """Yield the state dicts within a tree of dicts, such as `model.state_dict`; those of optimizers are none."""
    if len(keys) > MOST_BELOW or not isinstance(tree, dict) or set(tree) == {"state", "param_groups"}:
        return
    for key, child in tree.items():
        if _is_state_dict(child) and any(not is_buffer(name, leaf) for name, leaf in child.items()):
            component = component_of_key(str((*keys, key)[0]))
            if component in (None, "parameters"):
                yield (*keys, key), child
        else:
            yield from _state_dicts_below(child, (*keys, key))


MOST_BELOW = 4
"""Dicts around a state dict at most."""


def _is_state_dict(value: Tree) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(key, str) and isinstance(leaf, Array) for key, leaf in value.items())
    )


def _find_optimizer(tree: Tree) -> tuple[tuple[Key, ...], Mapping[str, Any]] | None:
    found = [
        (keys, one)
        for keys, one in top_values(tree)
        if isinstance(one, dict) and set(one) == {"state", "param_groups"}
    ]
    if len(found) > 1:
        where = ", ".join(leaf_name(keys) for keys, _ in found)
        raise CheckpointError(
            f"several optimizers ({where}): each belongs to a part of the model; convert one at a time, such as "
            f"--keys model,{where.partition(',')[0]}"
        )
    return found[0] if found else None


def _read_optimizer(
    at: tuple[Key, ...], value: Mapping[str, Any], model: Mapping[str, Array], given: Sequence[str] | None
) -> OptimizerPart:
    where = leaf_name(at)
    groups, state = value["param_groups"], value["state"]
    if not isinstance(groups, list) or not isinstance(state, dict) or not all(isinstance(g, dict) for g in groups):
        raise CheckpointError(f"{where} is no state_dict of torch.optim")
    ids = [_number(number) for group in groups for number in group.get("params", ())]
    keys = {_number(key): key for key in state}
    if len(set(ids)) != len(ids) or not set(keys) <= set(ids):
        raise CheckpointError(f"{where}: its groups name a parameter twice, or lack one that has state")
    kind = _kind(where, groups, state)
    recorded = [name for group in groups for name in group.get("param_names", ())]
    if given is not None:
        names, source = list(given), "the names that were given"
    elif ids and all(isinstance(number, str) for number in ids):
        names, source = [_WRAPPER.sub("", str(number)) for number in ids], "its own names"
    elif len(recorded) == len(ids) and ids:
        names, source = [_WRAPPER.sub("", str(name)) for name in recorded], "param_names"
    elif len([group for group in groups if group.get("params")]) > 1:
        raise CheckpointError(
            f"{where} has {len(groups)} groups, and parameters are numbered group by group: nothing says which are "
            "in which; give the names in the order of the optimizer with --names FILE, one a line"
        )
    else:
        names, source = _trainable(model), "the order of the model, buffers and tied names left out"
    if len(names) != len(ids):
        raise CheckpointError(
            f"{where} has {len(ids)} parameters, and {source} gives {len(names)} names; give the names in the order "
            "of the optimizer with --names FILE, one a line"
        )
    by_key = {keys.get(number, number): name for number, name in zip(ids, names, strict=True)}
    part = OptimizerPart(at, kind, by_key, state, groups)
    _check_shapes(where, part, model, source)
    return part


def _number(key: Key) -> Key:
    """Return a key of a state as a number where it is one: DCP writes numbers as text."""
    return int(key) if isinstance(key, str) and key.isascii() and key.isdigit() else key


def is_buffer(name: str, array: Array) -> bool:
    """Return whether a name of a state dict is a buffer: a statistic of a normalization, or no floating array.

    Args:
        name: Dotted name, whose last part tells the statistics of BatchNorm.
        array: Its value; an array of integers or truth values is a buffer under any name.

    Example:
        >>> from parity.formats import InMemory
        >>> import numpy as np
        >>> is_buffer("norm.running_mean", InMemory(np.zeros(3))), is_buffer("norm.weight", InMemory(np.zeros(3)))
        (True, False)
    """
    return bool(_BUFFER.search(name)) or array.dtype.kind in "iub"


def _trainable(model: Mapping[str, Array]) -> list[str]:
    """Return the names of a model without buffers, and one name of each tied array, in order."""
    names, seen = [], set()
    for name, array in model.items():
        tied = (array.shared, array.shape) if array.shared is not None else None
        if is_buffer(name, array) or (tied and tied in seen):
            continue
        seen.add(tied)
        names.append(name)
    return names


def _kind(where: str, groups: Sequence[Mapping[str, Any]], state: Mapping[Key, Any]) -> OptimizerKind:
    """Return the class of an optimizer, by the arguments of its groups and the keys of its state.

    Raises:
        CheckpointError: None fits.
    """
    keys = {str(key) for entry in state.values() for key, value in entry.items() if value is not None}
    own = {str(key) for key in (groups[0] if groups else {})} - _FLAGS
    fits = []
    for kind in OPTIMIZERS.values():
        slots = {slot.key for slot in kind.slots} | ({"step"} if kind.counts else set())
        needed = set(kind.arguments) - {"decoupled_weight_decay", "maximize"}
        if kind.in_torch and keys <= slots and needed <= own and own - set(kind.arguments) <= _ADDED:
            fits.append(kind)
    if len(fits) > 1 and {kind.name for kind in fits} == {"Adam", "AdamW"}:
        decoupled = bool(groups[0].get("decoupled_weight_decay"))
        return OPTIMIZERS["AdamW" if decoupled else "Adam"]
    if len(fits) != 1:
        which = f"several classes fit: {', '.join(k.name for k in fits)}" if fits else "no class of torch.optim has"
        shown = "" if fits else f" the arguments {', '.join(sorted(own))} and the state {', '.join(sorted(keys))}"
        raise CheckpointError(f"{where}: {which}{shown}")
    return fits[0]


_ADDED = {
    "decoupled_weight_decay",
    "max_lr",
    "min_lr",
    "base_momentum",
    "max_momentum",
    "swa_lr",
    "initial_momentum",
    "name",
}
"""Keys that schedulers and people add to a group."""


def _check_shapes(where: str, part: OptimizerPart, model: Mapping[str, Array], source: str) -> None:
    """Check that every slot has the shape that its parameter gives it: names come from an order alone."""
    slots = {slot.key: slot for slot in part.kind.slots}
    for number, name in part.names.items():
        if name not in model:
            raise CheckpointError(f"{where}: {source} names {name}, which is no parameter of the model")
        for key, value in part.state.get(number, {}).items():
            if value is None or not isinstance(value, Array) or key not in slots:
                continue
            expected = slot_shape(slots[key], model[name].shape)
            if value.shape != expected:
                raise CheckpointError(
                    f"{where}: {key} of parameter {number} is {value}, and by {source} it belongs to {name}, "
                    f"{model[name]}; give the names in the order of the optimizer with --names FILE, one a line"
                )

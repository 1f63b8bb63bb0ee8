"""Objects of PyTorch that hold state: what is saved of them, and what they take over after it was checked.

`load_state_dict` takes a good deal on trust: an optimizer converts moments of another type silently and takes those
of another shape, a scheduler takes over any attributes. What is saved is compared with the object first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LRScheduler

from parity.checkpoints.trees import (
    ArrayType,
    Branch,
    LeafNode,
    Node,
    RestoreRequest,
    Whole,
    leaves,
    open_plain,
    walk,
)
from parity.errors import CheckpointError

__all__ = ["is_stateful", "state_of", "whole_of"]

Problems = list[tuple[str, str]]


def is_stateful(value: Any) -> bool:
    """Return whether a value is saved by its state: it has `state_dict` and `load_state_dict`, or is a generator."""
    both = all(callable(getattr(value, name, None)) for name in ("state_dict", "load_state_dict"))
    return isinstance(value, torch.Generator) or (both and not isinstance(value, type))


def state_of(value: Any) -> Any:
    """Return what is saved of an object."""
    return value.get_state() if isinstance(value, torch.Generator) else value.state_dict()


def whole_of(name: str, value: Any, request: RestoreRequest) -> Whole:
    """Return an object of a template as what takes its saved state, checked as far as its class allows.

    Args:
        name: Its name in the tree.
        value: An optimizer, a scheduler, a scaler, a generator, or anything with `load_state_dict`.
        request: What may differ.

    Returns:
        Its node in the template, whose `build` raises CheckpointError where the object refuses the state.
    """

    def check(node: Node) -> Problems:
        if isinstance(value, torch.Generator):
            return _check_generator(node, value)
        if isinstance(value, torch.optim.Optimizer):
            return _check_optimizer(node, value, request)
        if isinstance(value, LRScheduler | torch.amp.GradScaler):
            return _check_keys(node, value.state_dict(), request)
        return []

    def build(state: Any) -> Any:
        try:
            value.set_state(state.cpu()) if isinstance(value, torch.Generator) else value.load_state_dict(state)
        except Exception as error:  # whatever the object has against it
            raise CheckpointError(f"{name}: {type(value).__name__} refused its state: {error}") from error
        return value

    return Whole(name, check, build, value, lambda node: dict(_likes(node, value)))


def _likes(node: Node, value: Any) -> Iterator[tuple[str, DTensor]]:
    """Yield those leaves of a saved state that are to lie in several processes, and the tensor that says how.

    What an optimizer keeps for a parameter lies as the parameter, also where it has kept nothing yet; what another
    object holds now says how it lies.
    """
    if isinstance(value, torch.optim.Optimizer):
        known, state = _numbered(node, value), _child(node, "state")
        pairs = zip(state.keys, state.children, strict=True) if isinstance(state, Branch) else ()
        for number, entries in pairs:
            parameter: Any = known.get(number)
            for name, leaf in leaves(entries).items():
                kept: Any = (
                    value.state.get(parameter, {}).get(name.rpartition(".")[2]) if parameter is not None else None
                )
                if _fits(leaf.value, kept):
                    yield name, kept.detach()
                elif _fits(leaf.value, parameter):
                    yield name, parameter.detach()
    elif not isinstance(value, torch.Generator):
        own = leaves(walk(value.state_dict(), lambda _, one: None if isinstance(one, Tensor) else open_plain(one)))
        for name, leaf in leaves(node).items():
            here = own.get(name[len(node.name) + 1 :])
            if here is not None and _fits(leaf.value, here.value):
                yield name, here.value


def _fits(kind: Any, one: Any) -> TypeGuard[DTensor]:
    return isinstance(kind, ArrayType) and isinstance(one, DTensor) and kind.shape == tuple(one.shape)


def _numbered(node: Node, value: torch.optim.Optimizer) -> dict[Any, Tensor]:
    """Return the parameters of an optimizer by their numbers in a saved state; nothing where the two do not fit."""
    groups = _child(node, "param_groups")
    members = [_child(group, "params") for group in (groups.children if isinstance(groups, Branch) else ())]
    numbers = [leaf.value for one in members if one is not None for leaf in leaves(one).values()]
    parameters = [parameter for group in value.param_groups for parameter in group["params"]]
    return dict(zip(numbers, parameters, strict=True)) if len(numbers) == len(parameters) else {}


def _check_generator(node: Node, value: torch.Generator) -> Problems:
    own = value.get_state()
    found = node.value if isinstance(node, LeafNode) else None
    if isinstance(found, ArrayType) and (found.dtype, found.shape) == ("uint8", tuple(own.shape)):
        return []
    return [(node.name, f"is {found or 'a container'}, and no state of a generator of {value.device}")]


def _check_keys(node: Node, own: dict[str, Any], request: RestoreRequest) -> Problems:
    """Compare the keys of a saved state with those of the object: another class has others."""
    found = {*node.keys} if isinstance(node, Branch) else set()
    missing, extra = own.keys() - found, found - own.keys()
    return [
        *((f"{node.name}.{key}", "is not in the checkpoint") for key in sorted(missing) if not request.allow_missing),
        *(
            (f"{node.name}.{key}", "is in the checkpoint, and not in the template")
            for key in sorted(extra, key=str)
            if not request.allow_extra
        ),
    ]


def _check_optimizer(node: Node, value: torch.optim.Optimizer, request: RestoreRequest) -> Problems:
    """Compare groups, their settings, and the moments of each parameter."""
    groups, state = _child(node, "param_groups"), _child(node, "state")
    if not isinstance(groups, Branch) or not isinstance(state, Branch):
        return [(node.name, "is no state of an optimizer")]
    own = value.param_groups
    if len(groups.children) != len(own):
        return [(groups.name, f"has {len(groups.children)} groups in the checkpoint, {len(own)} in the template")]
    problems: Problems = []
    numbers: list[Any] = []
    for group, mine in zip(groups.children, own, strict=True):
        members = _child(group, "params")
        saved = [leaf.value for leaf in leaves(members).values()] if members is not None else []
        if len(saved) != len(mine["params"]):
            what = f"has {len(saved)} parameters in the checkpoint, {len(mine['params'])} in the template"
            problems.append((f"{group.name}.params", what))
        numbers += saved
        if isinstance(group, Branch) and not request.allow_missing:
            problems += [(f"{group.name}.{key}", "is not in the checkpoint") for key in mine.keys() - {*group.keys}]
    parameters = [parameter for mine in own for parameter in mine["params"]]
    if problems or len(parameters) != len(numbers):
        return problems
    known = dict(zip(numbers, parameters, strict=True))
    for number, entries in zip(state.keys, state.children, strict=True):
        if number not in known:
            problems.append((entries.name, "is of a parameter that no group has"))
        else:
            problems += _check_moments(entries, known[number], request)
    return problems


def _check_moments(entries: Node, parameter: Tensor, request: RestoreRequest) -> Iterator[tuple[str, str]]:
    """Yield what of the state of one parameter has another shape, or a type that PyTorch would convert silently."""
    for name, leaf in leaves(entries).items():
        kind = leaf.value
        if not isinstance(kind, ArrayType) or name.rpartition(".")[2] == "step":
            continue
        own = str(parameter.dtype).removeprefix("torch.")
        if len(kind.shape) > 0 and not _broadcasts(kind.shape, tuple(parameter.shape)):
            yield name, f"is {kind} in the checkpoint, and its parameter {own}{list(parameter.shape)}"
        elif parameter.is_floating_point() and kind.dtype != own and not request.cast:
            yield name, f"is {kind} in the checkpoint, and its parameter {own} (cast=True converts numbers)"


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether a moment is of a parameter: of its shape, or one that is factored into rows and columns."""
    return len(shape) == len(target) and all(n in (1, m) for n, m in zip(shape, target, strict=True))


def _child(node: Node, key: str) -> Node | None:
    if not isinstance(node, Branch) or key not in node.keys:
        return None
    return node.children[node.keys.index(key)]

"""The branches of a training state of PyTorch: each part of it with its keys and its component, however deep it lies.

A dict around parts, such as `app` of `{"app": {"model": ..., "optim": ...}}` or `extra` of `{"extra": {"step": 3}}`,
is looked through. A branch whose name or keys say what it is, is one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parity.convert.components import SCALER, component_of_key
from parity.formats import Array, Key, Tree

__all__ = [
    "MOST_AROUND",
    "StatePart",
    "arrays_beside",
    "arrays_of",
    "branches",
    "is_flat_optimizer",
    "is_optimizer",
    "is_state_dict",
    "node_at",
]

MOST_AROUND = 4
"""Containers around a part at most."""

_LOOKED_THROUGH = (None, "parameters", "optimizer", "counters")
"""Components of dicts with other parts in them: `{"model": {"state_dict": ..., "epoch": 3}}`. What is below any other
name, such as the callbacks of a trainer or a configuration, is that of its name."""

_OPTIMIZER = {"state", "param_groups"}
_FLAT = ("state.", "param_groups.")

_ABOUT = ("meta", "metadata")
"""Names of dicts in which a counter may stand beside what is configuration."""


@dataclass(frozen=True)
class StatePart:
    """One part of a tree."""

    keys: tuple[Key, ...]
    component: str | None
    """What its name or its keys say; else what the name of a branch around it says."""
    value: Tree


def branches(tree: Tree) -> Iterator[StatePart]:
    """Yield the parts of a tree in its order; those of a list one by one.

    Args:
        tree: The tree; nothing but dicts and lists around its parts is looked through.

    Example:
        >>> state = {"app": {"optim": {"state": {}, "param_groups": []}}, "schedulers": [{"gamma": 0.9}], "extra": 7}
        >>> [(".".join(map(str, one.keys)), one.component) for one in branches(state)]
        [('app.optim', 'optimizer'), ('schedulers.0', 'schedule'), ('extra', None)]
    """
    if isinstance(tree, dict):
        yield from _below(tree, (), None)


def _below(tree: Tree, around: tuple[Key, ...], above: str | None) -> Iterator[StatePart]:
    for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
        keys = (*around, key)
        named = component_of_key(key) if isinstance(key, str) else None
        if above == "configuration" and (named != "counters" or str(key).startswith(("num_", "total_"))):
            named = above  # beside a configuration, a count of layers or of all steps is one
        component = _signed(child) or (above if above == "parameters" and is_state_dict(child) else named) or above
        if isinstance(child, list) and child and (named or any(isinstance(one, dict) for one in child)):
            for at, one in enumerate(child):
                if _looked_through(one, component, (*keys, at)):
                    yield from _below(one, (*keys, at), component)
                else:
                    yield StatePart((*keys, at), _signed(one) or component, one)
        elif _looked_through(child, component, keys):
            yield from _below(child, keys, component)
        else:
            yield StatePart(keys, component, child)


def _looked_through(value: Tree, component: str | None, keys: Sequence[Key]) -> bool:
    if not isinstance(value, dict) or not value or len(keys) > MOST_AROUND:
        return False
    counts = component in (None, "counters") and all(map(_is_whole_number, value.values()))
    if (is_state_dict(value) and not counts) or _signed(value) is not None:
        return False
    whole = any(_signed(child) == component for child in value.values())  # such as schedulers by name
    return component in _LOOKED_THROUGH or whole or keys[-1] in _ABOUT


def _is_whole_number(value: Tree) -> bool:
    """Return whether a leaf is a tensor of one integer: a dict of nothing else counts, and is no model."""
    return isinstance(value, Array) and not value.shape and value.dtype.kind in "iu"


def _signed(value: Tree) -> str | None:
    """Return the component that the keys of a dict say it is, under any name."""
    if isinstance(value, Array):
        return None
    if is_flat_optimizer(value) or (isinstance(value, dict) and set(value) >= _OPTIMIZER):
        return "optimizer"
    if isinstance(value, dict) and ("_last_lr" in value or {"last_epoch", "_step_count"} <= set(value)):
        return "schedule"
    return "loss scaler" if isinstance(value, dict) and set(value) == SCALER else None


def is_optimizer(value: Tree) -> bool:
    """Return whether a value is what `state_dict` of an optimizer of torch.optim returns."""
    return isinstance(value, dict) and set(value) == _OPTIMIZER


def is_flat_optimizer(value: Tree) -> bool:
    """Return whether a value is the state of an optimizer under flat names, as torch.distributed gives it on request.

    Example:
        >>> is_flat_optimizer({"state.w.step": 3, "param_groups.w.lr": 0.1}), is_flat_optimizer({"state.w": 3})
        (True, False)
    """
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(key, str) and key.startswith(_FLAT) and key.count(".") > 1 for key in value)
        and any(key.startswith(_FLAT[1]) for key in value)
    )


def is_state_dict(value: Tree) -> bool:
    """Return whether a value is a dict of arrays by name, as `state_dict` of a module is.

    What `get_extra_state` of a module returned stands among them, and is anything.
    """
    return (
        isinstance(value, dict)
        and bool(value)
        and all(
            isinstance(key, str) and (isinstance(leaf, Array) or _is_extra_state(key)) for key, leaf in value.items()
        )
        and not all(map(_is_extra_state, value))
    )


def arrays_of(value: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays of a state dict by name, without what `get_extra_state` of its modules returned."""
    return {name: leaf for name, leaf in value.items() if not _is_extra_state(name)}


def _is_extra_state(name: str) -> bool:
    """Return whether a name is that under which `Module.state_dict` puts what `get_extra_state` returned."""
    return name.rpartition(".")[2] == "_extra_state"


def arrays_beside(tree: Tree, keys: Sequence[Key]) -> list[tuple[Key, ...]]:
    """Return the arrays in the dicts around a part that may be parameters: floating, not scalars, of no known name.

    Args:
        tree: The tree.
        keys: Those of the part.

    Example:
        >>> import numpy as np
        >>> from parity.formats import InMemory
        >>> one = InMemory(np.ones(3))
        >>> arrays_beside({"encoder": {"weight": one}, "queue": one, "best_metric": one}, ("encoder",))
        [('queue',)]
    """
    found = []
    for depth in range(len(keys)):
        around = tuple(keys[:depth])
        for key, child in node_at(tree, around).items():
            if not isinstance(child, Array) or not child.shape or child.dtype.kind in "iub":
                continue
            if component_of_key(str(key)) in (None, "parameters"):
                found.append((*around, key))
    return found


def node_at(tree: Tree, keys: Sequence[Key]) -> Any:
    """Return what lies at some keys of a tree.

    Example:
        >>> node_at({"a": [1, {"b": 2}]}, ("a", 1, "b"))
        2
    """
    for key in keys:
        tree = tree[key]
    return tree

"""A converted training state put into the model and the optimizer that go on from it in JAX."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jax_side.formats.described import key_of
from jax_side.formats.tree_form import JaxForm
from parity.checkpoints.trees import RestoreRequest, restore_tree
from parity.convert import open_any
from parity.errors import CheckpointError

__all__ = ["FilledState", "take_over"]

COUNT = jax.ShapeDtypeStruct((), jnp.int32)
"""Of the completed steps, which are a Python number or a count in the checkpoint."""

BESIDE = ("step", "torch", "schedule", "loss_scale")
"""What a conversion has beside parameters, buffers and the state of the optimizer; read elsewhere or not needed."""


@dataclass(frozen=True)
class FilledState:
    """What goes on from a converted checkpoint."""

    model: Any
    """The module of NNX that was given, filled; or a new tree of the structure of the one that was given."""
    optimizer: Any
    """The same of the optimizer; None without one."""
    step: int
    """Completed steps."""
    left: tuple[str, ...]
    """Buffers of the checkpoint for which the model has no place, such as PyTorch's `num_batches_tracked`."""


@dataclass(frozen=True)
class _Template:
    """Leaves of something by their names in the checkpoint, and what puts arrays of these names into it."""

    leaves: Mapping[str, Any]
    fill: Callable[[Mapping[str, Any]], Any]


def take_over(path: str | os.PathLike[str], model: Any, optimizer: Any = None, *, cast: bool = False) -> FilledState:
    """Put what `parity convert --to orbax` wrote into a model and its optimizer.

    Every byte is compared with its seal first. Leaves are matched by name, which the rules of the conversion gave
    them: every parameter and every slot must have its place, and every place its value.

    Args:
        path: The directory that was written.
        model: A module of NNX, which is filled; or parameters, or all variables of linen, as any pytree.
        optimizer: An `nnx.Optimizer`, which is filled; or the state that `tx.init` gave for the parameters.
        cast: Whether numbers take the type of the model where the checkpoint has another.

    Returns:
        Both, and the completed steps.

    Raises:
        CheckpointError: It is damaged, or does not fit; names each leaf. A type that differs is one of these:
            an `nnx.Embed` computes in the type with which it was built, whatever it is filled with.

    Example:
        >>> import tempfile, jax.numpy as jnp, optax, jax_side
        >>> params = {"w": jnp.ones(3)}
        >>> held = {"params": params, "opt_state": optax.adam(1e-3).init(params), "step": 7}
        >>> with tempfile.TemporaryDirectory() as home:
        ...     jax_side.save(f"{home}/run", held)
        ...     found = jax_side.take_over(f"{home}/run", {"w": jnp.zeros(3)}, optax.adam(1e-3).init(params))
        >>> found.step, found.model["w"].tolist()
        (7, [1.0, 1.0, 1.0])
    """
    there = open_any(Path(path)).tree
    if not isinstance(there, dict) or "params" not in there:
        names = ", ".join(map(str, there)) if isinstance(there, dict) else type(there).__name__
        raise CheckpointError(f"{path}: expected what parity convert --to orbax writes, with params, got {names}")
    wanted = [_model(model, there)]
    if optimizer is not None:
        wanted.append(_optimizer(optimizer))
    like: dict[str, Any] = {"step": COUNT}
    for one in wanted:
        for name, leaf in one.leaves.items():
            _put(like, name.split("."), leaf)
    found = restore_tree(JaxForm(), path, RestoreRequest(like=like, allow_extra=True, cast=cast))
    parts = ("params.", "opt_state.")[: len(wanted)]
    if unused := [name for name in found.extra if name.startswith(parts)]:
        raise CheckpointError(f"{path} has leaves for which neither model nor optimizer has a place:",
                              [(name, "is in the checkpoint alone") for name in unused])  # fmt: skip
    held = {name: _get(found.tree, name.split(".")) for one in wanted for name in one.leaves}
    filled = [one.fill(held) for one in wanted]
    left = tuple(name for name in found.extra if name.partition(".")[0] not in ("opt_state", *BESIDE))
    return FilledState(filled[0], filled[1] if len(filled) > 1 else None, int(found.tree["step"]), left)


def _model(model: Any, there: Mapping[str, Any]) -> _Template:
    if not isinstance(model, nnx.Module):
        # all variables of linen have their collections as keys, which the checkpoint has too
        whole = isinstance(model, Mapping) and "params" in model and set(model) <= set(there)
        return _tree("" if whole else "params.", model)
    state = nnx.state(model, nnx.Any(nnx.Param, nnx.BatchStat))
    leaves = {".".join(_keys(path)): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    collections = [key for key in there if key not in ("opt_state", *BESIDE)]
    places = {name: [key for key in collections if _has(there[key], name)] for name in leaves}
    if twice := [name for name, some in places.items() if len(some) > 1]:
        raise CheckpointError(f"{twice[0]}: is in {' and in '.join(places[twice[0]])} of the checkpoint")
    names = {name: f"{(*some, 'params')[0]}.{name}" for name, some in places.items()}

    def fill(held: Mapping[str, Any]) -> Any:
        nnx.update(model, _mapped(state, lambda name: held[names[name]]))
        return model

    return _Template({names[name]: leaf for name, leaf in leaves.items()}, fill)


def _optimizer(optimizer: Any) -> _Template:
    if not isinstance(optimizer, nnx.Optimizer):
        return _tree("opt_state.", optimizer)
    state = nnx.state(optimizer)
    leaves = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        leaves[".".join(_keys(path))] = leaf if _keys(path) != ["step"] else COUNT

    def fill(held: Mapping[str, Any]) -> Any:
        nnx.update(optimizer, _mapped(state, lambda name: held[name]))
        return optimizer

    return _Template(leaves, fill)


def _tree(prefix: str, tree: Any) -> _Template:
    flat, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [prefix + ".".join(_keys(path)) for path, _ in flat]

    def fill(held: Mapping[str, Any]) -> Any:
        return jax.tree_util.tree_unflatten(structure, [held[name] for name in names])

    return _Template(dict(zip(names, (leaf for _, leaf in flat), strict=True)), fill)


def _keys(path: Sequence[Any]) -> list[str]:
    """Return the keys of a leaf; that of the value of a variable of NNX is no part of its name."""
    return [str(key_of(key)) for key in path if getattr(key, "name", "") != "value"]


def _mapped(state: Any, value: Callable[[str], Any]) -> Any:
    """Return a state of NNX with other values, in the types that it has for counts."""

    def one(path: Sequence[Any], leaf: Any) -> Any:
        keys = _keys(path)
        made = value(".".join(keys))
        return jnp.asarray(made, leaf.dtype) if keys == ["step"] else made

    return jax.tree_util.tree_map_with_path(one, state)


def _has(tree: Any, name: str) -> bool:
    try:
        _get(tree, name.split("."))
    except (KeyError, IndexError, TypeError, ValueError):
        return False
    return True


def _get(tree: Any, keys: Iterable[str]) -> Any:
    for key in keys:
        tree = tree[int(key)] if isinstance(tree, list | tuple) else tree[key]
    return tree


def _put(tree: dict[str, Any], keys: Sequence[str], leaf: Any) -> None:
    for key in keys[:-1]:
        tree = tree.setdefault(key, {})
    tree[keys[-1]] = leaf

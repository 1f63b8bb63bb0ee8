"""Any tree, saved and restored: one by itself, or named items by step in a manager."""

from __future__ import annotations

import os
from typing import Any

from jax_side.formats.tree_form import JaxForm
from parity.checkpoints import trees
from parity.checkpoints.trees import (
    Reference,
    RestoredTree,
    RestoreRequest,
    Rule,
    RuleLike,
    TreeForm,
    restore_tree,
    save_tree,
)

__all__ = ["CheckpointManager", "RestoredTree", "Rule", "restore", "save"]


def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Save any tree to a new directory: sealed, and after a crash whole or absent.

    The directory is an Orbax checkpoint, which Orbax restores by itself, beside a seal and a description of the tree.

    Where JAX has several processes, all call it at once, with the same tree (docs/scale.md).

    Args:
        path: A local directory that does not exist, or the URL of a place at a store where nothing is
            (docs/remote.md); the tree is there when this returns.
        tree: Arrays of JAX and NumPy, PRNG keys (typed and raw), numbers, text and None, in dicts, lists, tuples,
            named tuples, dataclasses, NNX modules and what else is registered with JAX. Static fields are not saved.

    Raises:
        CheckpointError: The directory exists, a leaf cannot be saved (each is named), or a write failed.
        RunDirectoryError: The path is a URL of another kind, or of a place that cannot be used.
        StoreError: The store refused or was not reached.

    Example:
        >>> import tempfile, jax, jax.numpy as jnp, jax_side
        >>> state = {"w": jnp.ones((2, 3), jnp.bfloat16), "key": jax.random.key(0), "step": 7, "ema": None}
        >>> with tempfile.TemporaryDirectory() as home:
        ...     jax_side.save(f"{home}/state", state)
        ...     found = jax_side.restore(f"{home}/state", like=state).tree
        >>> found["w"].dtype, found["step"], found["ema"]
        (dtype(bfloat16), 7, None)
    """
    save_tree(JaxForm(), path, tree)


def restore(
    path: str | os.PathLike[str],
    like: Any = None,
    *,
    rules: RuleLike = (),
    allow_extra: bool = False,
    allow_missing: bool = False,
    cast: bool = False,
    reference: Reference = "exact",
) -> RestoredTree:
    """Restore a tree, after every byte of it was compared with its seal.

    Args:
        path: A directory that `save` made, or one step of a manager; or the URL of either, or of a checkpoint of
            another tool at a store.
        like: The template: a tree of the wanted structure, whose leaves are arrays or `jax.ShapeDtypeStruct`. Leaves
            are matched by name; each takes dtype, devices and sharding from the template, and an NNX module becomes
            a new module. None for plain dicts, lists, tuples and NumPy arrays.
        rules: Leaves with another name or other axes: rules, or a mapping from saved names to the template's.
        allow_extra: Whether saved leaves that the template has not are left out.
        allow_missing: Whether leaves that were not saved keep the template's value.
        cast: Whether numbers are converted to the template's dtype where it is another one.
        reference: What an array of the template counts for. `exact`: shape, dtype and sharding. `sharding`: where it
            lies, and no more; the array keeps the shape and dtype that were saved, so a small one may stand for it.

    Returns:
        The tree, and everything in which it differs from what was saved: `extra`, `filled`, `renamed`, `converted`. A
        Python number and an array of no axes stand for each other, where the value is kept exactly; that is listed.

    Raises:
        DamagedError: The checkpoint is not what was sealed; names each file and leaf.
        CheckpointError: There is none, or it does not fit the template; names each leaf.
        RunDirectoryError: The path is a URL of another kind.
        StoreError: The store refused or was not reached.

    Example:
        >>> import tempfile, jax, jax.numpy as jnp, jax_side
        >>> with tempfile.TemporaryDirectory() as home:
        ...     jax_side.save(f"{home}/old", {"encoder": {"w": jnp.ones(3)}, "unused": jnp.ones(1)})
        ...     like = {"backbone": {"w": jax.ShapeDtypeStruct((3,), jnp.float32)}, "head": jnp.zeros(2)}
        ...     found = jax_side.restore(
        ...         f"{home}/old", like, rules={"encoder": "backbone"}, allow_extra=True, allow_missing=True
        ...     )
        >>> found.extra, found.filled, dict(found.renamed)
        (('unused',), ('head',), {'backbone.w': 'encoder.w'})
    """
    request = RestoreRequest(
        like=like, rules=rules, allow_extra=allow_extra, allow_missing=allow_missing, cast=cast, reference=reference
    )
    return restore_tree(JaxForm(), path, request)


class CheckpointManager(trees.CheckpointManager):
    __doc__ = trees.CheckpointManager.__doc__

    def _form(self) -> TreeForm:
        return JaxForm()

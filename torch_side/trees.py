"""Any tree, saved and restored: one by itself, or named items by step in a manager."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

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
from parity.policy import Rules, Which
from torch_side.formats.tree_form import TorchForm

__all__ = ["CheckpointManager", "RestoredTree", "Rule", "restore", "save"]


def save(path: str | os.PathLike[str], tree: Any, *, together: bool | None = None) -> None:
    """Save any tree to a new directory: sealed, and after a crash whole or absent.

    The directory holds `state.pt`, which `torch.load(weights_only=True)` reads by itself, beside a seal and a
    description of the tree.

    Args:
        path: A local directory that does not exist, or the URL of a place at a store where nothing is
            (docs/remote.md); the tree is there when this returns.
        tree: Tensors, NumPy arrays, numbers, text and None, in dicts, lists, tuples, named tuples and dataclasses;
            also modules, optimizers, schedulers, scalers, generators and what else has `state_dict`, by their state.
        together: Whether all processes of torch.distributed save one tree, and call this at once (docs/scale.md).
            None for whether a tensor of the tree is a DTensor that lies in several. PyTorch only: JAX's always do.

    Raises:
        CheckpointError: The directory exists, a leaf cannot be saved (each is named), or a write failed.
        RunDirectoryError: The path is a URL of another kind, or of a place that cannot be used.
        StoreError: The store refused or was not reached.

    Example:
        >>> import tempfile, torch, torch_side
        >>> model = torch.nn.Linear(2, 3)
        >>> state = {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "step": 7, "ema": None}
        >>> with tempfile.TemporaryDirectory() as home:
        ...     torch_side.save(f"{home}/state", state)
        ...     found = torch_side.restore(f"{home}/state", like=state).tree
        >>> found["model"] is model, found["step"], found["ema"]
        (True, 7, None)
    """
    save_tree(TorchForm(together=together), path, tree)


def restore(
    path: str | os.PathLike[str],
    like: Any = None,
    *,
    rules: RuleLike = (),
    allow_extra: bool = False,
    allow_missing: bool = False,
    cast: bool = False,
    reference: Reference = "exact",
    map_location: str | torch.device | None = None,
    together: bool | None = None,
) -> RestoredTree:
    """Restore a tree, after every byte of it was compared with its seal.

    Args:
        path: A directory that `save` made, or one step of a manager; or the URL of either, or of a checkpoint of
            another tool at a store.
        like: The template: a tree of the wanted structure. Leaves are matched by name; each takes dtype and device
            from the template. Modules, optimizers and other objects with state take it over in place, as
            `load_state_dict` does, after everything was checked. None for plain dicts, lists, tuples and tensors.
        rules: Leaves with another name or other axes: rules, or a mapping from saved names to the template's.
        allow_extra: Whether saved leaves that the template has not are left out.
        allow_missing: Whether leaves that were not saved keep the template's value.
        cast: Whether numbers are converted to the template's dtype where it is another one.
        reference: What a tensor of the template counts for. `exact`: shape, dtype and device. `sharding`: where it
            lies, and no more; the tensor keeps the shape and dtype that were saved. Those of a module stay exact.
        map_location: Device of the tensors that are returned; those of a module stay where it is. PyTorch only: in
            JAX the template's sharding says it.
        together: As of `save`, for the template.

    Returns:
        The tree, and everything in which it differs from what was saved: `extra`, `filled`, `renamed`, `converted`. A
        Python number and a tensor of no axes stand for each other, where the value is kept exactly; that is listed.

    Raises:
        DamagedError: The checkpoint is not what was sealed; names each file and leaf.
        CheckpointError: There is none, or it does not fit the template; names each leaf.
        RunDirectoryError: The path is a URL of another kind.
        StoreError: The store refused or was not reached.

    Example:
        >>> import tempfile, torch, torch_side
        >>> with tempfile.TemporaryDirectory() as home:
        ...     torch_side.save(f"{home}/old", {"encoder": {"w": torch.ones(3)}, "unused": torch.ones(1)})
        ...     like = {"backbone": {"w": torch.empty(3, device="meta")}, "head": torch.zeros(2)}
        ...     found = torch_side.restore(
        ...         f"{home}/old", like, rules={"encoder": "backbone"}, allow_extra=True, allow_missing=True
        ...     )
        >>> found.extra, found.filled, dict(found.renamed)
        (('unused',), ('head',), {'backbone.w': 'encoder.w'})
    """
    request = RestoreRequest(
        like=like, rules=rules, allow_extra=allow_extra, allow_missing=allow_missing, cast=cast, reference=reference
    )
    return restore_tree(TorchForm(request, _device(map_location), together), path, request)


class CheckpointManager(trees.CheckpointManager):
    __doc__ = f"""{(trees.CheckpointManager.__doc__ or "").rstrip()}

    `together`, of PyTorch only: whether all processes of torch.distributed save and restore, as of `save`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        keep: Rules = trees.KEEP,
        save_interval_steps: int = 1,
        together: bool | None = None,
    ) -> None:
        self._together = together
        super().__init__(directory, keep=keep, save_interval_steps=save_interval_steps)

    def restore(
        self,
        which: Which = "latest",
        like: Mapping[str, Any] | None = None,
        *,
        rules: RuleLike = (),
        allow_extra: bool = False,
        allow_missing: bool = False,
        cast: bool = False,
        reference: Reference = "exact",
        map_location: str | torch.device | None = None,
    ) -> RestoredTree:
        """Restore items of a checkpoint, after every byte of it was compared with its seal.

        Args:
            which: `latest`, `best`, or a step.
            like: Item to its template; other items are not read, and are listed in `extra`. None for all items as
                plain containers and tensors.
            rules: As of `restore`; a name begins with that of its item.
            allow_extra: As of `restore`.
            allow_missing: As of `restore`.
            cast: As of `restore`.
            reference: As of `restore`.
            map_location: As of `restore`; PyTorch only.

        Returns:
            The items and everything in which they differed, with step and metric of the checkpoint.

        Raises:
            CheckpointError: There is no such checkpoint, or it does not fit; names each leaf.
            DamagedError: It is not what was sealed.
            UnknownNameError: `which` is neither `latest` nor `best` nor an integer.
            SaveError: The last save failed; nothing was restored.
        """
        like = None if like is None else dict(like)
        request = RestoreRequest(
            like=like,
            rules=rules,
            allow_extra=allow_extra,
            allow_missing=allow_missing,
            cast=cast,
            reference=reference,
        )
        return self._restored(TorchForm(request, _device(map_location), self._together), which, request)

    def _form(self) -> TreeForm:
        return TorchForm(together=self._together)


def _device(map_location: str | torch.device | None) -> torch.device | None:
    return None if map_location is None else torch.device(map_location)

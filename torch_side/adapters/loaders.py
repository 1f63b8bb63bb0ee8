"""Kinds of PyTorch's data loading: loaders, their iterators, samplers; nothing is drawn and no worker is asked."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.data.distributed import DistributedSampler

from parity.capture import Walk, component_from_name, register

__all__ = ["register_loaders"]

_LOADER = ("dataset", "sampler", "batch_sampler", "generator", "collate_fn")
"""What a loader holds that decides on its batches."""
_STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader.StatefulDataLoader"


def _loader(walk: Walk, path: str, loader: DataLoader[Any]) -> None:
    if not walk.is_new(path, loader, "data.position"):
        return
    for name in _LOADER:
        value = getattr(loader, name, None)
        if value is not None:
            walk.visit(f"{path}.{name}", value)
    iterator = getattr(loader, "_iterator", None)
    if iterator is not None:  # of persistent workers
        walk.visit(f"{path}.iterator", iterator)


def _stateful(walk: Walk, path: str, loader: Any) -> None:
    """Ask a StatefulDataLoader that has begun; one that has not would begin by being asked."""
    _loader(walk, path, loader)
    if getattr(loader, "_iterator", None) is not None:
        walk.visit(f"{path}.state_dict()", loader.state_dict())


def _iterator(walk: Walk, path: str, iterator: Any) -> None:
    if not walk.is_new(path, iterator, "data.position"):
        return
    walk.inside_iterator(path)
    walk.leaf(f"{path}.yielded", iterator._num_yielded, "data.position", "position")
    walk.leaf(f"{path}.base_seed", getattr(iterator, "_base_seed", None), "data.position", "position")
    if hasattr(iterator, "_rcvd_idx"):  # with workers: what they have prefetched is theirs
        walk.leaf(f"{path}.received", iterator._rcvd_idx, "data.position", "position")
        walk.snapshot.unseen[f"{path}.workers"] = "generators and queues of worker processes"
    walk.visit(f"{path}.sampler", iterator._sampler_iter)


def _sampler(walk: Walk, path: str, sampler: Any) -> None:
    if not walk.is_new(path, sampler, "data.position"):
        return
    for name, value in vars(sampler).items():
        if isinstance(value, bool | int | float | str | None):
            walk.leaf(f"{path}.{name}", value, "data.position", "position")
            if isinstance(sampler, DistributedSampler) and name in ("epoch", "seed"):  # else they share samples
                walk.copied(f"{path}.{name}", f"{sampler.num_replicas} parts of {type(sampler.dataset).__name__}")
        else:
            walk.visit(f"{path}.{name}", value)


def _dataset(walk: Walk, path: str, dataset: Any) -> None:
    if walk.is_new(path, dataset, component_from_name(path)):
        for name, value in vars(dataset).items():
            walk.visit(f"{path}.{name}", value)


def register_loaders() -> None:
    """Register them."""
    register(DataLoader, _loader)
    register(_STATEFUL, _stateful)
    register(_BaseDataLoaderIter, _iterator)
    register(Sampler, _sampler)
    register(Dataset, _dataset)

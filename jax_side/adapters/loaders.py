"""Kinds of Grain: iterators by the state that they would save; nothing is drawn and no worker is asked."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from jax_side.adapters.arrays import child
from parity.capture import Walk, attributes_of, register

__all__ = ["register_loaders"]

_DATASETS = "grain._src.python.dataset.dataset"
_LOADER = "grain._src.python.data_loader"
_PARENTS = ("_parent", "_parents", "_maybe_parent")
_RULES = frozenset(
    ("_seed", "_reseed_each_epoch", "_batch_size", "_drop_remainder", "_num_epochs", "_start", "_stop", "_step")
)
"""What decides on the order of elements, of all that a dataset is made with."""


def _iterator(walk: Walk, path: str, iterator: Any) -> None:
    """Ask an iterator for its state; a loader's is JSON."""
    if not walk.is_new(path, iterator, "data.position"):
        return
    try:
        state = iterator.get_state()
    except Exception:  # one that its dataset cannot save
        walk.not_seen(path, iterator)
        return
    if isinstance(state, bytes):
        try:
            state = json.loads(state)
        except ValueError:
            walk.data(f"{path}.get_state()", state, "bytes", "data.position", "position")
            return
    _position(walk, f"{path}.get_state()", state)


def _position(walk: Walk, path: str, state: Any) -> None:
    if isinstance(state, dict):
        for key, item in state.items():
            _position(walk, child(path, key), item)
    elif isinstance(state, list | tuple):
        for at, item in enumerate(state):
            _position(walk, f"{path}[{at}]", item)
    elif isinstance(state, np.ndarray):
        walk.array(path, state, "data.position", "position")
    else:
        walk.leaf(path, state, "data.position", "position")


def _dataset(walk: Walk, path: str, dataset: Any) -> None:
    """Show what a dataset or a sampler was made with: it never changes, but it may be made otherwise."""
    if not walk.is_new(path, dataset, "data.position"):
        return
    for name, value in attributes_of(dataset).items():
        if name in _PARENTS:
            items = value if isinstance(value, list | tuple) else [value]
            for at, parent in enumerate(items):
                walk.visit(f"{path}.parents[{at}]", parent)
        elif name in _RULES and isinstance(value, bool | int | float | str | None):
            walk.leaf(f"{path}.{name}", value, "data.position", "position")


def _loader(walk: Walk, path: str, loader: Any) -> None:
    """Show a loader by its sampler: its position is in its iterators."""
    if walk.is_new(path, loader, "data.position"):
        sampler = getattr(loader, "_sampler", None)
        if sampler is not None:
            walk.visit(f"{path}.sampler", sampler)


def register_loaders() -> None:
    """Register them, by name."""
    register(f"{_DATASETS}.DatasetIterator", _iterator)
    register(f"{_LOADER}.DataLoaderIterator", _iterator)
    register(f"{_DATASETS}._Dataset", _dataset)
    register("grain._src.python.samplers.IndexSampler", _dataset)
    register("grain._src.python.samplers.SequentialSampler", _dataset)
    register(f"{_LOADER}.DataLoader", _loader)

"""The writer of directories of torch.distributed.checkpoint, in one process; arrays are written piece by piece.

Each array is planned as pieces of a bounded size, as if ranks held them, so that no array is in memory as a whole.

Source: `torch.distributed.checkpoint`, `DefaultSavePlanner` and `FileSystemWriter`, PyTorch 2.13.
"""

from __future__ import annotations

import io
import mmap
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType

from parity.formats import (
    BLOCK_BYTES,
    DCP_TREE,
    Array,
    Box,
    Key,
    Tree,
    TreeLeaf,
    Writer,
    boxes,
    dcp_tree_text,
    encode_tree,
    extents,
    leaf_name,
    map_leaves,
    misfits,
    open_dcp,
)
from parity.storage import WRITE_BYTES, WriteBack
from torch_side.formats.write_torch import has_tensors

__all__ = ["DCP", "write_dcp"]


def write_dcp(tree: Tree, path: Path) -> None:
    """Write a tree so that `torch.distributed.checkpoint.load` fills a state dict of its names from it.

    The format keeps integer keys as text and drops empty containers, so a file beside it describes the tree, which
    PyTorch's loads and tools do not look at.

    Args:
        tree: A dict.
        path: A directory that does not exist.

    Raises:
        OSError: The disk is full, or failed.
    """
    arrays: dict[int, Array] = {}
    kept: list[torch.Tensor] = []

    def room(_: tuple[Key, ...], leaf: Any) -> Any:
        if not isinstance(leaf, Array):
            return leaf
        kept.append(torch.empty(leaf.shape, dtype=getattr(torch, leaf.dtype.name)))
        arrays[id(kept[-1])] = leaf
        return kept[-1]

    state = map_leaves(tree, room)
    state = _as_lists(state)  # PyTorch pickles a tuple as a whole, with the tensors in it
    writer = dcp.FileSystemWriter(path, single_file_per_rank=True, sync_files=False, thread_count=1)
    with warnings.catch_warnings(), WriteBack() as back:
        writer.fs = _Files(back)
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # it is: this is one process
        try:
            dcp.save(state, storage_writer=writer, planner=_Planner(arrays), no_dist=True)
        except dcp.CheckpointException as error:  # of class BaseException: it would pass by every handler
            cause = next(iter(error.failures.values()))[0]
            if not isinstance(cause, Exception):  # Ctrl-C is no failure of the disk
                raise cause from None
            raise RuntimeError(f"{type(cause).__name__}: {cause}") from cause
    described = encode_tree(tree, lambda keys, _: {"array": leaf_name(keys)})
    (path / DCP_TREE).write_text(dcp_tree_text(path, described), encoding="utf-8")


def _as_lists(tree: Tree) -> Any:
    if isinstance(tree, dict):
        return {key: _as_lists(child) for key, child in tree.items()}
    return [_as_lists(child) for child in tree] if isinstance(tree, list | tuple) else tree


class _Files(FileSystem):
    """Files that go to the disk while more is written to them."""

    def __init__(self, back: WriteBack) -> None:
        super().__init__()
        self._back = back

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        """Open a file for writing; others as PyTorch opens them."""
        if mode != "wb":
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        with io.BufferedWriter(_Counted(path, self._back)) as stream:
            yield stream


class _Counted(io.FileIO):
    """A file whose bytes are counted, and synchronized on the way."""

    def __init__(self, path: str | os.PathLike[str], back: WriteBack) -> None:
        super().__init__(path, "w")
        self._back = back

    def write(self, data: Any) -> int:
        """Write bytes, and return how many were written."""
        count = super().write(memoryview(data)[:WRITE_BYTES])
        self._back.written(self.fileno(), count)
        return count


class _Planner(dcp.DefaultSavePlanner):
    """Plans each array as pieces, and reads a piece when it is written."""

    def __init__(self, arrays: dict[int, Array]) -> None:
        super().__init__()
        self.arrays = arrays
        self._room = mmap.mmap(-1, BLOCK_BYTES)
        """Takes each piece in turn: PyTorch writes one before it asks for the next, and keeps the last of every name.
        Storages of their own, given back one by one, left the heap as large as the checkpoint: the room of a freed
        aligned block is too small for the next aligned one of its size."""

    def create_local_plan(self) -> SavePlan:
        """Return the plan with an item for each piece."""
        plan = super().create_local_plan()
        self.plan = replace(plan, items=[piece for item in plan.items for piece in self._pieces(item)])
        return self.plan

    def _pieces(self, item: WriteItem) -> Iterator[WriteItem]:
        array = self._array(item.index.fqn)
        parts: list[Box] = []
        if array is not None and item.tensor_data is not None:
            parts = list(boxes(array.shape, max(1, BLOCK_BYTES // array.dtype.itemsize)))
        if len(parts) < 2:
            yield item
            return
        for box in parts:
            start = torch.Size(low for low, _ in box)
            chunk = ChunkStorageMetadata(offsets=start, sizes=torch.Size(extents(box)))
            yield WriteItem(
                index=MetadataIndex(item.index.fqn, start),
                type=WriteItemType.SHARD,
                tensor_data=replace(item.tensor_data, chunk=chunk),
            )

    def _array(self, fqn: str) -> Array | None:
        return self.arrays.get(id(self.state_dict[fqn]))

    def resolve_data(self, write_item: WriteItem) -> Any:
        """Return a piece as a tensor of its own, or what is no array as PyTorch pickles it."""
        array = self._array(write_item.index.fqn)
        if array is None or write_item.tensor_data is None:
            return super().resolve_data(write_item)
        chunk = write_item.tensor_data.chunk
        box: Box = tuple((low, low + n) for low, n in zip(chunk.offsets, chunk.sizes, strict=True))
        if write_item.type != WriteItemType.SHARD:
            box = tuple((0, n) for n in array.shape)
        return _tensor(array, box, self._room)


def _tensor(array: Array, box: Box, room: mmap.mmap) -> torch.Tensor:
    """Return a piece of an array as a tensor in a given room, its storage as large as the piece."""
    dtype, shape = getattr(torch, array.dtype.name), extents(box)
    flat = np.ascontiguousarray(array.read(box)).reshape(-1).view(np.uint8)
    if not flat.nbytes:
        return torch.empty(shape, dtype=dtype)
    room[: flat.nbytes] = memoryview(flat)
    return torch.frombuffer(room, dtype=torch.uint8, count=flat.nbytes).view(dtype).reshape(shape)


def _misfit(leaf: TreeLeaf) -> str:
    return f"PyTorch has no {leaf.dtype.name}" if isinstance(leaf, Array) and not has_tensors(leaf.dtype.name) else ""


DCP = Writer(
    format="dcp",
    directory=True,
    cannot_hold=lambda tree: misfits(tree, _misfit, flat="DCP"),
    write=write_dcp,
    read=lambda path: open_dcp(path).tree,
)
"""The writer of a directory."""

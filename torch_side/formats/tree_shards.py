"""The files of a tree that several processes write and read together: one `state.pt`, as one process would write it.

Process 0 lays each file out with room in place of the bytes of tensors, and every process writes what it holds at its
place. To restore, each maps the file and copies what it needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.tensor import DTensor

from parity import storage
from parity.checkpoints import ByteRange
from parity.checkpoints.trees import (
    HeldArray,
    HeldPiece,
    SavedPart,
    SavingGroup,
    Written,
    attempt,
    attempt_told,
    sealed_name,
)
from parity.storage import WriteBack
from torch_side.formats.content import lay_out_content
from torch_side.formats.dtensors import box_of, copy_of, laid_like
from torch_side.formats.pieces import ShardPiece, runs, write_at
from torch_side.formats.tree_files import file_of, places_of, records_of

__all__ = ["JointFileWrite", "held_part", "read_part"]


def held_part(value: DTensor, local: Tensor, values: NDArray[np.generic], live: Any) -> HeldArray:
    """Return what this process holds of a tensor.

    Args:
        value: Says where the elements lie.
        local: The elements, which give the type.
        values: The same as an array.
        live: What the form makes of it.
    """
    box = box_of(value)
    copy, writes = copy_of(value)
    pieces = () if box is None else (HeldPiece(tuple(low for low, _ in box), values, copy, writes),)
    return HeldArray(tuple(value.shape), str(local.dtype).removeprefix("torch."), pieces, live)


def read_part(mapped: Tensor, like: DTensor, neutral: Any) -> HeldArray:
    """Return what this process needs of a mapped tensor, as a tensor that lies like another one.

    Args:
        mapped: The whole tensor, in a file.
        like: Says what is needed.
        neutral: Returns a tensor as an array.
    """
    box = box_of(like)
    own = mapped[tuple(slice(low, high) for low, high in box)] if box is not None else mapped.reshape(-1)[:0]
    local = own.clone(memory_format=torch.contiguous_format)
    return held_part(like, local, neutral(local), laid_like(like, local))


class JointFileWrite:
    """Parts that all processes write together, each part to a file of its own as `write_parts` does.

    Args:
        draft: The new directory, in one that all processes see.
        parts: What is written.
        values: Name of each leaf to what is written, copies of what the program has: a tensor, a `HeldArray`, or a
            scalar.
        neutral: Returns a tensor as an array.
    """

    def __init__(self, draft: Path, parts: list[SavedPart], values: Mapping[str, Any], neutral: Any) -> None:
        self._draft, self._parts, self._values, self._neutral = draft, parts, values, neutral
        self._files = [part for part in parts if not part.is_json]

    def write(self, group: SavingGroup) -> None:
        """Return when all processes have written what they hold.

        Args:
            group: The processes.

        Raises:
            CheckpointError: Some process failed; says which.
        """
        first = group.index == 0
        laid_out = attempt_told(group, lambda: _laid_out(self._draft, self._parts, self._values) if first else {})
        act = partial(self._write, laid_out[0], first=first)
        attempt(group, act, lambda error: storage.reason(error, "write", self._draft))

    def finish(self, texts: Mapping[str, str]) -> Written:
        """Return, in process 0, where the tensors lie."""
        del texts
        found: dict[str, tuple[ByteRange, ...]] = {}
        for part in self._files:
            found.update(places_of(self._draft, file_of(part), records_of(part, self._values)))
        return {}, found

    def _write(self, starts: Mapping[str, Mapping[str, int]], *, first: bool) -> None:
        draft = self._draft
        with ExitStack() as stack:
            written: dict[Path, int] = {}
            with storage.named(draft), WriteBack() as back:  # the disk begins while more is written, of all files
                for part in self._files:
                    name = file_of(part)
                    with storage.named(draft / name):
                        opened = stack.enter_context((draft / name).open("r+b", buffering=0))
                        written[draft / name] = opened.fileno()
                        for piece in _pieces(part, self._values, self._neutral, starts[name], first=first):
                            for at, run in runs(piece):
                                write_at(opened.fileno(), run, piece.number + at)
                                back.written(opened.fileno(), len(run))
            for path, handle in written.items():
                with storage.named(path, "fsync"):
                    os.fsync(handle)


def _laid_out(draft: Path, parts: Iterable[SavedPart], values: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Make the files without the bytes of tensors; return file, and name of a tensor, to where its bytes start."""
    storage.make_directory(draft.parent)
    with storage.named(draft, "mkdir"):
        draft.mkdir()
    rooms: dict[int, Tensor] = {}

    def room(value: Any) -> Any:
        if not isinstance(value, HeldArray):
            return value
        if id(value) not in rooms:  # its memory is never touched
            rooms[id(value)] = torch.empty(value.shape, dtype=getattr(torch, value.dtype))
        return rooms[id(value)]

    outline = {name: room(value) for name, value in values.items()}
    starts: dict[str, dict[str, int]] = {}
    for part in parts:
        content = part.content(outline)
        if part.is_json:
            storage.write_file(draft / f"{part.item}.json", json.dumps(content))
            continue
        name = file_of(part)
        lay_out_content(draft / name, content)
        numbers = records_of(part, values)
        starts[name] = {leaf: at[0].start for leaf, at in places_of(draft, name, numbers, digest=False).items()}
    return starts


def _pieces(
    part: SavedPart, values: Mapping[str, Any], neutral: Any, starts: Mapping[str, int], *, first: bool
) -> list[ShardPiece]:
    """Return what this process writes of a part: its boxes, and in process 0 what is the same in all."""
    found: dict[int, ShardPiece] = {}
    for name in part.arrays():
        value, sealed = values[name], sealed_name(name)
        if not isinstance(value, HeldArray):
            if first and starts[sealed] not in found:
                box = tuple((0, size) for size in value.shape)
                found[starts[sealed]] = ShardPiece(sealed, starts[sealed], tuple(value.shape), box, neutral(value))
            continue
        for piece in value.pieces:
            if piece.writes and starts[sealed] not in found:
                box = tuple((low, low + n) for low, n in zip(piece.start, piece.values.shape, strict=True))
                found[starts[sealed]] = ShardPiece(sealed, starts[sealed], value.shape, box, piece.values)
    return list(found.values())

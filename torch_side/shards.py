"""Checkpoints that several processes write: one file as of one process, into which each writes what it holds.

Process 0 lays the file out (every record of the archive at its place, the bytes of tensors left out), each process
writes the parts that it holds at their places and digests them. Blocks that lie in several are completed in shares,
each by one process (`parity.state.complete_in_shares`); process 0 merges the digests of blocks and seals, last. So a
checkpoint of many processes is one of one process to whatever reads it, and any number of processes restores it.
No process has more than its own parts in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from parity import storage
from parity.checkpoints import DRAFT, ByteRange, SaveUnderWay
from parity.errors import SaveError
from parity.state import LeafDigest, TrainingState, complete_in_shares, leaf_digests
from parity.twins import Layout
from torch_side import processes
from torch_side.formats.archive import places
from torch_side.formats.content import STATE, lay_out_content
from torch_side.formats.pieces import ShardPiece, runs, write_at
from torch_side.parts import Held, map_parts, tensors_of
from torch_side.snapshot import Snapshot
from torch_side.state import LiveState, neutral_arrays

__all__ = ["ShardSnapshot", "write_shards"]

Commit = Callable[[Path, Mapping[str, tuple[ByteRange, ...]]], None]
"""Seals and commits a draft whose leaves lie at these places; in process 0."""


class ShardSnapshot(Snapshot):
    """A copy of what one of several processes holds of the state, beside which training continues.

    Args:
        layout: Layout of the run's state.
        state: The state; its `parts` are those of this process.
        spare: The snapshot of the save before, whose buffers it takes over.
    """

    def __init__(self, layout: Layout, state: LiveState, spare: Snapshot | None = None) -> None:
        super().__init__(layout, state, spare)
        assert state.parts is not None
        self._parts = state.parts

    def outline(self) -> tuple[dict[str, Any], dict[int, Held]]:
        """Return the content with whole tensors in place of parts, whose memory is never touched; and their parts."""
        found: dict[int, Held] = {}

        def whole(value: Tensor, part: Held) -> Tensor:
            room = torch.empty(part.shape, dtype=value.dtype)
            found[id(room)] = part
            return room

        return map_parts(self.content, self._names, self._parts, whole), found

    def pieces(self, outline: Mapping[str, Any], parts: Mapping[int, Held], *, first: bool) -> Iterator[ShardPiece]:
        """Yield what this process writes: its parts, and in process 0 what is the same in all.

        Args:
            outline: What `outline` returned.
            parts: The parts beside it.
            first: Whether this is process 0.
        """
        arrays, _ = neutral_arrays(self._layout, self._names, outline)
        leaves = {array.ctypes.data: leaf for leaf, array in arrays.items()}
        for number, (own, whole) in enumerate(zip(tensors_of(self.content), tensors_of(outline), strict=True)):
            part = parts.get(id(whole))
            if first if part is None else part.writes:
                box = tuple((0, size) for size in whole.shape) if part is None else part.box
                yield ShardPiece(leaves.get(whole.data_ptr()), number, tuple(whole.shape), box, own.numpy())


def write_shards(
    save: SaveUnderWay[Any], home: Path, meta: str, group: dist.ProcessGroup, commit: Commit
) -> dict[int, int]:
    """Write a checkpoint together; all processes call it, each in the thread that writes.

    Args:
        save: The save, of which each process has its own snapshot.
        home: Where checkpoints are.
        meta: Name of the JSON file.
        group: A group of all processes that nothing else uses.
        commit: Called in process 0 when all have written.

    Returns:
        Number of each block of the file to the bytes of it that this process wrote.

    Raises:
        SaveError: It failed, in whichever process; all raise it.
    """
    first = processes.index() == 0
    outline, parts = save.snapshot.outline()
    label = save.label()
    laid = _attempt(lambda: _lay_out(save, home, meta, {**outline, **label}) if first else {})
    laid = _require(save, processes.exchange(laid, group)[:1])[0]
    draft = home / str(laid.get("draft"))
    pieces = list(save.snapshot.pieces(outline, parts, first=first))
    digests: dict[str, LeafDigest] = {}
    blocks: dict[int, int] = {}
    attempt = _attempt(lambda: _write(draft / STATE, pieces, laid["starts"], digests, blocks))
    written = processes.exchange(attempt, group)
    gathered = written if any("failed" in one for one in written) else _gathered(outline, save, digests, group)

    def finish() -> dict[str, Any]:
        merged = _merged(_require(save, gathered))
        arrays, counts = neutral_arrays(save.snapshot._layout, save.snapshot._names, outline)
        rest = {leaf: array for leaf, array in arrays.items() if leaf not in merged}
        neutral = TrainingState(arrays=rest, scalars={**save.scalars, **counts})
        found = leaf_digests(neutral)
        save.put_leaves({leaf: merged.get(leaf) or found[leaf] for leaf in (*arrays, *neutral.scalars)})
        commit(draft, places(draft, STATE, laid["numbers"]))
        return {}

    _require(save, processes.exchange(_attempt(finish if first else dict), group)[:1])
    return blocks


def _lay_out(save: SaveUnderWay[ShardSnapshot], home: Path, meta: str, content: dict[str, Any]) -> dict[str, Any]:
    """Make the draft with its files, the bytes of tensors left out, and return what the others need to know of it."""
    storage.make_directory(home)
    draft = home / f"{DRAFT}{save.step}-{os.getpid()}"
    with storage.named(draft, "mkdir"):
        draft.mkdir()
    lay_out_content(draft / STATE, content)
    storage.write_file(draft / meta, json.dumps(save.meta()))
    arrays, _ = neutral_arrays(save.snapshot._layout, save.snapshot._names, content)
    leaves = {array.ctypes.data: leaf for leaf, array in arrays.items()}
    found = list(tensors_of(content))
    numbers = {leaves[t.data_ptr()]: n for n, t in enumerate(found) if t.data_ptr() in leaves}
    at = places(draft, STATE, {str(n): n for n in range(len(found))})
    return {"draft": draft.name, "numbers": numbers, "starts": [at[str(n)][0].start for n in range(len(found))]}


def _gathered(
    outline: Mapping[str, Any],
    save: SaveUnderWay[ShardSnapshot],
    digests: Mapping[str, LeafDigest],
    group: dist.ProcessGroup,
) -> Sequence[dict[str, Any]]:
    """Return in process 0 the digests of all blocks, from each process those that it completed; the others get none.

    What crosses of the state itself is the ends of shards that lie in one block, each to the process that completes
    that block.
    """

    def complete() -> dict[str, Any]:
        arrays, _ = neutral_arrays(save.snapshot._layout, save.snapshot._names, outline)
        leaves = [(leaf, array.nbytes) for leaf, array in arrays.items()]
        held = {leaf: {"": digest} for leaf, digest in digests.items()}
        shares = complete_in_shares(leaves, held, lambda values: processes.scatter(values, group), processes.count())
        return {"digests": {leaf: share[""].packed() for leaf, share in shares.items()}}

    return processes.exchange(_attempt(complete), group, to_first=True)


def _write(
    file: Path,
    pieces: Sequence[ShardPiece],
    starts: Sequence[int],
    digests: dict[str, LeafDigest],
    blocks: dict[int, int],
) -> dict[str, Any]:
    """Write the pieces of this process, durably; fill `digests`, and `blocks` with the bytes of each."""
    with storage.named(file), file.open("r+b", buffering=0) as opened:
        for piece in pieces:
            for at, run in runs(piece):
                write_at(opened.fileno(), run, starts[piece.number] + at)
                _count(blocks, starts[piece.number] + at, len(run))
            if piece.leaf is not None:
                digests[piece.leaf] = LeafDigest(piece.shape, piece.values.dtype)
                digests[piece.leaf].add([low for low, _ in piece.box], piece.values)
        os.fsync(opened.fileno())
    return {}


def _count(blocks: dict[int, int], start: int, size: int) -> None:
    """Add a range of bytes to what was written of each block."""
    while size > 0:
        count = min(size, storage.BLOCK - start % storage.BLOCK)
        blocks[start // storage.BLOCK] = blocks.get(start // storage.BLOCK, 0) + count
        start, size = start + count, size - count


def _merged(written: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return leaf to the text of its digest, from the packed digests of all processes."""
    whole: dict[str, LeafDigest] = {}
    for one in written:
        for leaf, packed in one["digests"].items():
            part = LeafDigest.unpacked(packed)
            if leaf in whole:
                whole[leaf].merge(part)
            else:
                whole[leaf] = part
    return {leaf: digest.text() for leaf, digest in whole.items()}


def _attempt(act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a function returns, or why it failed: the others must hear of it before this process raises."""
    try:
        return act()
    except Exception as error:
        saved = isinstance(error, SaveError) and error.saved
        cause = error.__cause__ if isinstance(error, SaveError) and isinstance(error.__cause__, Exception) else error
        return {"failed": storage.reason(cause, "write"), "saved": saved, "process": processes.index()}


def _require(save: SaveUnderWay[ShardSnapshot], found: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return what processes gave, if none of them failed."""
    for one in found:
        if "failed" in one:
            raise SaveError(save.step, f"process {one['process']}: {one['failed']}", saved=one["saved"])
    return found

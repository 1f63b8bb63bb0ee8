"""Where the leaves of a state lie in a file of `torch.save`, for its seal."""

from __future__ import annotations

from pathlib import Path

from parity.checkpoints import ByteRange
from torch_side.formats.archive import read_records
from torch_side.snapshot import Snapshot

__all__ = ["places"]


def places(root: Path, file: str, snapshot: Snapshot) -> dict[str, tuple[ByteRange, ...]]:
    """Return where the bytes of each leaf lie.

    Storage n is the record `data/n`, in the order in which pickling meets them, and every tensor of a snapshot has a
    storage of its own; PyTorch stores them as they are in memory, so the leaf's digest decides on its range.

    Args:
        root: The checkpoint, or its draft.
        file: Name of the file below it.
        snapshot: What was written.
    """
    records = read_records(root / file)
    found = {leaf: records[f"data/{number}"] for leaf, number in snapshot.records().items()}
    return {leaf: (ByteRange(file, record.start, record.size),) for leaf, record in found.items()}

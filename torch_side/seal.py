"""Where the leaves of a state lie in a file of `torch.save`, for its seal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parity.checkpoints import Place
from torch_side.formats.archive import read_records
from torch_side.snapshot import Snapshot

__all__ = ["places"]


def places(root: Path, file: str, snapshot: Snapshot, leaves: Mapping[str, str]) -> dict[str, tuple[Place, ...]]:
    """Return where the bytes of each leaf lie.

    Storage n is the record `data/n`, in the order in which pickling meets them, and every tensor of a snapshot has a
    storage of its own; PyTorch stores them as they are in memory, so a leaf's digest is its range's.

    Args:
        root: The checkpoint, or its draft.
        file: Name of the file below it.
        snapshot: What was written.
        leaves: Neutral leaf to `type digest`.
    """
    records = read_records(root / file)
    found: dict[str, tuple[Place, ...]] = {}
    for leaf, number in snapshot.records().items():
        record = records[f"data/{number}"]
        found[leaf] = (Place(file, record.start, record.size, leaves[leaf].rpartition(" ")[2]),)
    return found

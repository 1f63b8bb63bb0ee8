"""Opening what a path names: a checkpoint of any format, one of our own with its seal, or the newest of a run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from parity.checkpoints import FILE, LONE, read_seal, read_seal_beside, seal_beside, untouched_since
from parity.convert.below import advice_of_contents
from parity.errors import CheckpointError
from parity.formats import Source, is_checkpoint, open_checkpoint

__all__ = ["open_any"]


def open_any(path: Path) -> Source:
    """Open a checkpoint without loading an array; the digests of its seal come with it.

    Args:
        path: A checkpoint of any known format.

    Raises:
        CheckpointError: There is none of a known format, or it is damaged.
    """
    if path.is_dir() and not any(path.iterdir()):
        raise CheckpointError(f"{path} is an empty directory: there is no checkpoint in it")
    if path.is_dir() and not is_checkpoint(path) and (advice := advice_of_contents(path)):
        raise CheckpointError(f"{path} is no checkpoint itself{advice}")
    return with_seal(open_checkpoint(path))


def with_seal(source: Source) -> Source:
    """Return a source with the digests of the seal that lies in it, where there is one of it alone.

    The names of a seal are neutral ones. They are those of the leaves for a tree that was saved as it was; the seal
    of a run's checkpoint says more than the tree and is compared by `parity.checkpoints`. Where a file was written
    after its seal, as a loop overwrites one, the digests are those of what was there before, and stay away.
    """
    beside = source.path.is_file() and os.path.lexists(seal_beside(source.path))
    if not beside and not os.path.lexists(source.path / FILE):
        return source
    seal = read_seal_beside(source.path) if beside else read_seal(source.path)
    root, place = (source.path.parent, seal_beside(source.path)) if beside else (source.path, source.path / FILE)
    same = untouched_since(seal, root, place)
    by = f"by the side {seal.side}" + (f" at step {seal.step}" if seal.step else "")
    said = f"sealed {'after it was saved' if seal.foreign else by}"
    said += "" if same else "; files are newer than the seal, and parity verify compares them with it"
    detail = f"{source.detail}; {said}" if source.detail else said
    if seal.foreign:
        return replace(source, detail=detail)
    if seal.spec_hash != LONE:
        return replace(source, sealed=tuple(seal.leaves), detail=detail)
    return replace(source, digests=dict(seal.leaves) if same else {}, detail=detail)

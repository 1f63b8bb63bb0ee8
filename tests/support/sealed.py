"""Checkpoints of a few bytes, sealed as real ones are, and the damage done to them."""

import os
from pathlib import Path

import numpy as np
import xxhash

from parity.checkpoints import DRAFT, ByteRange, Seal, commit
from parity.state import DigestSchema, digest_text

FILES = {"params/shard": b"weightbias" + b"\0" * 6, "optimizer/shard": b"moment", "meta.json": b"{}"}
PLACES = {
    "model.params.weight": ("params/shard", 0, 6),
    "model.params.bias": ("params/shard", 6, 4),
    "optimizer.first_moment.weight": ("optimizer/shard", 0, 6),
}


def save(
    checkpoints: Path,
    step: int,
    metric: float | None = None,
    *,
    saved_at: float | None = None,
    schema: DigestSchema = 2,
) -> Path:
    """Make a whole checkpoint; its last six bytes of `params/shard` belong to no leaf."""
    draft = checkpoints / f"{DRAFT}{step}-test"
    for name, data in FILES.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).write_bytes(data)
    places, leaves = {}, {"best": "NoneType null"}
    for leaf, (file, start, size) in PLACES.items():
        data = FILES[file][start : start + size]
        leaves[leaf] = digest_text(np.frombuffer(data, np.uint8), schema=schema)
        digest = xxhash.xxh3_128_hexdigest(data) if schema == 1 else None
        places[leaf] = (ByteRange(file, start, size, digest),)
    seal = Seal(
        step=step,
        metric=metric,
        saved_at=float(step) if saved_at is None else saved_at,
        side="torch",
        spec_hash="aa" * 16,
        leaves=leaves,
        places=places,
        schema=schema,
    )
    commit(draft, checkpoints / str(step), seal)
    return checkpoints / str(step)


def flip(file: Path, place: int) -> None:
    """Flip one bit of a file, as a disk does: its size, its times and everything else stay."""
    data, before = bytearray(file.read_bytes()), file.stat()
    data[place] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

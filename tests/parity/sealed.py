"""Checkpoints of a few bytes, sealed as real ones are, and the damage done to them."""

from pathlib import Path

import xxhash

from parity.checkpoints import DRAFT, ByteRange, Seal, commit

FILES = {"params/shard": b"weightbias" + b"\0" * 6, "optimizer/shard": b"moment", "meta.json": b"{}"}
PLACES = {
    "model.params.weight": ("params/shard", 0, 6),
    "model.params.bias": ("params/shard", 6, 4),
    "optimizer.first_moment.weight": ("optimizer/shard", 0, 6),
}


def save(checkpoints: Path, step: int, metric: float | None = None, *, saved_at: float | None = None) -> Path:
    """Make a whole checkpoint; its last six bytes of `params/shard` belong to no leaf."""
    draft = checkpoints / f"{DRAFT}{step}-test"
    for name, data in FILES.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).write_bytes(data)
    places = {}
    for leaf, (file, start, size) in PLACES.items():
        places[leaf] = (ByteRange(file, start, size, xxhash.xxh3_128_hexdigest(FILES[file][start : start + size])),)
    seal = Seal(
        step=step,
        metric=metric,
        saved_at=float(step) if saved_at is None else saved_at,
        side="torch",
        spec_hash="aa" * 16,
        leaves={
            **{leaf: f"uint8[{at[0].size}] {at[0].digest}" for leaf, at in places.items()},
            "best": "NoneType null",
        },
        places=places,
    )
    commit(draft, checkpoints / str(step), seal)
    return checkpoints / str(step)


def flip(file: Path, place: int) -> None:
    """Flip one bit of a file; its size and everything else stay."""
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)

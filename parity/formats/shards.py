"""Shards with an index, as transformers writes them: files that together hold the arrays of one model."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from parity.errors import CheckpointError
from parity.formats.folder import inside
from parity.formats.tree import Source
from parity.storage import parse_json, read_bytes

__all__ = ["open_shards", "shards_of", "unequal_size"]

_COUNTED = re.compile(r"(.+)-\d+(-of-\d+\..+)")
"""A shard as transformers names it: `model-00001-of-00002.safetensors`."""


def open_shards(path: Path, open_file: Callable[[Path], Source]) -> Source:
    """Open the shards that an index names; each array must be in the shard that the index says, and no other there.

    The index may be a link, as in the cache of Hugging Face.

    Args:
        path: The index: JSON whose `weight_map` leads from the name of an array to the name of a file beside it.
        open_file: Opens one shard.

    Raises:
        CheckpointError: It is no index, a shard is missing or lies elsewhere, an array is in another shard than the
            index says, or in none, or a shard of the same count lies there that it does not name.
    """
    where = _read_map(path)
    counts = Counter(where.values())
    shards = {shard: open_file(inside(path.parent, shard, counts[shard])) for shard in sorted(counts)}
    for shard, source in shards.items():
        if not isinstance(source.tree, dict):
            raise CheckpointError(f"{path}: {shard} holds {type(source.tree).__name__}, expected arrays by name")
        if stray := [name for name in source.tree if where.get(name) != shard]:
            raise CheckpointError(f"{path}: {stray[0]} is in {shard}, and the index says {where.get(stray[0])}")
    for name, shard in where.items():
        if name not in shards[shard].tree:
            raise CheckpointError(f"{path}: {name} is not in {shard}, where the index says it is")
    _require_all(path, set(counts))
    first = next(iter(shards.values()))

    def verify() -> list[tuple[str, str]]:
        return [(f"{shard}: {name}", what) for shard, one in shards.items() for name, what in one.faults()]

    return Source(
        path=path,
        format=first.format,
        tree={name: shards[shard].tree[name] for name, shard in where.items()},
        detail=f"{len(shards)} shards",
        verify=verify if first.verify else None,
        checked=first.checked,
        unproven="; ".join([first.unproven, *unequal_size(path, shards.values())]),
    )


def unequal_size(path: Path, shards: Iterable[Source]) -> tuple[str, ...]:
    """Return what is unknown where the size that the index gives is not that of the arrays.

    No damage by itself: tools count arrays that share memory once or twice, and models that were pruned or stored in
    another type keep the number that they had.
    """
    metadata = parse_json(read_bytes(Path(os.path.realpath(path))), path).get("metadata")
    said = metadata.get("total_size") if isinstance(metadata, dict) else None
    size = sum(array.nbytes for one in shards for array in one.arrays().values())
    if said is None or said == size:
        return ()
    return (f"why {path.name} has the total_size {said!r:.40} and its arrays have {size:,} bytes",)


def shards_of(path: Path) -> list[str]:
    """Return the names of the files that an index names, each once; they lie beside it.

    Raises:
        CheckpointError: It is no index, a shard is missing or lies elsewhere, or one is there that it does not name.
    """
    counts = Counter(_read_map(path).values())
    names = [inside(path.parent, shard, counts[shard]).name for shard in sorted(counts)]
    _require_all(path, set(counts))
    return names


def _read_map(path: Path) -> dict[str, str]:
    where = parse_json(read_bytes(Path(os.path.realpath(path))), path).get("weight_map")
    if not isinstance(where, dict) or not where or not all(isinstance(shard, str) for shard in where.values()):
        raise CheckpointError(f"{path} has no weight_map from names to files")
    return where


def _require_all(path: Path, named: set[str]) -> None:
    """Refuse an index that lost the rows of a shard: one of the same name and count lies beside it, unnamed.

    One that is not there may have been left out on purpose, as pruned models do without renaming the others.
    """
    families = {_family(one) for one in named} - {None}
    for name in sorted(set(os.listdir(path.parent)) - named):
        if _family(name) in families:
            raise CheckpointError(
                f"{path} names no array of {name}, which lies beside it and is one of the same shards; give its "
                "arrays their rows, or move the file away"
            )


def _family(name: str) -> tuple[str, str] | None:
    """Return what the names of the shards of one save have in common; None for a name that counts none."""
    found = _COUNTED.fullmatch(name)
    return None if found is None else (found[1], found[2])

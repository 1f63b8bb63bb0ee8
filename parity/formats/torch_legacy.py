"""Files that `torch.save` wrote before PyTorch 1.6: pickles one after the other, then the bytes of each storage.

They hold a magic number, a version, facts about the machine, the object, and the keys of its storages; then for each
key the number of its elements and the elements. `torch.load(weights_only=True)` reads them still.

Source: `_legacy_save` and `_legacy_load` of `torch/serialization.py`, PyTorch 2.13.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parity.errors import CheckpointError
from parity.formats.array import dtype_named
from parity.formats.mapping import map_file, read_head
from parity.formats.numpy_pickled import ReadOtherwise
from parity.formats.symbolic import PLAIN_CALLS, read_pickle
from parity.formats.torch_file import (
    QUANTIZED,
    Storage,
    Views,
    open_torch_file,
    parts_of_processes,
    storage_dtype,
    tensor_calls,
)
from parity.formats.tree import Source

__all__ = ["is_legacy", "open_legacy", "open_torch"]

MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
VERSION = 1001
MOST_PICKLE = 64 << 20
"""Most bytes of the pickles together; the storages are not among them."""

UNPROVEN = "whether any byte is what was saved: the format has no checksum"


def is_legacy(path: Path) -> bool:
    """Return whether a file begins as one of PyTorch before 1.6."""
    return read_head(path, len(MAGIC)) == MAGIC


def open_torch(path: Path) -> Source:
    """Open a file of `torch.save`, of any version.

    Raises:
        CheckpointError: It is none, or damaged.
    """
    return open_legacy(path) if is_legacy(path) else open_torch_file(path)


def open_legacy(path: Path) -> Source:
    """Open a file of PyTorch before 1.6, its storages mapped.

    Raises:
        CheckpointError: It is truncated, was written on a big-endian machine, or holds views that PyTorch pickles no
            more.
    """
    where, mapped = str(path), map_file(path)
    data = mapped[:MOST_PICKLE].tobytes()
    at = len(MAGIC)

    def step(calls: Any = PLAIN_CALLS, persistent: Any = None, changed: Any = None) -> Any:
        nonlocal at
        stops: list[int] = []
        tensors = mapped.size // STORAGE_BYTES
        found = read_pickle(data[at:], where, calls, persistent, stops.append, tensors, changed_keys=changed)
        at += stops[0]
        return found

    version, machine, start = step(), step(), None
    if version != VERSION or not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise CheckpointError(f"{where} is of version {version!r:.20}, or of a big-endian machine; PyTorch reads it")
    known: dict[str, Any] = {}
    start = at
    step(persistent=lambda found: _class(found) or known.setdefault(*_dtype(found, where)))
    keys = step()
    storages = _storages(where, mapped, at, keys, known)
    views = Views(mapped.size)

    def storage(found: Any) -> Any:
        if cls := _class(found):
            return cls
        key, dtype = _dtype(found, where)
        if key not in storages:
            raise CheckpointError(f"{where}: the storage {key!r:.40} is missing")
        return Storage((where, key), dtype, storages[key], views, found[1].name)

    at = start
    otherwise = ReadOtherwise()
    tree = step(tensor_calls(otherwise), storage, otherwise.count_keys)
    return Source(
        path=path,
        format="torch.save",
        tree=tree,
        detail="of PyTorch before 1.6",
        divided=parts_of_processes(tree),
        unproven=UNPROVEN,
        notes=otherwise.notes(),
    )


STORAGE_BYTES = 12
"""Bytes that a storage takes at least: the number of its elements, and one of them."""


def _class(found: Any) -> Any:
    """Return the class of a pickled module, which is beside its source text; None for a storage."""
    return found[1] if isinstance(found, tuple) and len(found) == 4 and found[0] == "module" else None


def _dtype(found: Any, where: str) -> tuple[str, str]:
    """Return the key of a storage and its dtype, by its persistent id."""
    if not isinstance(found, tuple) or len(found) not in (5, 6) or (len(found) == 6 and found[5] is not None):
        raise CheckpointError(f"{where}: a storage is a view of another one; load and save it with PyTorch")
    return str(found[2]), storage_dtype(found[0], found[1], where)


def _storages(where: str, mapped: Any, at: int, keys: Any, known: dict[str, str]) -> dict[str, Any]:
    """Return the bytes of each storage, which follow the pickles in the order of the keys."""
    if not isinstance(keys, list) or {str(key) for key in keys} != set(known) or len(keys) != len(known):
        raise CheckpointError(f"{where}: it lists other storages than its tensors are of; is it truncated?")
    found = {}
    for key in map(str, keys):
        dtype = dtype_named(known[key])
        count = int.from_bytes(mapped[at : at + 8].tobytes(), "little")
        size = count * (dtype.itemsize if dtype is not None else QUANTIZED[known[key]])
        if at + 8 + size > mapped.size:
            raise CheckpointError(
                f"{where}: the storage {key!r:.40} has {count:,} elements and ends beyond the file: it is truncated"
            )
        found[key] = mapped[at + 8 : at + 8 + size]
        at += 8 + size
    if at != mapped.size:
        raise CheckpointError(f"{where}: {mapped.size - at:,} bytes follow its last storage")
    return found

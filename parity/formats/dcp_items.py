"""The items of a DCP directory: archives of `torch.save` within its files, found by name and offset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import CheckpointError
from parity.formats.array import Array
from parity.formats.dcp_metadata import METADATA, Record, place, shown
from parity.formats.folder import inside
from parity.formats.mapping import map_file
from parity.formats.torch_file import read_torch_bytes
from parity.formats.tree import Tree
from parity.formats.zips import ZipRecords

__all__ = ["Item", "Items"]

_ARCHIVE = b"PK\x03\x04"


@dataclass(frozen=True)
class Item:
    """One archive of `torch.save` within a file."""

    where: str
    mapped: NDArray[np.uint8]

    @cached_property
    def tree(self) -> Tree:
        """Return what it holds.

        Raises:
            CheckpointError: It is no whole archive.
        """
        return read_torch_bytes(self.mapped, self.where)

    def array(self) -> Array:
        """Return the tensor that it holds.

        Raises:
            CheckpointError: It holds something else.
        """
        if not isinstance(self.tree, Array):
            raise CheckpointError(f"{self.where} holds a {type(self.tree).__name__}, expected a tensor")
        return self.tree

    def archive(self) -> Item:
        """Return it, if it starts as an archive does.

        Raises:
            CheckpointError: It does not.
        """
        if self.mapped[:4].tobytes() != _ARCHIVE:
            raise CheckpointError(
                f"{self.where} is no archive of torch.save: damaged, or of SerializationFormat.SAFETENSORS, "
                "which PyTorch's own reader of DCP does not read either"
            )
        return self


class Items:
    """What `.metadata` says of where things lie, checked against the files."""

    def __init__(self, path: Path, storage: Mapping[str, Any]) -> None:
        """Map the files and check that each item lies within its own.

        Raises:
            CheckpointError: A file is missing, short, transformed, or none of the directory.
        """
        infos: dict[str, tuple[str, int, int]] = {}
        for key, info in storage.items():
            at = str(key)
            fields = info.fields if isinstance(info, Record) else {}
            start, length = fields.get("offset"), fields.get("length")
            file = fields.get("relative_path")
            if not (type(start) is int and type(length) is int and min(start, length) >= 0 and isinstance(file, str)):
                raise CheckpointError(f"{path / METADATA}: {shown(at)} has no place in a file")
            if done := fields.get("transform_descriptors"):
                raise CheckpointError(
                    f"{path}: {shown(at)} went through {done!r:.80} when it was written; "
                    "load it with PyTorch and save it without extensions"
                )
            infos[at] = (file, start, length)
        arrays = Counter(file for at, (file, _, _) in infos.items() if not at.endswith(" null]"))
        files = {file for file, _, _ in infos.values()}
        self.files = {file: map_file(inside(path, file, arrays[file])) for file in sorted(files)}
        self._items: dict[str, Item] = {}
        for at, (file, start, length) in infos.items():
            mapped, stop = self.files[file], start + length
            if stop > mapped.size:
                raise CheckpointError(
                    f"{path / file} is truncated: it has {mapped.size:,} bytes, and {shown(at)} ends at {stop:,}"
                )
            self._items[at] = Item(f"{path / file}: {shown(at)}", mapped[start:stop])
        _check_disjoint(
            sorted((file, start, start + length, at) for at, (file, start, length) in infos.items()),
            self._items,
        )

    def find(self, where: str, name: str, offset: tuple[int, ...] | None) -> Item:
        """Return the item of a value, or of the chunk of a tensor that starts at an offset.

        Raises:
            CheckpointError: There is none.
        """
        found = self._items.get(place(name, offset))
        if found is None:
            at = "" if offset is None else f" at {list(offset)}"
            raise CheckpointError(f"{where} does not say in which file {name!r}{at} is")
        return found

    def damaged(self) -> list[tuple[str, str]]:
        """Return the items that cannot be read, or whose bytes do not fit their CRC-32, reading all of them."""
        return [fault for item in self._items.values() for fault in _damaged(item)]


def _check_disjoint(ranges: Sequence[tuple[str, int, int, str]], items: Mapping[str, Item]) -> None:
    """Check that no two items share bytes: a small file could name one large item a million times."""
    for (file, _, stop, at), (other, start, _, follower) in pairwise(ranges):
        if file == other and start < stop:
            here, there = items[at].archive(), items[follower].archive()
            raise CheckpointError(f"{here.where} and {there.where} take the same bytes")


def _damaged(item: Item) -> Iterator[tuple[str, str]]:
    try:
        for name, what in ZipRecords(Path(item.where), item.mapped).damaged():
            yield item.where, f"{name} {what}"
        _ = item.tree
    except CheckpointError as error:
        yield item.where, str(error)

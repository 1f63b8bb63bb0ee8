"""The records of a `torch.save` archive within bytes that are mapped, not copied."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parity.formats.zip_directory import ZipDirectory

__all__ = ["ZipRecords"]

PIECE = 16 << 20


class ZipRecords:
    """Records by name, without the archive's own folder.

    Attributes:
        path: The file, for messages.
        names: Names of the records.
    """

    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        """Read the directory of an archive.

        Args:
            path: The file, for messages.
            data: Its bytes, mapped.

        Raises:
            CheckpointError: It is no archive, or one of code, or a record is compressed or repeated.
        """
        self.path, self._data = path, data
        view = memoryview(data)
        self._directory = ZipDirectory(path, data.size, lambda at, size: bytes(view[at : at + size]))
        self._infos = self._directory.infos
        self.names = self._infos.keys()

    def size(self, name: str) -> int:
        """Return the bytes of a record."""
        return self._infos[name].file_size

    def place(self, name: str) -> range:
        """Return the offsets of the bytes of a record.

        Raises:
            CheckpointError: There is none of the name, or it reaches beyond the end of the file.
        """
        return self._directory.place(name)

    def mapped(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of a record, not copied.

        Raises:
            CheckpointError: There is none of the name, or it reaches beyond the end of the file.
        """
        place = self.place(name)
        return self._data[place.start : place.stop]

    def read(self, name: str) -> bytes:
        """Return the bytes of a record, copied."""
        return self.mapped(name).tobytes()

    def text(self, name: str) -> str:
        """Return a short record as text; empty if there is none."""
        return self.read(name)[:64].decode("ascii", "replace").strip() if name in self.names else ""

    def sum_places(self, names: Iterable[str]) -> dict[str, tuple[int | None, int]]:
        """Return where the CRC-32 of records stands: offsets of the descriptor, if it has one, and of the entry.

        Args:
            names: Names of the records.
        """
        entries: list[int] = []
        at = self._directory.start_dir
        while bytes(self._data[at : at + 4]) == b"PK\x01\x02":
            head = bytes(self._data[at : at + 46])
            lengths = [int.from_bytes(head[i : i + 2], "little") for i in (28, 30, 32)]
            entries.append(at)
            at += 46 + sum(lengths)
        order = {name: number for number, name in enumerate(self._infos)}
        found: dict[str, tuple[int | None, int]] = {}
        for name in names:
            info = self._infos[name]
            end = self.place(name).stop
            found[name] = (end if info.flag_bits & 8 else None, entries[order[name]])
        return found

    @property
    def has_checksums(self) -> bool:
        """Return whether the archive was written with a CRC-32 for each record: PyTorch can leave them out.

        Its shortest records decide: where none fits, none was computed.
        """
        short = sorted(self._infos, key=lambda name: self._infos[name].file_size)[:4]
        return any(zlib.crc32(self.mapped(name)) == self._infos[name].CRC for name in short)

    def damaged(self) -> list[tuple[str, str]]:
        """Return the records whose bytes do not fit their CRC-32, reading all of them."""
        found = []
        for name, info in self._infos.items():
            data, total = self.mapped(name), 0
            for start in range(0, data.size, PIECE):
                total = zlib.crc32(data[start : start + PIECE], total)
            if total != info.CRC:
                found.append((name, "does not fit its CRC-32"))
        return found

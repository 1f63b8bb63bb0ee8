"""The records of a zip archive that stores them as they are, as PyTorch writes it, within bytes that are mapped."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from parity.errors import CheckpointError

__all__ = ["ZipRecords"]

MOST_RECORDS = 1_000_000
_HEADER = struct.Struct("<4s22xHH")
"""Of a record: its magic number, and the lengths of its name and of its extra field."""

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
            CheckpointError: It is no archive, or a record is compressed, repeated, or beyond the end.
        """
        self.path, self._data, self._view = path, data, memoryview(data)
        try:
            with zipfile.ZipFile(cast("Any", _Mapped(data))) as archive:
                infos = archive.infolist()
                self._directory = archive.start_dir
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, OverflowError, EOFError) as error:
            raise CheckpointError(f"{path} is no whole archive of torch.save: {error}; is it truncated?") from error
        if len(infos) > MOST_RECORDS:
            raise CheckpointError(f"{path} holds {len(infos):,} records, more than {MOST_RECORDS:,}")
        self._infos: dict[str, zipfile.ZipInfo] = {}
        names = [info.filename.partition("/")[2] for info in infos]
        _require_data(path, set(names))
        for info, below in zip(infos, names, strict=True):
            name = below or info.filename
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
                raise CheckpointError(
                    f"{path}: record {info.filename!r} is compressed or encrypted; torch.save does neither"
                )
            if name in self._infos:
                raise CheckpointError(f"{path}: record {info.filename!r} occurs twice")
            self._infos[name] = info
        self.names = self._infos.keys()

    def size(self, name: str) -> int:
        """Return the bytes of a record."""
        return self._infos[name].file_size

    def start(self, name: str) -> int:
        """Return the offset of the first byte of a record.

        Raises:
            CheckpointError: There is none of the name, or it reaches beyond the end of the file.
        """
        info = self._infos.get(name)
        if info is None:
            raise CheckpointError(f"{self.path}: record {name!r} is missing")
        at, size = info.header_offset, self._data.size
        magic, name_length, more = _HEADER.unpack_from(self._view, at) if at + _HEADER.size <= size else (b"", 0, 0)
        start = at + _HEADER.size + int(name_length) + int(more)
        if magic != b"PK\x03\x04" or start + info.file_size > size:
            raise CheckpointError(
                f"{self.path}: record {name!r} reaches beyond the end of the file, or has no header"
            )
        return start

    def mapped(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of a record, not copied.

        Raises:
            CheckpointError: There is none of the name, or it reaches beyond the end of the file.
        """
        start = self.start(name)
        return self._data[start : start + self._infos[name].file_size]

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
        at = self._directory
        while bytes(self._data[at : at + 4]) == b"PK\x01\x02":
            head = bytes(self._data[at : at + 46])
            lengths = [int.from_bytes(head[i : i + 2], "little") for i in (28, 30, 32)]
            entries.append(at)
            at += 46 + sum(lengths)
        order = {name: number for number, name in enumerate(self._infos)}
        found: dict[str, tuple[int | None, int]] = {}
        for name in names:
            info = self._infos[name]
            end = self.start(name) + info.file_size
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


def _require_data(path: Path, names: set[str]) -> None:
    """Refuse archives of PyTorch that hold code, by what only they have.

    Raises:
        CheckpointError: It is one.
    """
    kinds = {"constants.pkl": "a TorchScript archive", "archive_format": "an archive of torch.export"}
    for name, kind in kinds.items():
        if name in names:
            raise CheckpointError(f"{path} is {kind}, which is code; save a state dict of the module instead")


class _Mapped(io.RawIOBase):
    """Bytes as a file for `zipfile`, of which only what is asked for is copied."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data, self._at = data, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, self._data.size)[whence]
        if at < 0:
            raise OSError("the file is too short")
        self._at = at
        return at

    def read(self, size: int | None = -1) -> bytes:
        stop = self._data.size if size is None or size < 0 else self._at + size
        data = self._data[self._at : stop].tobytes()
        self._at += len(data)
        return data

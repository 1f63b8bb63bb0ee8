"""The directory of a zip archive that stores its records as they are, as PyTorch writes it: names, sizes, places.

Every reader of `torch.save` files begins here, whether it maps the file or looks at it before PyTorch opens it.
PyTorch neither compresses nor repeats a record, so an archive that does was not written by it: a record that unpacks
to more than it occupies, two of one name, or one that reaches beyond the end are refused before anything is read. So
is a file of which the archive is not the whole: what stands before or behind it would be passed over.

Source: `caffe2/serialize/inline_container.cc`, PyTorch 2.13; `zipfile` of Python 3.11 to 3.14.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from parity.errors import CheckpointError

__all__ = ["ReadAt", "ZipDirectory"]

MOST_RECORDS = 1_000_000
_HEADER = struct.Struct("<4s22xHH")
"""Of a record: its magic number, and the lengths of its name and of its extra field."""

_END_BYTES = 22
"""Of the record that ends an archive, without its comment."""

CODE = {"constants.pkl": "a TorchScript archive", "archive_format": "an archive of torch.export"}
"""Records that only archives of code have."""

ReadAt = Callable[[int, int], bytes]
"""Takes an offset and a number of bytes, and returns them; fewer at the end of the file."""


class ZipDirectory:
    """The records of an archive by name, without the archive's own folder.

    Attributes:
        path: The file, for messages.
        infos: Name of each record to its entry, in the order of the directory.
        start_dir: Offset of the directory.
    """

    def __init__(self, path: Path, size: int, read: ReadAt) -> None:
        """Read the directory of an archive.

        Args:
            path: The file, for messages.
            size: Bytes of the file.
            read: Reads from it.

        Raises:
            CheckpointError: It is no archive, one of code, or not the whole file, or a record is compressed or
                repeated.
        """
        self.path, self._size, self._read = path, size, read
        try:
            with zipfile.ZipFile(cast("Any", _ReadOnly(size, read))) as archive:
                entries = archive.infolist()
                self.start_dir = archive.start_dir
                end = size - len(archive.comment) - _END_BYTES
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, OverflowError, EOFError) as error:
            raise CheckpointError(f"{path} is no whole archive of torch.save: {error}; is it truncated?") from error
        begin = min((info.header_offset for info in entries), default=self.start_dir)
        if begin > 0 or read(end, 4) != b"PK\5\6":
            where = f"{begin:,} bytes before" if begin > 0 else "bytes behind"
            raise CheckpointError(
                f"{path} holds {where} its archive, as where several were saved into one file: one of them alone "
                "would be read; save each into a file of its own, or cut the others off"
            )
        if len(entries) > MOST_RECORDS:
            raise CheckpointError(f"{path} holds {len(entries):,} records, more than {MOST_RECORDS:,}")
        self.infos: dict[str, zipfile.ZipInfo] = {}
        below = [info.filename.partition("/")[2] for info in entries]
        for name, kind in CODE.items():
            if name in below:
                raise CheckpointError(f"{path} is {kind}, which is code; save a state dict of the module instead")
        for info, found in zip(entries, below, strict=True):
            name = found or info.filename
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
                raise CheckpointError(
                    f"{path}: record {info.filename!r} is compressed or encrypted; torch.save does neither"
                )
            if name in self.infos:
                raise CheckpointError(f"{path}: record {info.filename!r} occurs twice")
            self.infos[name] = info

    def place(self, name: str) -> range:
        """Return the offsets of the bytes of a record.

        Raises:
            CheckpointError: There is none of the name, or it reaches beyond the end of the file.
        """
        info = self.infos.get(name)
        if info is None:
            raise CheckpointError(f"{self.path}: record {name!r} is missing")
        at = info.header_offset  # below 0 where the directory lies before the place that the end record names
        header = self._read(at, _HEADER.size) if at >= 0 else b""
        magic, *lengths = _HEADER.unpack(header) if len(header) == _HEADER.size else (b"", 0, 0)
        start = at + _HEADER.size + sum(lengths)
        if magic != b"PK\x03\x04" or start + info.file_size > self._size:
            raise CheckpointError(
                f"{self.path}: record {name!r} reaches beyond the end of the file, or has no header"
            )
        return range(start, start + info.file_size)


class _ReadOnly(io.RawIOBase):
    """Bytes as a file for `zipfile`, of which only what is asked for is read."""

    def __init__(self, size: int, read: ReadAt) -> None:
        self._size, self._read, self._at = size, read, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, self._size)[whence]
        if at < 0:
            raise OSError("the file is too short")
        self._at = at
        return at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        data = self._read(self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data

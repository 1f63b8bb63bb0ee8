"""The zip archive of a `torch.save` file, looked at before PyTorch opens it: what is in it, where, and how large.

PyTorch neither compresses nor repeats a record, so an archive that does was not written by it: an entry that unpacks
to more than it occupies, two entries of one name, or a size that does not fit are refused before anything is read.

Source: `torch/serialization.py` and `caffe2/serialize/inline_container.cc`, PyTorch 2.13.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

from parity.errors import CheckpointError

__all__ = ["Record", "read_records"]

MAX_RECORDS = 1_000_000
MAX_PICKLE = 256 << 20
"""Longest `data.pkl` in bytes: it holds the structure, and no tensor's values."""

DESCRIPTORS = (0, 16, 24)
"""Bytes that may follow a record: none, its data descriptor, or that of zip64."""


@dataclass(frozen=True)
class Record:
    """Bytes of one record in the archive."""

    start: int
    size: int


def read_records(path: Path) -> dict[str, Record]:
    """Return record name, without the archive's own folder (`data.pkl`, `data/0`), to where it lies.

    Raises:
        CheckpointError: It is no archive, or none that `torch.save` writes.
    """
    length = path.stat().st_size
    records: dict[str, Record] = {}
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            entries = sorted(archive.infolist(), key=lambda info: info.header_offset)
            end = 0
            if len(entries) > MAX_RECORDS:
                raise CheckpointError(f"{path} holds {len(entries)} records, more than {MAX_RECORDS}")
            for info in entries:
                name = info.filename.partition("/")[2]
                file.seek(info.header_offset + 26)  # lengths of name and extra field in the local header
                lengths = file.read(4)
                start = info.header_offset + 30 + sum(int.from_bytes(lengths[i : i + 2], "little") for i in (0, 2))
                record = Record(start, info.file_size)
                gap = info.header_offset - end
                end = record.start + record.size
                _check(path, info, name, record, length, records)
                if gap not in (DESCRIPTORS if records else (0,)):
                    raise CheckpointError(f"{path}: {gap} bytes before record {info.filename!r} belong to no record")
                records[name] = record
            if archive.start_dir - end not in DESCRIPTORS:
                raise CheckpointError(
                    f"{path}: {archive.start_dir - end} bytes before the directory belong to no record"
                )
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError, OverflowError) as error:
        raise CheckpointError(f"{path} is no archive of torch.save: {error}") from error
    if "data.pkl" not in records:
        raise CheckpointError(f"{path} is no archive of torch.save: it holds no data.pkl")
    if records["data.pkl"].size > MAX_PICKLE:
        raise CheckpointError(f"{path}: data.pkl is longer than {MAX_PICKLE} bytes")
    return records


def _check(
    path: Path, info: zipfile.ZipInfo, name: str, record: Record, length: int, records: dict[str, Record]
) -> None:
    problem = None
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
        problem = "is compressed or encrypted"
    elif name in records:
        problem = "occurs twice"
    elif not name or ".." in name.split("/"):
        problem = "has no name inside the archive"
    elif record.start + record.size > length:
        problem = "reaches beyond the end of the file"
    if problem:
        raise CheckpointError(f"{path}: record {info.filename!r} {problem}; torch.save writes no such record")

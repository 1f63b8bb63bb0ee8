"""The zip archive of a `torch.save` file, looked at before PyTorch opens it: what is in it, where, and how large.

PyTorch neither compresses nor repeats a record, so an archive that does was not written by it: an entry that unpacks
to more than it occupies, two entries of one name, or a size that does not fit are refused before anything is read.

Source: `torch/serialization.py` and `caffe2/serialize/inline_container.cc`, PyTorch 2.13.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from parity.checkpoints import ByteRange
from parity.errors import CheckpointError
from torch_side.formats.pickled import GLOBALS, require_plain_pickle

__all__ = ["places", "read_records"]

MAX_RECORDS = 1_000_000
NAMES = re.compile(
    r"data\.pkl|byteorder|version|\.format_version|\.storage_alignment|\.data/serialization_id|data/[0-9]{1,7}"
)
"""Records that PyTorch 2.11 to 2.15 write."""

DESCRIPTORS = (0, 16, 24)
"""Bytes that may follow a record: none, its data descriptor, or that of zip64."""


def read_records(path: Path, names: re.Pattern[str] = GLOBALS) -> dict[str, range]:
    """Return record name, without the archive's own folder (`data.pkl`, `data/0`), to the range of its bytes.

    Args:
        path: The file.
        names: The names that its pickle may ask for.

    Raises:
        CheckpointError: It is no archive, or none that `torch.save` writes.
    """
    length = path.stat().st_size
    records: dict[str, range] = {}
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
                record = range(start, start + info.file_size)
                gap = info.header_offset - end
                end = record.stop
                _check(path, info, name, record, length, records)
                if gap not in (DESCRIPTORS if records else (0,)):
                    raise CheckpointError(f"{path}: {gap} bytes before record {info.filename!r} belong to no record")
                records[name] = record
            if (gap := archive.start_dir - end) not in DESCRIPTORS:
                raise CheckpointError(f"{path}: {gap} bytes before the directory belong to no record")
            _check_end(path, file, length)
            if "data.pkl" not in records:
                raise CheckpointError(f"{path} is no archive of torch.save: it holds no data.pkl")
            file.seek(records["data.pkl"].start)  # not through zipfile: our saves have no CRC-32 that it could check
            pickled = file.read(len(records["data.pkl"]))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError, OverflowError) as error:
        raise CheckpointError(f"{path} is no archive of torch.save: {error}") from error
    require_plain_pickle(path, pickled, len(records), names)
    return records


def places(
    root: Path, file: str, numbers: Mapping[str, int], names: re.Pattern[str] = GLOBALS
) -> dict[str, tuple[ByteRange, ...]]:
    """Return where the bytes of each leaf lie, for the seal.

    Storage n is the record `data/n`, in the order in which pickling meets them, and every tensor of a snapshot has a
    storage of its own; PyTorch stores them as they are in memory, so the leaf's digest decides on its range.

    Args:
        root: The checkpoint, or its draft.
        file: Name of the file below it.
        numbers: Neutral leaf to the number of its storage.
        names: The names that its pickle may ask for.
    """
    records = read_records(root / file, names)
    found = {leaf: records[f"data/{number}"] for leaf, number in numbers.items()}
    return {leaf: (ByteRange(file, record.start, len(record)),) for leaf, record in found.items()}


def _check_end(path: Path, file: BinaryIO, length: int) -> None:
    """Check that the archive has one end: PyTorch follows a zip64 locator that Python does not look at."""
    file.seek(max(0, length - 42))
    tail = file.read()
    if tail[20:24] != b"PK\x05\x06" or tail[-2:] != b"\0\0":
        raise CheckpointError(f"{path}: its last 22 bytes are not the end of an archive")
    if tail[:4] == b"PK\x06\x07" and int.from_bytes(tail[8:16], "little") != length - 98:
        raise CheckpointError(f"{path}: it has a second directory")


def _check(
    path: Path, info: zipfile.ZipInfo, name: str, record: range, length: int, records: dict[str, range]
) -> None:
    problem = None
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
        problem = "is compressed or encrypted"
    elif name in records:
        problem = "occurs twice"
    elif not NAMES.fullmatch(name):
        problem = "is not one of a training state's"
    elif record.stop > length:
        problem = "reaches beyond the end of the file"
    if problem:
        raise CheckpointError(f"{path}: record {info.filename!r} {problem}; torch.save writes no such record")

"""The zip archive of a `torch.save` file, looked at before PyTorch opens it: what is in it, where, and how large.

`parity.formats` reads the directory. Here is what only a file of our own fulfils: no other record, and no byte that
belongs to none; so Python and PyTorch, which follow different ends of an archive, see the same one.

Source: `torch/serialization.py` and `caffe2/serialize/inline_container.cc`, PyTorch 2.13.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from parity.checkpoints import ByteRange
from parity.errors import CheckpointError
from parity.formats import ZipDirectory
from torch_side.formats.pickled import GLOBALS, require_plain_pickle

__all__ = ["places", "read_records"]

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
    try:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            directory = ZipDirectory(path, length, partial(_read_at, file))
            records = _placed(path, directory)
            _check_end(path, file, length)
            if "data.pkl" not in records:
                raise CheckpointError(f"{path} is no archive of torch.save: it holds no data.pkl")
            # not through zipfile: our saves have no CRC-32 that it could check
            pickled = _read_at(file, records["data.pkl"].start, len(records["data.pkl"]))
    except OSError as error:
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


def _read_at(file: BinaryIO, at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size)


def _placed(path: Path, directory: ZipDirectory) -> dict[str, range]:
    """Return the records in the order in which they lie, with nothing between them that no record owns."""
    records: dict[str, range] = {}
    end = 0
    for name, info in sorted(directory.infos.items(), key=lambda item: item[1].header_offset):
        if not NAMES.fullmatch(name) or "/" not in info.filename:
            raise CheckpointError(
                f"{path}: record {info.filename!r} is not one of a training state's; torch.save writes no such record"
            )
        gap = info.header_offset - end
        if gap not in (DESCRIPTORS if records else (0,)):
            raise CheckpointError(f"{path}: {gap} bytes before record {info.filename!r} belong to no record")
        records[name] = directory.place(name)
        end = records[name].stop
    if (gap := directory.start_dir - end) not in DESCRIPTORS:
        raise CheckpointError(f"{path}: {gap} bytes before the directory belong to no record")
    return records


def _check_end(path: Path, file: BinaryIO, length: int) -> None:
    """Check that the archive has one end: PyTorch follows a zip64 locator that Python does not look at."""
    file.seek(max(0, length - 42))
    tail = file.read()
    if tail[20:24] != b"PK\x05\x06" or tail[-2:] != b"\0\0":
        raise CheckpointError(f"{path}: its last 22 bytes are not the end of an archive")
    if tail[:4] == b"PK\x06\x07" and int.from_bytes(tail[8:16], "little") != length - 98:
        raise CheckpointError(f"{path}: it has a second directory")

"""safetensors: one file, read from its header.

Source: the format's description in the safetensors repository.
"""

from __future__ import annotations

import math
from pathlib import Path

from parity.errors import CheckpointError
from parity.formats.array import Array, MappedArray, dtype_named
from parity.formats.document import TREE_ENTRY, read_description
from parity.formats.mapping import map_file
from parity.formats.tree import Source
from parity.storage import parse_json

__all__ = ["DTYPES", "open_safetensors", "read_safetensors"]

MOST_HEADER = 100 << 20
"""Longest header in bytes, as the format's own reader has it."""

DTYPES = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool"},
    **{"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8"},
    **{"U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8"},
    **{"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "C64": "complex64"},
    **{"F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"},
}
"""Names of the format to those of NumPy."""


def open_safetensors(path: Path) -> Source:
    """Open one file.

    Raises:
        CheckpointError: Its header is not one, or an array does not lie where it says.
    """
    arrays, metadata = read_safetensors(path)
    described = metadata.pop(TREE_ENTRY, None)
    tree = dict(arrays) if described is None else read_description(described, arrays, path)
    detail = ", ".join(f"{key} {value}" for key, value in sorted(metadata.items())[:4])
    return Source(path=path, format="safetensors", tree=tree, detail=detail, words=metadata, unproven=UNPROVEN)


UNPROVEN = "whether the bytes are those that were saved: the format has no digest of any"


def read_safetensors(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays of a file by name, and its metadata.

    Args:
        path: The file, which is mapped: no array is read before it is asked for.

    Returns:
        Name to array, in the order of the header; and its entry `__metadata__` as texts, empty where there is none.

    Raises:
        CheckpointError: It cannot be read, is no safetensors file, has a dtype that is unknown, or arrays that do not
            fill it without gaps and overlaps.
    """
    data = map_file(path)
    length = int.from_bytes(data[:8].tobytes(), "little")
    if data.size < 8 or not 2 <= length <= min(MOST_HEADER, data.size - 8):
        raise CheckpointError(
            f"{path} is no safetensors file, or is truncated: its header would have {length:,} bytes"
        )
    header = parse_json(data[8 : 8 + length].tobytes(), path)
    metadata = header.pop("__metadata__", {})
    content = data[8 + length :]
    arrays: dict[str, Array] = {}
    ends = []
    for name, entry in header.items():
        try:
            kind, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
            fits = all(type(n) is int and n >= 0 for n in (*shape, start, stop))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path}: the entry of {name!r} is not one of safetensors") from error
        dtype = dtype_named(DTYPES.get(kind, ""))
        if dtype is None:
            raise CheckpointError(f"{path}: {name!r} has the dtype {kind!r}, which is unknown")
        if not fits or stop - start != math.prod(shape) * dtype.itemsize or stop > content.size:
            raise CheckpointError(
                f"{path}: {name!r} does not fit its place, bytes {start} to {stop} of {content.size}"
            )
        arrays[name] = MappedArray(content[start:stop], dtype, shape)
        ends.append((start, stop, name))
    _check_places(path, sorted(ends), content.size)
    return arrays, {str(k): str(v) for k, v in metadata.items()} if isinstance(metadata, dict) else {}


def _check_places(path: Path, places: list[tuple[int, int, str]], size: int) -> None:
    """Check that arrays follow each other without gaps and overlaps, as the format demands."""
    end = 0
    for start, stop, name in places:
        if start != end:
            raise CheckpointError(f"{path}: {name!r} starts at byte {start}, expected {end}: a gap or an overlap")
        end = stop
    if end != size:
        raise CheckpointError(
            f"{path} has {size:,} bytes of arrays, its header says {end:,}: truncated, or with a tail"
        )

"""The description of an array of zarr 2 whose chunks are plain bytes, as TensorStore writes it.

Source: the zarr specification, version 2, and the types that TensorStore 0.1.86 adds to it by their names.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

__all__ = ["NAMED", "ZARR2", "describe_array"]

ZARR2 = {
    **{"float64": "<f8", "float32": "<f4", "float16": "<f2", "complex64": "<c8", "complex128": "<c16", "bool": "|b1"},
    **{"int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "|i1"},
    **{"uint64": "<u8", "uint32": "<u4", "uint16": "<u2", "uint8": "|u1"},
}
"""Types of NumPy to their names in zarr 2: little-endian, as every machine that saves one writes it."""

NAMED = (
    *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("float8_e3m4", "float8_e8m0fnu", "float4_e2m1fn", "int4", "int2"),
)
"""Types that zarr 2 of TensorStore names as they are, each element in a byte or more; float8_e4m3, uint4 and uint2
are not among them."""


def describe_array(shape: Sequence[int], chunk: Sequence[int], dtype: str) -> str:
    """Return the text of `.zarray`.

    Args:
        shape: Of the array.
        chunk: Shape of its chunks.
        dtype: Name of NumPy's type.

    Example:
        >>> describe_array((2, 3), (2, 3), "float32")[:47]
        '{"chunks":[2,3],"compressor":null,"dimension_se'
    """
    description = {
        "chunks": [*chunk],
        "compressor": None,
        "dimension_separator": ".",
        "dtype": ZARR2.get(dtype, dtype),
        "fill_value": None,
        "filters": None,
        "order": "C",
        "shape": [*shape],
        "zarr_format": 2,
    }
    return json.dumps(description, separators=(",", ":"))

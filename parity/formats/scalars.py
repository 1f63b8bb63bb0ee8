"""Scalars in the JSON documents of trees, to the last bit: what JSON has no token for is an object with one name.

Every document of a tree uses them: that of our own checkpoints (`parity.checkpoints.trees`), and those that stand
beside arrays in files of other tools.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

from parity.storage import shown

__all__ = ["MOST_BITS", "are_keys", "decode_scalar", "encode_scalar", "is_spelled"]

MOST_BITS = 1000
"""Longest integer in digits: Python's parser of JSON has a limit for them, and PyTorch pickles longer ones in another
way."""

SPELLED = ("bytes", "complex", "float", "int")
"""Names of the objects that stand for scalars."""


def encode_scalar(value: Any) -> Any:
    """Return a scalar as JSON holds it, so that every bit comes back.

    Args:
        value: None, a bool, an integer, a float, a complex number, text or bytes. Anything else comes back as it is.

    Example:
        >>> encode_scalar(0.5), encode_scalar(float("-inf")), encode_scalar(b"ab"), encode_scalar(1j)
        (0.5, {'float': '-inf'}, {'bytes': 'YWI='}, {'complex': ['0x0.0p+0', '0x1.0000000000000p+0']})
    """
    if isinstance(value, bytes):
        return {"bytes": b64encode(value).decode()}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > MOST_BITS:
        return {"int": hex(value)}
    return value


def is_spelled(value: dict[str, Any]) -> bool:
    """Return whether an object of a document stands for a scalar."""
    return len(value) == 1 and next(iter(value)) in SPELLED


def decode_scalar(value: dict[str, Any]) -> Any:
    """Return the scalar that an object stands for.

    Args:
        value: What `encode_scalar` returned for it.

    Raises:
        ValueError: It stands for none, or is spelled in another way than it is written.
        TypeError: As above.

    Example:
        >>> decode_scalar({"float": "nan"}), decode_scalar({"complex": ["0x0.0p+0", "0x1.0000000000000p+0"]})
        (nan, 1j)
    """
    ((kind, text),) = value.items()
    found: Any
    try:
        if kind == "bytes":
            found = b64decode(text, validate=True)
        elif kind == "complex":
            real, imag = map(float.fromhex, text)
            found = complex(real, imag)
        else:
            found = float(text) if kind == "float" else int(text, 16)
    except OverflowError as error:  # digits of a float beyond float64
        raise ValueError(f"{shown(value)}: {error}") from error
    if encode_scalar(found) != value:
        raise ValueError(f"{shown(value)} is spelled in another way than it is written")
    return found


def are_keys(keys: Sequence[Any]) -> bool:
    """Return whether the keys of a container are text and integers, none of them twice."""
    return all(type(key) in (str, int) for key in keys) and len(set(keys)) == len(keys)

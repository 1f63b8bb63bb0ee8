"""Files of joblib: a pickle with the bytes of each array behind the object that describes it; nothing is executed.

Source: joblib 1.5, `joblib.numpy_pickle.NumpyArrayWrapper` (its attributes, the padding before the bytes).
"""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from parity.errors import CheckpointError
from parity.formats.symbolic import PLAIN_CALLS, Function, Global, Made, read_pickle

__all__ = ["read_joblib", "without_gaps"]

WRAPPER = "joblib.numpy_pickle.NumpyArrayWrapper"


def read_joblib(
    data: bytes,
    where: str,
    calls: Mapping[str, Function] = PLAIN_CALLS,
    persistent: Callable[[Any], Any] | None = None,
    end: Callable[[int], None] | None = None,
) -> Any:
    """Return the tree of a file that `joblib.dump` wrote without compression.

    Args:
        data: The file.
        where: Its name, for messages.
        calls: As of `read_pickle`.
        persistent: As of `read_pickle`.
        end: As of `read_pickle`.

    Returns:
        The tree; each array a dict of its dtype, shape and bytes, one of objects the tree of its own pickle.

    Raises:
        CheckpointError: It is no such file, or is cut off.
    """
    return read_pickle(data, where, calls, persistent, end, built=functools.partial(_array, where))


def _array(where: str, made: Made, stream: io.BytesIO) -> Any:
    """Return what stands for an object that was built: the array whose bytes follow, or the object itself."""
    if made.name != WRAPPER:
        return made
    state = made.content[-1]
    dtype, shape = _dtype(state["dtype"]), tuple(state["shape"])
    if dtype.hasobject:
        if dtype.names:
            raise ValueError("an array of fields with objects in it")
        rest = stream.read()
        used: list[int] = []
        found = read_pickle(rest, where, end=used.append, built=functools.partial(_array, where))
        stream.seek(used[0] - len(rest), io.SEEK_CUR)
        return found
    if state.get("numpy_array_alignment_bytes") is not None:
        stream.seek(stream.read(1)[0], io.SEEK_CUR)
    wanted = dtype.itemsize * math.prod(shape)
    content = stream.read(wanted) if wanted >= 0 else b""
    if len(content) != wanted:
        raise CheckpointError(f"{where}: an array of {wanted:,} bytes is cut off after {len(content):,}")
    if dtype.names:
        content = without_gaps(np.frombuffer(content, dtype)).tobytes()
    return {"dtype": str(dtype), "shape": list(shape), "order": state.get("order"), "bytes": content}


def without_gaps(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return rows whose bytes between the fields, which hold anything, are zeros."""
    clean = np.zeros(rows.shape, rows.dtype)
    for name in rows.dtype.names or ():
        clean[name] = rows[name]
    return clean


def _dtype(described: Any) -> np.dtype[Any]:
    """Return a dtype as the call of `numpy.dtype` in the pickle, and the state that follows it, describe it.

    Raises:
        ValueError: It is no dtype.
        TypeError: NumPy knows no such type.
    """
    if not isinstance(described, Made) or described.name != "numpy.dtype":
        raise ValueError(f"a dtype is a {type(described).__name__}")
    name, *rest = described.content
    state = rest[-1] if rest and isinstance(rest[-1], tuple) else ()
    if isinstance(name, Global):
        raise ValueError(f"a dtype of {name.name}")
    known: list[Any] = [*state, *[None] * max(0, 6 - len(state))]
    order, part, names, fields, size = known[1:6]
    if part is not None:
        return np.dtype((_dtype(part[0]), tuple(part[1])))
    if names is None:
        return np.dtype(f"{order if order in ('<', '>') else ''}{name}")
    formats, offsets = zip(*((_dtype(fields[one][0]), fields[one][1]) for one in names), strict=True)
    return np.dtype({"names": list(names), "formats": list(formats), "offsets": list(offsets), "itemsize": size})

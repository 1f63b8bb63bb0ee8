"""Pickles as data, without what differs between pickles of equal values."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np

from parity.capture import without_padding
from parity.errors import ParityError

__all__ = ["unpickled"]


def unpickled(data: bytes) -> Any:
    """Return a pickle as data, nothing of it executed; None where it cannot be told.

    Sets are sorted, an array of objects is what it holds, a masked array has no fill value where that is the default,
    and of extended precision the bytes are left out that belong to no number.
    """
    # with the first pickle: others need none of it
    from parity.formats import PLAIN_CALLS, Opaque, map_leaves, read_joblib, read_pickle, read_pickle_graph

    def without_order(_: Any, leaf: Any) -> Any:
        if not isinstance(leaf, Opaque):
            return leaf
        # they are written in the order of their tables, which depends on how they came to be
        if leaf.name.endswith((".set", ".frozenset")) and isinstance(leaf.content, list):
            return Opaque(leaf.name, sorted(map_leaves(leaf.content, without_order), key=repr), leaf.hidden)
        if (objects := _objects_in(leaf.content)) is not None:
            return map_leaves(objects, without_order)
        content = _without_chance(leaf.content)
        return Opaque(leaf.name, map_leaves(content, without_order), leaf.hidden)

    calls = {**PLAIN_CALLS, "torch.storage._load_from_bytes": _without_address}
    for reader in (read_pickle, read_joblib):
        ends: list[int] = []
        with suppress(ParityError):
            found = map_leaves(reader(data, "a file of the run", calls, list, ends.append), without_order)
            # of a large stream, or of several files of joblib, the first one alone is told
            return found if ends[0] == len(data) else [found, data[ends[0] :]]
    with suppress(ParityError, ValueError):  # objects that refer to each other in circles
        listed, end = read_pickle_graph(data, "a file of the run", calls)
        listed = [map_leaves(one, without_order) for one in listed]
        return listed if end == len(data) else [listed, data[end:]]
    return None


def _objects_in(content: Any) -> Any:
    """Return what an array of objects holds, without axes the one object; None where a pickle is of anything else.

    Its shape would be one more leaf that differs where a list has one element more.
    """
    match content:
        case [_, (0,), b"b", (int(), (), _, bool(), [held])]:
            return held
        case [_, (0,), b"b", (int(), (int(),), _, bool(), list() as held)]:
            return held
    return None


def _without_address(stream: bytes) -> bytes:
    """Return the bytes of one storage as `pickle` has them: in PyTorch's stream of before its archives.

    There a storage has its address for a name, which differs where the values do not.
    """
    found = _NAME.search(stream)
    return stream.replace(found[1], b"") if found else stream


_NAME = re.compile(rb"ctorch[^\n]*\n[A-Za-z0-9]+Storage\nq.(X.\0\0\0\d{6,20})q", re.DOTALL)


def _without_chance(content: Any) -> Any:
    """Return what an array is made of again, without what its bytes or its fill value may be in equal arrays.

    A masked array has no fill value until it is asked for one, or is unpickled: then it has the default of its type.
    """
    match content:
        case [*made_by, (int() as version, tuple() as shape, kind, bool() as reverse, bytes() as held, *more)]:
            dtype = _dtype(kind)
            if dtype is None:
                return content
            held = _without_gaps(held, dtype)
            match more:
                case [bytes(), fill] if fill is not None and _bytes_of(fill) == _default_fill(dtype):
                    more = [more[0], None]
            return [*made_by, (version, shape, kind, reverse, held, *more)]
        case [kind, bytes() as held] if (dtype := _dtype(kind)) is not None:  # a scalar
            return [kind, _without_gaps(held, dtype)]
    return content


def _without_gaps(held: bytes, dtype: np.dtype[Any]) -> bytes:
    """Return the bytes of elements, zeros where they belong to no field and to no number."""
    from parity.formats import without_gaps

    values = np.frombuffer(held, dtype)
    return (without_padding(values) if dtype.names is None else without_gaps(values)).tobytes()


def _dtype(kind: Any) -> np.dtype[Any] | None:
    """Return the type of an array in a pickle; None of one of objects, of arrays, or in the other order."""
    match getattr(kind, "content", None):
        case [str() as letters, _, _, (int(), "<" | "|", None, None, *_)] if letters[0] in "biufcSUmM":
            with suppress(TypeError, ValueError):
                return np.dtype(letters)
        case [str(), _, _, (int(), "|", None, tuple() as names, dict() as fields, int() as size, *_)]:
            parts = [(_dtype(fields[name][0]), fields[name][1]) for name in names]
            known = [(one, at) for one, at in parts if one is not None]
            if len(known) == len(parts):
                formats, offsets = [one for one, _ in known], [at for _, at in known]
                return np.dtype({"names": list(names), "formats": formats, "offsets": offsets, "itemsize": size})
    return None


def _bytes_of(fill: Any) -> bytes | None:
    match getattr(fill, "content", fill):
        case [_, _, _, (int(), (), _, bool(), bytes() as held)]:
            return held
    return None


def _default_fill(dtype: np.dtype[Any]) -> bytes | None:
    try:
        return np.array(np.ma.default_fill_value(dtype), dtype).tobytes()
    except (TypeError, ValueError):
        return None

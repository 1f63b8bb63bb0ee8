"""Probes of what cannot be looked into: a digest that tells whether it changed, never what it holds."""

from __future__ import annotations

import re
import sys
from typing import Any

from parity.capture.arrays import digest_of

__all__ = ["probe", "without_addresses", "without_places"]

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")
MOST = 1 << 24
"""Bytes of a reduced form above which an object of that class is not asked for it again."""
_heavy: set[type] = set()


def without_addresses(text: str) -> str:
    """Return a printed form without addresses, which differ from process to process."""
    return _ADDRESS.sub("0x", text)


_PLACE = re.compile(r" at 0x[0-9a-fA-F]+>")


def without_places(text: str) -> str:
    """Return a text without the addresses of objects and functions that say nothing else of themselves.

    Two runs in one process may have one at the same address by chance.

    Example:
        >>> without_places("<Net object at 0x7f184b5c8b10>, flags 0x1f")
        '<Net object at 0x>, flags 0x1f'
    """
    return _PLACE.sub(" at 0x>", text)


def probe(value: Any) -> str:
    """Return the digest of what an object shows of itself: its buffer, else its reduced form, its size and length.

    The printed form counts only where C writes it: a `__repr__` of Python is the user's code. Nothing that is asked
    here changes the object; an object that answers nothing has the digest of its type alone.
    """
    parts: list[bytes] = [type(value).__qualname__.encode()]
    try:
        with memoryview(value) as view:
            return digest_of(b"".join([*parts, digest_of(view if view.c_contiguous else view.tobytes()).encode()]))
    except (TypeError, ValueError, BufferError, NotImplementedError):
        pass
    if _reduces_in_c(type(value)):
        try:
            picture = without_addresses(repr(value.__reduce_ex__(4))).encode()
            if len(picture) > MOST:
                _heavy.add(type(value))
            parts.append(digest_of(picture).encode())
        except Exception:  # most objects of C have no reduced form
            pass
    for ask in (sys.getsizeof, len, repr):
        method = {sys.getsizeof: "__sizeof__", len: "__len__", repr: "__repr__"}[ask]
        if hasattr(getattr(type(value), method, None), "__code__"):
            continue
        try:
            parts.append(without_addresses(str(ask(value))).encode()[: 1 << 16])
        except Exception:  # an object that answers nothing
            continue
    return digest_of(b"|".join(parts))


def _reduces_in_c(cls: type) -> bool:
    """Return whether reducing it runs none of the class's Python code, so that it can have no effect of its own."""
    asked = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
    return cls not in _heavy and not any(hasattr(getattr(cls, name, None), "__code__") for name in asked)

"""Plain values in a file that `marshal` wrote: numbers, texts and containers of them; code is not read.

Its bytes say which objects something else referred to at that moment, so two processes that hold equal values write
different ones. They are read here byte by byte: `marshal` itself may crash on bytes that it did not write.
"""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["is_marshalled", "read_marshalled"]

_SHARED = 0x80
"""Bit of a type: a later value may refer to this one by its number."""
_CONTAINERS = b"([{<>)"
_CONSTANTS = {b"N": None, b"T": True, b"F": False, b".": ...}
_END_OF_DICT = object()


def is_marshalled(data: bytes) -> bool:
    """Tell whether bytes begin as a container does that `marshal` wrote."""
    return bool(data) and data[0] & ~_SHARED in _CONTAINERS


def read_marshalled(data: bytes) -> Any:
    """Return the container in it; None where anything else is in it or stands behind it."""
    read = _MarshalledBytes(data)
    try:
        found = read.value()
    except (IndexError, KeyError, ValueError, TypeError, struct.error, RecursionError):
        return None
    return found if read.at == len(data) else None


class _MarshalledBytes:
    """Reads one value after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.shared: list[Any] = []

    def value(self) -> Any:
        """Return the next value.

        Raises:
            ValueError: It is of a kind that is not read here, or goes on behind the end.
        """
        head = self.take(1)[0]
        kind, place = bytes([head & ~_SHARED]), len(self.shared) if head & _SHARED else None
        if kind == b"r":
            return self.shared[self.count()]
        if place is not None:
            self.shared.append(None)  # counted before what is in it
        found = self.container(kind, place) if kind in _KINDS else self.single(kind)
        if place is not None:
            self.shared[place] = found
        return found

    def take(self, size: int) -> bytes:
        """Return so many bytes."""
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError(size)
        self.at += size
        return self.data[self.at - size : self.at]

    def count(self) -> int:
        """Return a number of four bytes."""
        return int(struct.unpack("<i", self.take(4))[0])

    def single(self, kind: bytes) -> Any:
        """Return a value that holds no others."""
        if kind == b"0":
            return _END_OF_DICT
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == b"i":
            return self.count()
        if kind == b"l":
            size = self.count()
            digits = struct.unpack(f"<{abs(size)}H", self.take(2 * abs(size)))
            whole = sum(digit << (15 * place) for place, digit in enumerate(digits))
            return -whole if size < 0 else whole
        if kind == b"g":
            return struct.unpack("<d", self.take(8))[0]
        if kind == b"y":
            return complex(*struct.unpack("<2d", self.take(16)))
        if kind == b"s":
            return self.take(self.count())
        if kind in (b"u", b"t"):
            return self.take(self.count()).decode("utf-8", "surrogatepass")
        if kind in (b"a", b"A"):
            return self.take(self.count()).decode("ascii")
        if kind in (b"z", b"Z"):
            return self.take(self.take(1)[0]).decode("ascii")
        raise ValueError(kind)

    def container(self, kind: bytes, place: int | None) -> Any:
        """Return a container; one that can hold itself is known by its number before it is full."""
        if kind == b"{":
            table: dict[Any, Any] = {}
            if place is not None:
                self.shared[place] = table
            while (key := self.value()) is not _END_OF_DICT:
                table[key] = self.value()
            return table
        size = self.take(1)[0] if kind == b")" else self.count()
        if not 0 <= size <= len(self.data):
            raise ValueError(size)
        row: list[Any] = []
        if kind == b"[" and place is not None:
            self.shared[place] = row
        row += (self.value() for _ in range(size))
        return _KINDS[kind](row) if kind != b"[" else row


_KINDS: dict[bytes, Any] = {b"(": tuple, b")": tuple, b"[": list, b"{": dict, b"<": set, b">": frozenset}

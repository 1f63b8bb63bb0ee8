"""MessagePack read by its headers: containers and scalars are values, payloads are places in the file.

Source: the MessagePack specification (spec.md, 2017-08): one type byte, a length in big-endian order, the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from parity.errors import CheckpointError
from parity.formats.tree import MOST_DEPTH, MOST_SCALARS, MOST_TEXT

__all__ = ["MsgpackReader", "Span"]

MOST_VALUES = 4_000_000
"""Most values of one file, containers and keys included."""


NUMBERS = {
    **{0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"},
    **{0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"},
}
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
LENGTHS = {
    **{0xC4: ("bytes", 1), 0xC5: ("bytes", 2), 0xC6: ("bytes", 4), 0xC7: ("ext", 1), 0xC8: ("ext", 2)},
    **{0xC9: ("ext", 4), 0xD9: ("text", 1), 0xDA: ("text", 2), 0xDB: ("text", 4)},
    **{0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4)},
}
"""Type byte to the kind, and to the bytes of the length that follows."""


@dataclass(frozen=True)
class Span:
    """The payload of text, bytes or an extension: where it lies, not what it is."""

    start: int
    stop: int


Extension = Callable[["MsgpackReader", int, Span], Any]


class MsgpackReader:
    """Reads one value after another from bytes that are mapped, and touches no payload that nobody asks for."""

    def __init__(self, data: memoryview, where: str, extension: Extension | None = None) -> None:
        """Take the bytes.

        Args:
            data: The bytes of a file.
            where: The file, for messages.
            extension: Takes this reader, the code of an extension and the place of its payload, and returns its
                value; without it, extensions are refused.
        """
        self.data, self.where, self.extension = data, where, extension or _refuse
        self.at, self.stop = 0, len(data)
        self._values = self._text = self._scalars = 0

    def within(self, span: Span) -> MsgpackReader:
        """Return a reader of the payload of an extension, in which there are no extensions."""
        inner = MsgpackReader(self.data, self.where)
        inner.at, inner.stop = span.start, span.stop
        return inner

    def fail(self, why: str, at: int | None = None) -> CheckpointError:
        """Return an error that names the file and an offset; the current one by default."""
        return CheckpointError(f"{self.where}: at byte {self.at if at is None else at:,}, {why}")

    def header(self) -> tuple[str, Any]:
        """Read the header of the next value.

        Returns:
            `value` and the value; `map` or `array` and the number of entries; `text` or `bytes` and its Span; `ext`
            with its code and its Span. Payloads are passed over.

        Raises:
            CheckpointError: The bytes end within it, or begin no value.
        """
        start = self.at
        byte = self._unsigned(1)
        self._values += 1
        if self._values > MOST_VALUES:
            raise self.fail(f"it has more than {MOST_VALUES:,} values; no training state has so many", start)
        if byte < 0x80 or byte >= 0xE0:
            return "value", byte if byte < 0x80 else byte - 0x100
        if byte < 0xA0:
            return self._container("map" if byte < 0x90 else "array", byte & 0x0F, start)
        if byte < 0xC0:
            return "text", self._skip(byte & 0x1F)
        if byte in CONSTANTS:
            return "value", CONSTANTS[byte]
        if byte in NUMBERS:
            place = self._skip(struct.calcsize(NUMBERS[byte]))
            return "value", struct.unpack_from(NUMBERS[byte], self.data, place.start)[0]
        if 0xD4 <= byte <= 0xD8:
            return "ext", (self._unsigned(1), self._skip(1 << (byte - 0xD4)))
        if byte not in LENGTHS:
            raise self.fail(f"a value begins with {byte:#x}, which MessagePack does not use", start)
        kind, width = LENGTHS[byte]
        length = self._unsigned(width)
        if kind == "ext":
            return kind, (self._unsigned(1), self._skip(length))
        return self._container(kind, length, start) if kind in ("map", "array") else (kind, self._skip(length))

    def value(self, depth: int = 0) -> Any:
        """Read the next value whole: maps become dicts, arrays lists.

        Raises:
            CheckpointError: It is damaged, nested more than 100 deep, or has a key that is no name or occurs twice.
        """
        start = self.at
        kind, found = self.header()
        if kind in ("value", "text", "bytes"):
            self._scalars += 1
            if self._scalars > MOST_SCALARS:
                raise self.fail(
                    f"it has more than {MOST_SCALARS:,} values that are no arrays; no state has so many", start
                )
            if kind == "value":
                return found
            return self.content(found) if kind == "bytes" else self._decode(found)
        if kind == "ext":
            return self.extension(self, *found)
        if depth >= MOST_DEPTH:
            raise self.fail(f"it is nested more than {MOST_DEPTH} deep", start)
        if kind == "array":
            return [self.value(depth + 1) for _ in range(found)]
        made: dict[str | int, Any] = {}
        for _ in range(found):
            start = self.at
            key = self.value(depth + 1)
            self._scalars -= 1  # a key is a name, counted with its value
            if type(key) not in (str, int):
                raise self.fail(f"a key is {type(key).__name__}, neither text nor an integer", start)
            if key in made:
                raise self.fail(f"the key {str(key)[:80]!r} occurs twice in one map", start)
            made[key] = self.value(depth + 1)
        return made

    def content(self, span: Span) -> bytes:
        """Return a payload."""
        self._text += span.stop - span.start
        if self._text > MOST_TEXT:
            raise self.fail(f"its text and bytes have more than {MOST_TEXT:,} bytes; only arrays may", span.start)
        return bytes(self.data[span.start : span.stop])

    def _decode(self, span: Span) -> str:
        try:
            return self.content(span).decode()
        except UnicodeDecodeError as error:
            raise self.fail("a text is not UTF-8", span.start) from error

    def _skip(self, length: int) -> Span:
        """Pass over a payload, and return where it lies."""
        if length > self.stop - self.at:
            raise self.fail(f"a value has {length:,} bytes and {self.stop - self.at:,} are left: it is truncated")
        self.at += length
        return Span(self.at - length, self.at)

    def _unsigned(self, width: int) -> int:
        return int.from_bytes(self.data[self._skip(width).start : self.at], "big")

    def _container(self, kind: str, count: int, start: int) -> tuple[str, int]:
        if count * (2 if kind == "map" else 1) > self.stop - self.at:  # each takes a byte at least
            raise self.fail(f"a container has {count:,} entries and {self.stop - self.at:,} bytes are left", start)
        return kind, count


def _refuse(reader: MsgpackReader, code: int, span: Span) -> Any:
    raise reader.fail(f"an extension with the code {code} lies where none is expected", span.start)

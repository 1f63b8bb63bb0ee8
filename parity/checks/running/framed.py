"""Pickles that stand in frames of a trainer's own: lengths, places and checksums between them, as in a journal.

Equal values may be pickled to other bytes: a pickle says which objects were shared. Its length and its checksum
differ with them, and say nothing that the pickle does not say; all else between the pickles counts.
"""

from __future__ import annotations

import hashlib
import io
import pickletools
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["MOST_FRAMED", "read_framed"]

MOST_FRAMED = 4 << 20
"""Bytes of a file that is gone through: the operations of its pickles are read one by one."""

_BEGINS = re.compile(rb"\x80[\x02-\x05]")
_MOST_OPERATIONS = 2_000_000
"""Operations of pickles that are gone through in one file, those of bytes that only begin as one among them."""
_SHORTEST = 5
"""Bytes of the shortest pickle that is taken for one."""
_WORD = 4
"""Bytes of the shortest number that is looked for; a longer one ends or begins with zeros, which stay."""
_DIGITS = re.compile(rb"\d+")
_DIGESTS = ("md5", "sha1", "sha256", "sha512", "blake2b")


def read_framed(data: bytes, unpickled: Callable[[bytes], Any]) -> list[Any] | None:
    """Return in turn what stands between the pickles in a file, and what each holds; None where there is no pickle.

    Args:
        data: The file.
        unpickled: Returns what a pickle holds, nothing of it executed; None where it cannot be told.
    """
    found, begin, told = list[Any](), 0, dict[bytes, bytes]()
    for start, end in _pickles(data):
        held = unpickled(body := data[start:end])
        if held is None:
            continue
        own = _told(body, start)
        found += [_without(data[begin:start], told | own), held]
        begin, told = end, own
    return [*found, _without(data[begin:], told)] if found else None


def _pickles(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each pickle begins and ends; none begins within another."""
    at, left = 0, _MOST_OPERATIONS
    while left > 0 and (begins := _BEGINS.search(data, at)) is not None:
        file = io.BytesIO(data)
        file.seek(begins.start())
        at, whole = begins.start() + 1, False
        try:
            for operation, _, _ in pickletools.genops(file):
                left -= 1
                if whole := operation.name == "STOP":
                    break
                if left <= 0:
                    break
        except Exception:  # bytes that only begin as a pickle does; pickletools has no error of its own
            left -= 1
        if whole and file.tell() - begins.start() >= _SHORTEST:
            at = file.tell()
            yield begins.start(), at


def _told(body: bytes, at: int) -> dict[bytes, bytes]:
    """Return what a frame may say of the pickle in it, as bytes and as text, to a word for it."""
    found = dict[bytes, bytes]()
    sums = {"crc32": zlib.crc32(body), "adler32": zlib.adler32(body)}
    for word, number in {"length": len(body), "begin": at, "end": at + len(body), **sums}.items():
        if number:
            told = {number.to_bytes(8, "little")[:_WORD], number.to_bytes(8, "big")[-_WORD:]}
            if word in sums:
                told |= {b"%08x" % number, b"%08X" % number}
            found |= dict.fromkeys(told | {b"%d" % number}, b"<%s>" % word.encode())
    for name in _DIGESTS:
        digest = hashlib.new(name, body, usedforsecurity=False).digest()
        found |= dict.fromkeys((digest, digest.hex().encode()), b"<%s>" % name.encode())
    return found


def _without(between: bytes, told: dict[bytes, bytes]) -> bytes:
    """Return bytes with words for what they say of the pickles beside them; a number as text counts whole alone."""
    between = _DIGITS.sub(lambda digits: told.get(digits[0], digits[0]), between)
    for words in sorted(told, key=len, reverse=True):
        if not words.isdigit():
            between = between.replace(words, told[words])
    return between

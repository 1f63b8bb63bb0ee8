"""Texts in which bytes stand as base64: checkpoints in lines of JSON, states in fields of a table.

Equal values may be pickled or packed to other bytes, and so to other letters.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

from parity.capture import Walk, digest_of

__all__ = ["with_contents"]

_BEGINS = ("gA[I-X]", "eJ", "eA", "eN", "H4sI", "UEsDB", "QlpoO", "/Td6WFo", "_Td6WFo")
"""How pickles, streams of zlib and gzip, archives, bz2 and lzma begin in base64."""
_FOUND = re.compile(rf"(?<![\w+/=-])(?:{'|'.join(_BEGINS)})[\w+/-]{{12,}}={{0,2}}(?![\w+/=-])", re.ASCII)
_OTHER_LETTERS = str.maketrans("-_", "+/")


def with_contents(text: str, decoded: Callable[[bytes], Any]) -> str:
    """Return a text with a digest of what they hold in the place of bytes in it.

    Args:
        text: Any text; that of others stays as it is.
        decoded: Returns what bytes hold, nothing of it executed; None, or a text, where they are no such thing.
    """

    def held(found: re.Match[str]) -> str:
        letters = found[0].translate(_OTHER_LETTERS).rstrip("=")
        try:
            inside = decoded(base64.b64decode(letters + "=" * (-len(letters) % 4), validate=True))
        except (binascii.Error, ValueError):
            return found[0]
        if inside is None or isinstance(inside, str | bytes):
            return found[0]
        walk = Walk({})
        walk.root("held", inside)
        leaves = sorted((path, repr(leaf)) for path, leaf in walk.finish().leaves.items())
        return f"held:{digest_of(repr(leaves).encode())}"

    return _FOUND.sub(held, text)

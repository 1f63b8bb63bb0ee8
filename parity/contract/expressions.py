"""The part of a line that asked for an operation: of several alike on one line it tells which one is meant."""

from __future__ import annotations

import functools
import itertools
import linecache
from types import CodeType

__all__ = ["expression_at"]

LONGEST = 90
"""Characters of an expression above which its middle is left out."""


@functools.lru_cache(maxsize=4096)
def expression_at(code: CodeType, instruction: int) -> str:
    """Return the expression of the source that an instruction computes, on one line; empty where it is not known.

    Args:
        code: Of a function.
        instruction: Number of the byte at which the instruction stands, as `f_lasti` of a frame is.
    """
    first, last, begin, end = next(
        itertools.islice(code.co_positions(), instruction // 2, None), (None, None, None, None)
    )
    if first is None or last is None or begin is None or end is None:
        return ""
    lines = [linecache.getline(code.co_filename, at).encode() for at in range(first, last + 1)]
    if not lines or not all(lines):
        return ""
    lines[-1] = lines[-1][:end]  # columns are bytes
    lines[0] = lines[0][begin:]
    text = " ".join(b"".join(lines).decode(errors="replace").split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 25]} ... {text[-20:]}"

"""Values that processes tell each other through a collective of a framework, which takes as many bytes of each.

Most values are short, and cross at once, each with its size before it; only if one is longer do all cross once more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["Gather", "gather_values"]

Gather = Callable[[bytes, int], list[bytes]]
"""Takes what this process gives and a size; returns so many bytes of each process, or more, in their order: the first
of what it gives, and anything where that is shorter. All processes call it with one size."""

SHORT = 256
"""Bytes that every process gives at first, its size among them."""

HEAD = 8
"""Bytes of the size."""


def gather_values(value: Any, gather: Gather, gather_long: Gather | None = None) -> list[Any]:
    """Return the values of all processes, in their order.

    Args:
        value: That of this process, which must be JSON.
        gather: The collective.
        gather_long: In its place where values are long; it may return nothing to some processes.

    Example:
        >>> gather_values({"step": 3}, lambda data, size: [data[:size]] * 2)
        [{'step': 3}, {'step': 3}]
    """
    data = json.dumps(value).encode()
    heads = gather(len(data).to_bytes(HEAD, "little") + data, SHORT)
    sizes = [int.from_bytes(head[:HEAD], "little") for head in heads]
    rows = [head[HEAD:] for head in heads]
    if max(sizes) > SHORT - HEAD:
        rows = (gather_long or gather)(data, max(sizes))
    return [json.loads(row[:size]) for row, size in zip(rows, sizes, strict=bool(rows))]

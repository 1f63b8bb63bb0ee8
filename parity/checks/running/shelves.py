"""Stores of `dbm.dumb`, the form of `shelve` where Python was built with no other: a file of values and an index.

Where a value lies depends on what stood there before it, and a pickle of equal values has another size where other
objects were the same: neither is content.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from pathlib import Path

__all__ = ["read_shelves"]

VALUES, INDEX, FORMER = ".dat", ".dir", ".bak"
"""Ends of the names: Python itself finds the three files by them."""
MOST_BYTES = 64 << 20

Shelf = tuple[dict[str, bytes], frozenset[str]]
"""Key to value, and the files that hold them."""


def read_shelves(folder: Path, names: Collection[str]) -> dict[str, Shelf]:
    """Return what each store in a folder holds, by the name of the file of its values.

    The index of before the last change, which it keeps beside the other, is of the store and not read.

    Args:
        folder: Folder of a run.
        names: Names of the files in it.
    """
    found: dict[str, Shelf] = {}
    for name in sorted(names):
        stem = name.removesuffix(INDEX)
        if stem == name or stem + VALUES not in names:
            continue
        index, values = folder / name, folder / (stem + VALUES)
        if not index.is_file() or not values.is_file() or values.stat().st_size > MOST_BYTES:
            continue
        places, data = _places(index), values.read_bytes()
        if places is not None and all(at + size <= len(data) for at, size in places.values()):
            held = {key: data[at : at + size] for key, (at, size) in sorted(places.items())}
            former = {stem + FORMER} & set(names) if _places(folder / (stem + FORMER)) is not None else set()
            found[stem + VALUES] = held, frozenset({name, stem + VALUES} | former)
    return found


def _places(index: Path) -> dict[str, tuple[int, int]] | None:
    """Return key to first byte and number of bytes; None where a file is no index."""
    found: dict[str, tuple[int, int]] = {}
    try:
        lines = index.read_text("latin-1").split("\n")
    except OSError:
        return None
    for line in filter(None, lines):
        try:
            match ast.literal_eval(line):
                case str(key), (int(at), int(size)) if at >= 0 and size >= 0:
                    found[key] = at, size
                case _:
                    return None
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
    return found or None

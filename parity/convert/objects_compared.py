"""Two objects that only code could rebuild, compared by what they would be rebuilt from.

A sparse or a quantized tensor, a module, records of NumPy: no format here rebuilds them, and all of their bytes lie
in the file. They are equal only where every part was read and is equal.
"""

from __future__ import annotations

from typing import Any, Literal

from parity.formats import Array, Opaque

__all__ = ["compare_objects"]

MOST_PAIRS = 200_000
"""Most pairs of parts that are looked at, less than a second of work: contents may share parts a billion times."""

UNORDERED = ("set", "frozenset")


def compare_objects(a: Opaque, b: Opaque) -> Literal["equal", "different", "not read"]:
    """Compare two objects by their classes and contents, arrays bit for bit.

    Args:
        a: The first.
        b: The second.

    Returns:
        Whether they are equal, or differ in a part that was read; `not read` where neither is shown.

    Example:
        >>> compare_objects(Opaque("mine.Options", {"lr": 0.1}), Opaque("mine.Options", {"lr": 0.2}))
        'different'
        >>> compare_objects(Opaque("mine.Store", hidden=True), Opaque("mine.Store", hidden=True))
        'not read'
    """
    hidden = False
    seen: dict[tuple[int, int], tuple[Any, Any]] = {}  # with the parts, so that none is freed and its id used again
    waiting: list[tuple[Any, Any]] = [(a, b)]
    while waiting:
        one, other = waiting.pop()
        if (id(one), id(other)) in seen:
            continue
        seen[id(one), id(other)] = one, other
        if len(seen) > MOST_PAIRS:
            return "not read"
        if type(one) is not type(other) and not (isinstance(one, Array) and isinstance(other, Array)):
            return "different"
        if isinstance(one, Opaque):
            if one.name != other.name:
                return "different"
            hidden = hidden or one.hidden or other.hidden
            waiting.append((_in_order(one), _in_order(other)))
        elif isinstance(one, Array):
            if not _are_equal(one, other):
                return "different"
        elif isinstance(one, dict):
            if one.keys() != other.keys():
                return "different"
            waiting += [(child, other[key]) for key, child in one.items()]
        elif isinstance(one, list | tuple):
            if len(one) != len(other):
                return "different"
            waiting += zip(one, other, strict=True)
        elif repr(one) != repr(other):  # to the last bit
            return "different"
    return "not read" if hidden else "equal"


def _in_order(found: Opaque) -> Any:
    """Return the content of an object; that of a set is sorted, as its order depends on how it came to be."""
    items = found.content
    if found.name.rpartition(".")[2] in UNORDERED and isinstance(items, list) and all(map(_is_flat, items)):
        return sorted(items, key=repr)
    return items


def _is_flat(item: Any) -> bool:
    """Return whether the text of an item is short: its parts hold no others."""
    parts = item if isinstance(item, tuple) else (item,)
    return not any(isinstance(part, Opaque | dict | list | tuple) for part in parts)


def _are_equal(a: Array, b: Array) -> bool:
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    return all(x.tobytes() == y.tobytes() for x, y in zip(a.blocks(), b.blocks(), strict=True))

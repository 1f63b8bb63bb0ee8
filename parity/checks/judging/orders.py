"""Mappings whose keys came back in another order: they are equal, and nothing is lost unless code takes one by place.

A file often gives its keys back sorted, and mostly nothing follows from that. So such an order is named where nothing
else that differs at the resume can be the cause, and either the two mappings come to have different keys in the steps
that follow, as a cache that drops its oldest entry, or the code that ran takes an element of it by its place.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence

from parity.checks.judging.evidence import Evidence, TwoStates, Uninterrupted, after_resume
from parity.checks.judging.ordering import identifiers
from parity.checks.judging.syntax import by_function, names_in, source_tree
from parity.checks.judging.usage import Use
from parity.checks.running import called_name

__all__ = ["IN_ORDER_OF", "lost_orders"]

IN_ORDER_OF = "in the order "
"""Before the keys of a mapping, as evidence shows them."""


def lost_orders(
    states: Sequence[TwoStates], found: Sequence[Sequence[str]], uninterrupted: Uninterrupted
) -> list[Evidence]:
    """Return the mappings that have the same keys at the resume in another order, of which that may matter.

    Args:
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        found: Paths that differ in each.
        uninterrupted: What equal runs say.
    """
    both, parts, places = states[0], list[Evidence](), list[Evidence]()
    for path, order in sorted(both.left.orders.items()):
        other, below = both.right.orders.get(path, order), (f"{path}.", f"{path}[")
        if other == order or both.is_dead(path) or any(one.startswith(below) for one in found[0]):
            continue
        e = both.evidence(f"{path}.len", after_resume(0))
        e = e._replace(path=path, expected=IN_ORDER_OF + order, got=IN_ORDER_OF + other)
        if any(_parts(below, differ, at) for differ, at in zip(found[1:], states[1:], strict=False)):
            parts.append(e)
        elif takes_a_place(uninterrupted.use, (identifiers(path) or [path])[-1]):
            places.append(e)
    return parts + places


def _parts(below: tuple[str, ...], differ: Sequence[str], both: TwoStates) -> bool:
    """Return whether one of two mappings has a key that the other lacks."""
    return any(
        one.startswith(below) and (one not in both.left.leaves or one not in both.right.leaves) for one in differ
    )


def takes_a_place(use: Use, name: str) -> bool:
    """Return whether code that ran takes an element of a mapping of this name by its place.

    Args:
        use: What of the trainer's source ran.
        name: The last name of a path.
    """
    return any(name in names and use.ran(file, line) for file in use.files for line, names in _placing(file))


@functools.lru_cache(maxsize=64)
def _placing(file: str) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return for each function, by its first line, the names that it takes elements of by their places."""
    found: dict[int, set[str]] = {}
    for node, line in by_function(source_tree(file)):
        match node:
            case ast.Call(func=ast.Attribute(value=base, attr="popitem" | "most_common" | "move_to_end")):
                taken = names_in(base)
            case ast.Call(args=[ast.Call(args=[base]), *_]) if called_name(node) == "next":  # next(iter(table))
                taken = names_in(base)
            case ast.Subscript(value=ast.Call(args=[base]) as call) if called_name(call) in ("list", "tuple"):
                taken = names_in(base)
            case ast.Call(args=[base, *_]) if called_name(node) in ("min", "max", "reversed", "islice"):
                taken = names_in(base)
            case _:
                continue
        found.setdefault(line, set()).update(taken)
    return tuple((line, frozenset(names)) for line, names in found.items())

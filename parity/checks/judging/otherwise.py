"""What differs at a resume in a way that mostly means nothing, and what shows that here it does.

One object of two names: a copy of the best weights is the weights themselves until a step makes new ones. It was a
tie where the run that has it goes on to hold one value under both names, while in the other run the two come to hold
different ones.

A constant that is off by the steps done mostly tells where a process began, a list in the place of a tuple is what
JSON makes of one, and keys come back sorted from many a file. They are named where nothing else that differs at the
resume can be the cause and code takes them: then a step took them. Of an order of keys that is a mapping that comes
to have other keys in the steps that follow, as a cache that drops its oldest entry, or code that ran and takes an
element by its place.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence

from parity.capture import Leaf
from parity.checks.judging.counting import is_setting
from parity.checks.judging.evidence import Evidence, TwoStates, Uninterrupted, after_resume
from parity.checks.judging.ordering import identifiers, is_taken
from parity.checks.judging.syntax import by_function, names_in, source_tree
from parity.checks.judging.usage import Use
from parity.checks.running import called_name

__all__ = ["IN_ORDER_OF", "ONE_WITH", "differs_otherwise", "parted_ties"]

ONE_WITH = "one with "
"""Before the path that something is one object with."""

IN_ORDER_OF = "in the order "
"""Before the keys of a mapping, as evidence shows them."""


def parted_ties(states: Sequence[TwoStates], found: Sequence[Sequence[str]], until: int) -> dict[str, Evidence]:
    """Return, by its path, what is one object with something else at the resume in one of the runs alone, and parts.

    Args:
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        found: Paths that differ in each.
        until: The last of the states at which the two may come to hold different values.
    """
    both, out = states[0], dict[str, Evidence]()
    for path in sorted(found[0]):
        left, right = (state.leaves.get(path) for state in (both.left, both.right))
        of_left, of_right = (leaf is not None and leaf.role == "alias" for leaf in (left, right))
        tied = left if of_left else right
        if of_left == of_right or tied is None or both.is_dead(path):
            continue
        sides = [(one.left.leaves, one.right.leaves) for one in states[1 : until + 1]]
        sides = sides if of_left else [(right, left) for left, right in sides]
        if any(tied.same(one.get(path)) and _are_two(path, tied.digest, apart) for one, apart in sides):
            said = (ONE_WITH + tied.digest, "apart")
            expected, got = said if of_left else reversed(said)
            out[path] = both.evidence(path, after_resume(0))._replace(expected=expected, got=got)
    return out


def _are_two(path: str, other: str, leaves: Mapping[str, Leaf]) -> bool:
    """Return whether what lies at two paths has values of its own, and not the same ones."""
    below = [one[len(path) :] for one in leaves if one == path or one.startswith((f"{path}.", f"{path}["))]
    pairs = [(leaves[path + one], leaves.get(other + one)) for one in below]
    own = [(one, two) for one, two in pairs if two is not None and "alias" not in (one.role, two.role)]
    return any(not one.same(two) for one, two in own)


def differs_otherwise(
    states: Sequence[TwoStates], found: Sequence[Sequence[str]], uninterrupted: Uninterrupted
) -> list[Evidence]:
    """Return such differences, of what code takes for more than a message.

    Args:
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        found: Paths that differ in each.
        uninterrupted: What equal runs say.
    """
    both = states[0]
    constants = [p for p in sorted(found[0]) if is_setting(p, states, found, uninterrupted, begun=True)]
    out = [both.evidence(p, after_resume(0)) for p in constants]
    for path in sorted(both.left.tuples ^ both.right.tuples):
        if f"{path}.len" in both.left.leaves and f"{path}.len" in both.right.leaves and not both.is_dead(path):
            e = both.evidence(f"{path}.len", after_resume(0))
            sides = ("tuple", "another sequence") if path in both.left.tuples else ("another sequence", "tuple")
            out.append(e._replace(path=path, expected=sides[0], got=sides[1]))
    return [e for e in [*out, *_lost_orders(states, found, uninterrupted)] if is_taken(e, uninterrupted)]


def _lost_orders(
    states: Sequence[TwoStates], found: Sequence[Sequence[str]], uninterrupted: Uninterrupted
) -> list[Evidence]:
    """Return the mappings that have the same keys at the resume in another order, of which that may matter."""
    both, parts, places = states[0], list[Evidence](), list[Evidence]()
    for path, order in sorted(both.left.orders.items()):
        other, below = both.right.orders.get(path, order), (f"{path}.", f"{path}[")
        if other == order or both.is_dead(path) or any(one.startswith(below) for one in found[0]):
            continue
        e = both.evidence(f"{path}.len", after_resume(0))
        e = e._replace(path=path, expected=IN_ORDER_OF + order, got=IN_ORDER_OF + other)
        if any(_parts(below, differ, at) for differ, at in zip(found[1:], states[1:], strict=False)):
            parts.append(e)
        elif _takes_a_place(uninterrupted.use, (identifiers(path) or [path])[-1]):
            places.append(e)
    return parts + places


def _parts(below: tuple[str, ...], differ: Sequence[str], both: TwoStates) -> bool:
    """Return whether one of two mappings has a key that the other lacks."""
    return any(
        one.startswith(below) and (one not in both.left.leaves or one not in both.right.leaves) for one in differ
    )


def _takes_a_place(use: Use, name: str) -> bool:
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

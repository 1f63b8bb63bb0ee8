"""Ties of arrays and objects that a resume parted, or made: all values are equal there, and the next step tells.

That one object has two names is mostly nothing: a copy of the best weights is the weights themselves until a step
makes new ones. It was a tie where the run that has it goes on to hold one value under both names, while in the other
run the two come to hold different ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parity.capture import Leaf
from parity.checks.judging.evidence import Evidence, TwoStates, after_resume

__all__ = ["ONE_WITH", "parted_ties"]

ONE_WITH = "one with "
"""Before the path that something is one object with."""


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

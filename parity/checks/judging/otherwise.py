"""What differs at a resume in a way that mostly means nothing, where nothing else that differs can be the cause.

A constant that is off by the steps done mostly tells where a process began, a list in the place of a tuple is what
JSON makes of one, and keys come back sorted from many a file. If training comes to differ and nothing else was
another at the resume, a step took them.
"""

from __future__ import annotations

from collections.abc import Sequence

from parity.checks.judging.counting import is_setting
from parity.checks.judging.evidence import Evidence, TwoStates, Uninterrupted, after_resume
from parity.checks.judging.ordering import is_taken
from parity.checks.judging.orders import lost_orders

__all__ = ["differs_otherwise"]


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
    return [e for e in [*out, *lost_orders(states, found, uninterrupted)] if is_taken(e, uninterrupted)]

"""Losses that healed: a number that was lost, and that a later step would have replaced anyway.

A best metric, a count of evaluations without a better one: two such runs end equal, though a kill at another step
would show the loss. It is told from a value that the loop derives again before it uses it: there the uninterrupted
run keeps its value while the resumed one comes to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from parity.checks.judging.evidence import TwoStates, Uninterrupted

__all__ = ["find_replaced"]


def find_replaced(
    states: Sequence[TwoStates],
    found: Sequence[Sequence[str]],
    uninterrupted: Uninterrupted,
    derived: Sequence[bool],
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the paths of lost numbers that later steps made equal again, with the first state of which they did.

    Args:
        states: What the uninterrupted run and the resumed one hold, mark by mark from the resume on.
        found: Paths that differ in each.
        uninterrupted: What equal runs say.
        derived: Of each state, whether the resumed run read its folder in the step before: then it may have found
            there what it had not loaded.

    Returns:
        Those that were lost, and those of which that cannot be said.
    """
    lost: dict[str, int] = {}
    unsure: dict[str, int] = {}
    feeds = _refilled(states)
    for path in found[0]:
        leaf = states[0].left.leaves.get(path)
        if leaf is None or leaf.role not in ("scalar", "array") or states[0].is_dead(path):
            continue
        if path not in uninterrupted.changing or path in uninterrupted.rounded or uninterrupted.is_history(path):
            continue
        at = next((index for index in range(1, len(states)) if path not in found[index]), None)
        if at is None:
            continue
        before, after = (states[index].left.leaves.get(path) for index in (at - 1, at))
        if before is not None and after is not None and not after.same(before):
            (unsure if derived[at] or (at == 1 and path.startswith(feeds)) else lost)[path] = at
    return lost, unsure


def _refilled(states: Sequence[TwoStates]) -> tuple[str, ...]:
    """Return what paths begin with below objects that hold a queue which the first step fills again, from nothing.

    So is a feed that makes batches ahead: after a resume its queue is empty, and the first step makes as many as
    there were, the same ones. What the feed keeps about making them comes to be equal with them. A list of records
    that was lost gets new ones, which are others or fewer; a number that stands in a sequence by itself is no batch.
    """
    if len(states) < 2:
        return ()
    left, right = states[0].left.leaves, states[0].right.leaves
    found: set[str] = set()
    for path in left:
        queue = path.removesuffix(".len")
        if queue == path or path not in right or right[path].digest != "0" or left[path].digest == "0":
            continue
        after = [both.leaves.get(path) for both in (states[1].left, states[1].right)]
        again = after[0] is not None and after[0].same(after[1]) and after[0].same(left[path])
        if again and f"{queue}[0].len" in left:
            found.add(f"{queue.rpartition('.')[0]}." if "." in queue else f"{queue}[")
    return tuple(found)

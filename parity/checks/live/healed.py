"""Losses that healed: a number that was lost, and that a later step would have replaced anyway.

A best metric, a count of evaluations without a better one: two such runs end equal, though a kill at another step
would show the loss. It is told from a value that the loop derives again before it uses it: there the uninterrupted
run keeps its value while the resumed one comes to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from parity.checks.live.evidence import Ground, TwoStates

__all__ = ["healed"]


def healed(
    states: Sequence[TwoStates],
    found: Sequence[Sequence[str]],
    ground: Ground,
    derived: Sequence[bool],
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the paths of lost numbers that later steps made equal again, with the first state of which they did.

    Args:
        states: What the uninterrupted run and the resumed one hold, mark by mark from the resume on.
        found: Paths that differ in each.
        ground: What equal runs say.
        derived: Of each state, whether the resumed run read its folder in the step before: then it may have found
            there what it had not loaded.

    Returns:
        Those that were lost, and those of which that cannot be said.
    """
    lost: dict[str, int] = {}
    unsure: dict[str, int] = {}
    for path in found[0]:
        leaf = states[0].left.leaves.get(path)
        if leaf is None or leaf.role not in ("scalar", "array") or states[0].is_dead(path):
            continue
        if path not in ground.changing or path in ground.rounded or ground.is_history(path):
            continue
        at = next((index for index in range(1, len(states)) if path not in found[index]), None)
        if at is None:
            continue
        before, after = (states[index].left.leaves.get(path) for index in (at - 1, at))
        if before is not None and after is not None and not after.same(before):
            (unsure if derived[at] else lost)[path] = at
    return lost, unsure

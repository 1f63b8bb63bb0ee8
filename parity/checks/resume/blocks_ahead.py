"""Arrays that are read ahead: a block of rows and a place in it, of which further runs show that both give alike.

A reader takes eight rows at once; a resumed one takes its first eight from where training is. A snapshot knows an
array by its digest, which says nothing of the rows from a place on: so both runs are made once more, and keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from parity.capture import PathLeaves
from parity.checks.judging import Outcome, TwoStates, block_beside, bytes_of, gives_alike
from parity.checks.running import Trace

__all__ = ["settle_blocks"]

MOST_BYTES = 256 << 20
"""Most bytes of blocks that two runs keep; above, nothing is measured."""

TOO_SHORT = (
    "{place} is another after the resume, and what is left of {block} from there on is the same: whether the next "
    "block is, no step of this run tells; give more steps, restore both, or say that it is meant: "
    "ignore={{'{place}': reason}}"
)

Kept = Mapping[int, Sequence[str]]
"""Completed steps to the paths whose values are wanted."""


def settle_blocks(
    outcome: Outcome,
    states: Sequence[TwoStates],
    uninterrupted: Callable[[Kept], Trace],
    resumed: Callable[[Kept], Trace],
) -> None:
    """List places in blocks of rows, where nothing else is lost and both runs hand out the same rows.

    Args:
        outcome: What was found; changed in place.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        uninterrupted: Makes a run that nothing stops once more, which keeps values.
        resumed: The same of the one that resumes.
    """
    found = {e.path: block_beside(e.path, states) for e in outcome.broken}
    blocks = {place: block for place, block in found.items() if block}
    if len({both.step for both in states}) < len(states):
        return  # of several marks at one step values cannot be told apart
    if not blocks or not {*found} <= {*blocks, *blocks.values()}:
        return  # something else is lost
    leaves = states[0].left.leaves
    if 2 * len(states) * sum(bytes_of(leaves[block]) for block in set(blocks.values())) > MOST_BYTES:
        return
    keep = dict.fromkeys((both.step for both in states), sorted(set(blocks.values())))
    values = [
        _values(uninterrupted(keep), [both.left.leaves for both in states], keep),
        _values(resumed(keep), [both.right.leaves for both in states], keep),
    ]
    alike = {place: _is_alike(place, block, states, values) for place, block in blocks.items()}
    if False in alike.values():
        return
    outcome.bookkeeping += outcome.broken
    outcome.broken = []
    for place in (place for place, found in alike.items() if found is None):
        outcome.unsure = True
        outcome.notes.append(TOO_SHORT.format(place=place, block=blocks[place]))


def _values(trace: Trace, leaves: Sequence[PathLeaves], keep: Kept) -> dict[int, Mapping[str, Any]]:
    """Return what a run has kept at each step; nothing where its blocks are not those of the run that it repeats."""
    found = {mark.step: mark.snapshot for mark in trace.marks}
    for (step, blocks), known in zip(keep.items(), leaves, strict=True):
        if step not in found or any(found[step].leaves.get(block) != known.get(block) for block in blocks):
            return {}
    return {step: snapshot.values for step, snapshot in found.items()}


def _is_alike(
    place: str, block: str, states: Sequence[TwoStates], values: Sequence[Mapping[int, Mapping[str, Any]]]
) -> bool | None:
    """Return whether both runs have the same rows from their places on; before its first block a run has none."""
    steps = [both.step for both in states]

    def left_of(number: int, side: int, at: int) -> list[Any]:
        rows = np.asarray(values[side].get(steps[number], {}).get(block, ()))
        rest = rows[at:] if at >= 0 and rows.ndim else ()
        return [(str(row.dtype), row.shape, row.tobytes()) for row in rest]

    return gives_alike(place, states, left_of)

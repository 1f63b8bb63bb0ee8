"""Arrays that are read ahead: a block of rows and a place in it, of which further runs show that both give alike.

A reader takes eight rows at once; a resumed one takes its first eight from where training is. A snapshot knows an
array by its digest, which says nothing of the rows from a place on: so both runs are made once more, and keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from parity.capture import PathLeaves
from parity.checks.judging import Outcome, TwoStates, blocks_beside, bytes_of, gives_alike, is_of_rows
from parity.checks.running import Trace

__all__ = ["Kept", "settle_blocks"]

MOST_BYTES = 256 << 20
"""Most bytes of blocks that two runs keep; above, nothing is measured."""

TOO_SHORT = (
    "{path} is another after the resume, and what is left of the block that was read ahead is the same: whether the "
    "next block is, no step of this run tells; give more steps, restore the block with its place, or say that it is "
    "meant: ignore={{'{path}': reason}}"
)

Kept = Mapping[int, Sequence[str]]
"""Completed steps to the paths whose values are wanted."""

ValuesAtSteps = Mapping[int, Mapping[str, Any]]


def settle_blocks(
    outcome: Outcome,
    states: Sequence[TwoStates],
    uninterrupted: Callable[[Kept], Trace],
    resumed: Callable[[Kept], Trace],
) -> None:
    """List blocks of rows and the places in them, where nothing else is lost and both runs hand out the same rows.

    Args:
        outcome: What was found; changed in place.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        uninterrupted: Makes a run that nothing stops once more, which keeps values.
        resumed: The same of the one that resumes.
    """
    every = list(dict.fromkeys(e.path for e in outcome.broken))
    # where the function ends, what an inner one held has the path of the outer: `train().model`, for `model`
    found = [path for path in every if path.partition("().")[2] not in every]
    blocks = {path: blocks_beside(path, states) for path in found}
    places = {place: beside for place, beside in blocks.items() if beside}
    arrays = [path for path in found if is_of_rows(path, states)]
    wanted = sorted({*arrays, *(one for beside in places.values() for one in beside)})
    if not wanted or len({*places, *arrays}) < len(found) or len({both.step for both in states}) < len(states):
        return  # something else is lost; or marks at one step, of which values cannot be told apart
    leaves = states[0].left.leaves
    if 2 * len(states) * sum(bytes_of(leaves[block]) for block in wanted) > MOST_BYTES:
        return
    keep = dict.fromkeys((both.step for both in states), wanted)
    values = [
        _values(uninterrupted(keep), [both.left.leaves for both in states], keep),
        _values(resumed(keep), [both.right.leaves for both in states], keep),
    ]
    alike: dict[str, bool | None] = {}
    for place, beside in places.items():  # a second block that waits behind the first has no place yet
        by_block = {block: _is_alike(place, block, states, values) for block in beside}
        alike[place] = True if True in by_block.values() else None if None in by_block.values() else False
        alike |= {block: one for block, one in by_block.items() if one is not False and block in arrays}
    for block in arrays:  # rows are cut off at its front
        alike.setdefault(block, _is_grown(block, states, values) or _is_alike("", block, states, values))
    if False in alike.values():
        return
    outcome.bookkeeping += outcome.broken
    outcome.broken = []
    for path in (path for path, one in alike.items() if one is None):
        outcome.unsure = True
        outcome.notes.append(TOO_SHORT.format(path=path))


def _is_grown(block: str, states: Sequence[TwoStates], values: Sequence[ValuesAtSteps]) -> bool:
    """Return whether the resumed run makes an array anew, which is the beginning of what the other run has.

    As a table of angles for the longest sequence so far, which is made longer on demand: steps take what they need of
    it, and all else is equal.
    """
    there = [both for both in states if getattr(both.right.leaves.get(block), "kind", "NoneType") != "NoneType"]
    if states[0] in there:
        return False  # it was restored, or begins as something: a shorter one may be lost
    for both in there:
        left, right = (np.asarray(kept.get(both.step, {}).get(block, ())) for kept in values)
        if left.dtype != right.dtype or left.ndim != right.ndim or not right.size:
            return False
        beginning = left[tuple(slice(0, extent) for extent in right.shape)]
        if beginning.shape != right.shape or beginning.tobytes() != right.tobytes():
            return False
    return bool(there)


def _values(trace: Trace, leaves: Sequence[PathLeaves], keep: Kept) -> ValuesAtSteps:
    """Return what a run has kept at each step; nothing where its blocks are not those of the run that it repeats."""
    found = {mark.step: mark.snapshot for mark in trace.marks}
    for (step, blocks), known in zip(keep.items(), leaves, strict=True):
        if step not in found or any(found[step].leaves.get(block) != known.get(block) for block in blocks):
            return {}
    return {step: snapshot.values for step, snapshot in found.items()}


def _is_alike(place: str, block: str, states: Sequence[TwoStates], values: Sequence[ValuesAtSteps]) -> bool | None:
    """Return whether both runs have the same rows from their places on; before its first block a run has none.

    Without a place rows are cut off at the front: all that are there are left, and more of them are another block.
    """
    places, rests = [], []
    for both in states:
        at: list[int] = []
        left: list[list[Any]] = []
        for leaves, kept in zip((both.left.leaves, both.right.leaves), values, strict=True):
            rows = np.asarray(kept.get(both.step, {}).get(block, ()))
            if place and (place not in leaves or leaves[place].kind != "int"):
                return False
            at.append(int(leaves[place].digest) if place else -len(np.atleast_1d(rows)))
            rest = rows[max(at[-1], 0) :] if rows.ndim else ()
            left.append([(str(row.dtype), row.shape, row.tobytes()) for row in rest])
        places.append((at[0], at[1]))
        rests.append((left[0], left[1]))
    return gives_alike(places, rests)

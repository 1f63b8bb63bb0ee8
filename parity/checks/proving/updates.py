"""The updates of both trainers as they are and, where these part, with their casts to narrower types left out.

Optax's schedules count in int32 and compute rates in float32 even where all else is float64, and models cast inside.
That is rounding, and no other meaning: what agrees to the last step without casts is equal in float64. What a trainer
keeps in a narrow type between updates is another thing, and is told by its values.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.losses import Pairing
from parity.checks.proving.sources import PortTrainer
from parity.checks.proving.walk import TwoWalks, walk_updates
from parity.errors import SpecError

__all__ = ["judge_updates", "kept_narrow"]

FLOAT32 = 2.0**-23
"""Relative step of float32: what is rounded to it is at most half of it away, on both sides."""

FEWEST = 16
"""Elements of a slot below which nothing is said of the type in which it is kept."""


def judge_updates(
    pairing: Pairing, first: PortTrainer, second: PortTrainer, values: Mapping[str, NDArray[np.float64]], steps: int
) -> tuple[TwoWalks, str, list[str]]:
    """Return the updates of both, a cause that their values tell at once, and notes.

    Args:
        pairing: Of the models.
        first: The trainer.
        second: Its port.
        values: Of the leaves of the first model.
        steps: Updates.

    Raises:
        SpecError: The user's code fails, or a state does not hold the model's parameters.
    """
    walk = walk_updates(pairing, first, second, values, steps)
    if not walk.what:
        return walk, "", []
    if cause := _narrow_cause(walk):
        return walk, cause, []
    try:
        lifted = walk_updates(pairing, first, second, values, steps, lift=True)
    except SpecError as error:
        if _within_a_cast(walk):
            # what a cast explains at one update hides nothing that is larger at a later one
            loose = walk_updates(pairing, first, second, values, steps, limit=FLOAT32)
            if loose.what and not _within_a_cast(loose):
                return loose, "", [f"casts to narrower types could not be left out: {error}"]
            walk.clouded = "no more than one rounding to float32 makes, and casts to it could not be left out"
        return walk, "", [f"casts to narrower types could not be left out: {error}"]
    if lifted.what or lifted.chaotic:
        return lifted, "", []
    gap = (
        walk.gap.gap
        if walk.gap is not None
        else abs(walk.losses[0] - walk.losses[1]) / max(abs(walk.losses[0]), 1e-300)
    )
    note = (f"updates cast to a narrower type: as they are they part by {gap:.1e} at update {walk.done}, without "
            f"casts they do not; computed in float64 here ({_whose(first, second)})")  # fmt: skip
    return lifted, "", [note]


def _whose(*trainers: PortTrainer) -> str:
    """Return where lifted updates left casts out, or that none of a trainer's own is there."""
    found = [f"{cast.what} at {cast.where}" for trainer in trainers for cast in trainer.probe.casts]
    if not found:
        return (
            "no line casts: a rate or a bias correction that is computed from a count in int32, as Optax keeps it, "
            "is float32"
        )
    more = f" and {len(found) - 2} more" if len(found) > 2 else ""
    return f"{', '.join(found[:2])}{more}"


def _within_a_cast(walk: TwoWalks) -> bool:
    """Return whether what parts is no more than the rounding to float32 of what moved, once for each update."""
    limit = FLOAT32 * walk.done
    if walk.what == "loss" or walk.gap is None:
        return abs(walk.losses[0] - walk.losses[1]) <= limit * abs(walk.losses[0])
    here, there = walk.lanes[:2]
    names = (MODEL, MODEL) if walk.what == MODEL else (walk.what, walk.gap.other)
    one = walk.pairing.over(here.moments[walk.done].slots.get(names[0], {}))
    two = there.moments[walk.done].slots.get(names[1], {})
    start = walk.pairing.over(here.moments[0].slots[MODEL]) if walk.what == MODEL else {}
    for leaf in walk.gap.leaves:
        if leaf not in one or leaf not in two:
            return False
        # parameters are compared by their moves: of a rate, a cast shows in what it scales
        moved = float(np.abs(one[leaf] - start.get(leaf, 0.0)).max(initial=0.0))
        if float(np.abs(one[leaf] - two[leaf]).max(initial=0.0)) > limit * moved:
            return False
    return True


def _narrow_cause(walk: TwoWalks) -> str:
    """Return what one trainer keeps in a narrow type between updates, and the other does not."""
    kept = [kept_narrow(lane, walk.done) for lane in walk.lanes[:2]]
    if kept[0].get(MODEL) == kept[1].get(MODEL) and len(kept[0]) == len(kept[1]):
        return ""
    for at, words in ((1, ("the port", "the trainer")), (0, ("the trainer", "the port"))):
        for slot, kind in kept[at].items():
            if slot == MODEL and MODEL not in kept[1 - at]:
                return f"parameters in {kind}: {words[0]} rounds its own to it at each update, {words[1]} does not"
            if slot != MODEL and len(kept[at]) > len(kept[1 - at]):
                return f"state in {kind}: {words[0]} keeps {slot} in it, {words[1]} keeps nothing so"
    return ""


def kept_narrow(lane: Lane, done: int) -> dict[str, str]:
    """Return slots whose every element that moved is one of bfloat16 or float16, with the type."""
    found = {}
    statistics = lane.trainer.model.statistics
    start, now = lane.moments[0].slots, lane.moments[done].slots
    for slot, held in now.items():
        moved = [
            array.ravel()
            for leaf, array in held.items()
            if leaf not in statistics
            and not np.array_equal(array, start.get(slot, {}).get(leaf, np.nan))
            and np.any(array)
        ]
        values = np.concatenate(moved) if moved else np.zeros(0)
        values = values[values != 0.0]
        if values.size < FEWEST:
            continue
        mantissa = np.frexp(values)[0]
        for kind, bits in (("bfloat16", 8), ("float16", 11)):
            if np.array_equal(mantissa * 2.0**bits, np.rint(mantissa * 2.0**bits)):
                found[slot] = kind
                break
    return found

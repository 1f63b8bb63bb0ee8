"""Updates at which one run divides by the root of its second moment and the other does not yet, as under RAdam.

Each run's own move at that update is fitted with and without the root, decay beside it: of two that are equal before,
one that moves by its first moment alone and one that does not have another threshold.
"""

from __future__ import annotations

import numpy as np

from parity.checks.proving.bias_forms import both_at
from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.move_fits import MoveWay, fitted_move
from parity.checks.proving.seen import SeenUpdate, joined, seen_updates
from parity.checks.proving.walk import TwoWalks

__all__ = ["rectified_cause"]


def rectified_cause(walk: TwoWalks) -> str:
    """Return that one divides by the root of the second moment from another update on; empty where both do alike.

    Args:
        walk: Two trainers whose models part after an update, their moments equal.
    """
    if walk.what != MODEL:
        return ""
    runs = [{one.at: found for one in seen_updates(walk, at) if (found := _divides(one))} for at in (0, 1)]
    one, two = (run.get(walk.done) for run in runs)
    if one is None or two is None or bool(one[1]) == bool(two[1]):
        return ""
    at = 0 if one[1] else 1
    who, other = (("the trainer", "the port"), ("the port", "the trainer"))[at]
    return (
        f"second moment: at update {walk.done} {who} divides by its root, {other} moves by the first moment alone "
        f"(a threshold, as of RAdam, or a warm-up){_length(walk, at, runs[at][walk.done])}"
    )


def _divides(update: SeenUpdate) -> tuple[str, str] | None:
    """Return the first moment of a move and the second one, empty where it moves by the first alone; None unknown."""
    values = {slot: joined(held, list(held)) for slot, held in update.kept.items()}
    signed = [slot for slot, one in values.items() if (one < 0.0).any()]
    squares = [slot for slot, one in values.items() if not (one < 0.0).any() and np.any(one)]
    for top in signed:
        for under in ("", *squares):
            if fitted_move(MoveWay(top, under=under, place="beside" if under else ""), update) is not None:
                return top, under
    return None


def _length(walk: TwoWalks, at: int, slots: tuple[str, str]) -> str:
    """Return how long RAdam's average is at the update, which is compared with a threshold, as the end of words."""
    lane = walk.lanes[at]
    pairs = (both_at(lane, *slots, n) for n in range(len(lane.moments) - 1, 2, -1)
             if lane.moments[n].slots and lane.moments[n - 1].slots)  # fmt: skip
    pair = next((one for one in pairs if one), None)
    if pair is None:
        return ""
    kept, done = pair[1], walk.done
    length = 2 / (1 - kept) - 1 - 2 * done * kept**done / (1 - kept**done)
    if not 4.0 < length <= 5.0:
        return ""  # no threshold that is known lies beside it
    return f": its average is {length:.4g} long at this update, PyTorch asks more than 5, the paper than 4"

"""How much of the gradient each optimizer takes, in absolute terms: what is clipped is told from what is scaled.

The first moment of one update holds a part of the gradient, and which part of it is the weight of the moment shows in
the second update: what the moment keeps of itself is one less that weight.
"""

from __future__ import annotations

import numpy as np

from parity.checks.proving.effective import TakenParts, one_value
from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.walk import TwoWalks

__all__ = ["clip_cause", "whole_times"]

ONE = 1e-6
"""How far a part of the gradient may be from all of it."""

FIT = 1e-7
"""How far a moment may be from what its parts give, relative to its largest element."""


def clip_cause(walk: TwoWalks, here: TakenParts, there: TakenParts, norm: float) -> str:
    """Return which of two optimizers clips or scales the gradient, where the weights of both moments show.

    Args:
        walk: Two trainers after some updates.
        here: What the trainer's first moment holds after the first update.
        there: The port's.
        norm: Of all gradients before it.
    """
    scales = []
    for at, taken in ((0, here), (1, there)):
        part, kept = one_value(taken.gradient, ONE), _kept(walk, at, taken.slot)
        if part is None or kept is None or not 0.0 <= kept < 1.0:
            return ""
        # beside a second moment the first is a mean, of which the gradient is one less what is kept
        scales.append(part / (1.0 - kept) if taken.square else part)
    whole = [abs(scale - 1.0) <= ONE for scale in scales]
    names = ("the trainer", "the port")
    for at, other in ((0, 1), (1, 0)):
        if whole[other] and 0.0 < scales[at] < 1.0 and not whole_times(scales[at], ONE):
            return (
                f"clipping: {names[at]} clips the norm of the gradients ({norm:.6g}) to {scales[at] * norm:.6g}, "
                f"{names[other]} does not clip it"
            )
        times = whole_times(scales[other], ONE)
        if times and 0.0 < scales[at] < 1.0 and not whole_times(scales[at], ONE):
            return (
                f"accumulation: {names[other]} takes {times} times the gradient of its loss and does not clip it, "
                f"{names[at]} clips its norm ({norm:.6g}) to {scales[at] * norm:.6g}"
            )
    if all(0.0 < scale < 1.0 and not whole_times(scale, ONE) for scale in scales):
        sizes = [scale * norm for scale in scales]
        return f"clipping: largest norm of the gradients {sizes[0]:.6g} here, {sizes[1]:.6g} there"
    return ""


def _kept(walk: TwoWalks, at: int, slot: str) -> float | None:
    """Return how much of itself a moment keeps in the second update; None where that does not make it."""
    lane = walk.lanes[at]
    if len(lane.moments) < 3 or slot not in lane.moments[2].slots or slot not in lane.moments[1].slots:
        return None
    old, new = lane.moments[1].slots[slot], lane.moments[2].slots[slot]
    values = lane.moments[1].slots[MODEL]
    gradients = lane.trainer.probe.loss(values, lane.trainer.batch(1)).gradients
    leaves = [leaf for leaf in new if leaf in old and leaf in gradients and np.any(old[leaf])]
    if not leaves:
        return None
    table = np.stack([np.concatenate([one[leaf].ravel() for leaf in leaves]) for one in (old, gradients)], 1)
    made = np.concatenate([new[leaf].ravel() for leaf in leaves])
    (kept, part), *_ = np.linalg.lstsq(table, made, rcond=None)
    close = float(np.abs(table @ (kept, part) - made).max()) <= FIT * float(np.abs(made).max(initial=0.0))
    return float(kept) if close else None


def whole_times(ratio: float, close: float) -> str:
    """Return a ratio that is a whole number of at least 2, or one by such a number; empty where it is none.

    Args:
        ratio: Of two gradients.
        close: Relative distance from the whole number.
    """
    for value, words in ((ratio, ""), (1 / ratio if ratio else 0.0, "1/")):
        if round(value) >= 2 and abs(value - round(value)) <= close * value and value < 1e4:
            return f"{words}{round(value)}"
    return ""

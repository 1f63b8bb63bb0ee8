"""Losses that agree on the first batches and part on a later one: what they do there is told as of the first ones.

A flag that is set in few rows, or a bound that few values reach, may act on no row of the first batches.
"""

from __future__ import annotations

from parity.checks.proving.gradient_causes import mode_cause
from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.loss_causes import UNKNOWN, UNSEEN, loss_cause
from parity.checks.proving.losses import evaluate_losses, loss_gap
from parity.checks.proving.program_causes import loss_program_cause
from parity.checks.proving.walk import TwoWalks
from parity.errors import ParityError

__all__ = ["later_loss_cause"]


def later_loss_cause(walk: TwoWalks) -> str:
    """Return why two losses part on the batch of the update at which two runs do; empty where they agree on it.

    Args:
        walk: Two trainers whose losses part at an update, or their models after it.
    """
    step, lanes = walk.done - 1, walk.lanes
    if walk.what not in ("loss", MODEL) or step < 1 or not lanes[0].moments[step].slots:
        return ""
    trainers = lanes[0].trainer, lanes[1].trainer
    values = dict(lanes[0].moments[step].slots[MODEL])
    try:
        pair = evaluate_losses(walk.pairing, *trainers, values, step)
        gap, limit = loss_gap(pair)
        if gap <= limit or not all(pair.repeats):
            return ""
        cause = mode_cause(walk.pairing, *trainers, values, step) or loss_cause(pair)
        if not cause or cause in (UNKNOWN, UNSEEN):
            cause = loss_program_cause(walk.pairing, *trainers, step) or cause
    except ParityError:
        return ""
    return cause and f"{cause} (the losses part on the batch of update {walk.done}, and agree on the first ones)"

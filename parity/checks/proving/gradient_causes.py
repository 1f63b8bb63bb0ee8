"""Why gradients part though the loss agrees, and why a loss follows what it should not."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.effective import one_value
from parity.checks.proving.losses import LossPair, Pairing
from parity.checks.proving.slots import names_of
from parity.checks.proving.sources import PortTrainer

__all__ = ["gradient_cause", "mode_cause"]


def gradient_cause(pair: LossPair, parted: Collection[str], names: Mapping[str, str]) -> str:
    """Return why gradients part; empty where no known cause makes it.

    Args:
        pair: Losses and gradients of both at one place.
        parted: Leaves of the second model whose gradients part.
        names: Leaves of the second model to those of the first.
    """
    gone = {who: [] for who in ("the port", "the trainer")}  # type: dict[str, list[str]]
    factors: dict[str, float] = {}
    for path in parted:
        a, b = pair.expected[path].ravel(), pair.second.gradients[path].ravel()
        if not np.any(b):
            gone["the port"].append(path)
        elif not np.any(a):
            gone["the trainer"].append(path)
        else:
            factor = float(a @ b) / float(a @ a)
            if float(np.abs(b - factor * a).max()) <= 1e-9 * float(np.abs(b).max()):
                factors[path] = factor
    for who, leaves in gone.items():
        if leaves:
            shown = names_of([names[leaf] for leaf in leaves])
            rest = len(parted) - len(leaves)
            more = f", and part of the gradient of {rest} more" if rest else ""
            return f"gradient stopped: in {who} none reaches {shown}{more} (stop_gradient or detach)"
    numbers = sum(pair.expected[path].size for path in parted)  # of one number any other is a multiple
    shared = one_value(factors, 1e-9) if len(factors) == len(parted) and numbers > 1 else None
    if shared is not None and abs(shared - 1.0) <= 1e-9:
        return ""  # nearly equal: no cause is known that is so small
    if shared is not None:
        where = "every leaf" if len(parted) == len(pair.expected) else names_of([names[leaf] for leaf in parted])
        return f"gradient scaled: {shared:.6g} times on the port, of {where}: scaled on the way back, not in the loss"
    shown = names_of([names[leaf] for leaf in parted])
    return (
        f"gradient: part of it is missing or added on one of the ways back to {shown} (stopped, clipped or rewritten)"
    )


def mode_cause(
    pairing: Pairing, first: PortTrainer, second: PortTrainer, values: Mapping[str, NDArray[np.float64]], step: int
) -> str:
    """Return that the loss of one alone follows running statistics: it is taken in evaluation mode.

    Args:
        pairing: Of the models.
        first: The trainer.
        second: Its port.
        values: Of the first model's leaves.
        step: Of the batch.
    """
    statistics = pairing.subjects.first.statistics
    if not statistics:
        return ""
    moved = {leaf: v + 0.5 if leaf in statistics else v for leaf, v in values.items()}
    follows = []
    for trainer, held, other in ((first, values, moved), (second, pairing.over(values), pairing.over(moved))):
        losses = [trainer.probe.loss(one, trainer.batch(step)).loss for one in (held, other)]
        follows.append(losses[0] != losses[1])
    if follows[0] == follows[1]:
        return ""
    return (
        f"mode: {'the port' if follows[1] else 'the trainer'} takes the loss in evaluation mode (batch norm), with "
        f"running statistics"
    )

"""Smoothings of labels that leave out a class, such as that of padding, or count places that the loss leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["smoothed_ways"]

CLOSE = 1e-9
"""Relative distance within which a smoothing makes a loss."""

FINEST = 1e-6
"""How far a share may be from a whole number of thousandths, in thousandths: it was written in few digits."""

_Reduction = Callable[[NDArray[np.float64]], float]


def smoothed_ways(
    logs: NDArray[np.float64], each: NDArray[np.float64], reduce: _Reduction, labels: NDArray[np.int64],
    weight: NDArray[np.float64], loss: float,
) -> Iterator[tuple[str, float]]:  # fmt: skip
    """Yield smoothings that make a loss, in words, with its value.

    Args:
        logs: Logarithms of the probabilities, float64[places, classes].
        each: Cross entropy of each place.
        reduce: Takes what each place has to one number.
        labels: Of each place.
        weight: 1 for places that count, 0 for others.
        loss: The value.
    """
    classes, plain, one = logs.shape[-1], reduce(each), reduce(np.ones(len(each)))
    total, found = -logs.sum(-1), list[tuple[str, float]]()
    for left in (0, 1) if classes > 3 else ():
        if (labels[weight > 0] == left).any():
            continue  # a class that is a label of places that count is none of padding
        rest, words = total + logs[:, left], f"over the other classes but {left}"
        found += _shared(plain, reduce(rest / (classes - 1)), f"over all classes but {left}", loss)
        flat = reduce((rest - each) / (classes - 2))
        found += _shared(plain, flat, words, loss)
        found += _less_entropy(plain, flat, classes - 2, one, words, loss)
    flat = reduce((total - each) / (classes - 1)) if classes > 1 else plain
    found += _less_entropy(plain, flat, classes - 1, one, "over the other classes", loss)
    # two shares may be one loss, spread over other classes: it was written as that of fewer digits
    yield from ((words, value) for words, value in sorted(found, key=lambda way: len(way[0].split()[3])))
    if (weight == 0).any() and weight.any():
        even = total / classes
        # one that is masked after the mean over classes is one of the places that count
        for words, flat in (("all places", float(even.mean())), ("all places, over the number that count",
                                                                float(even.sum() / weight.sum()))):  # fmt: skip
            yield from _shared(plain, flat, f"that counts {words}, those left out too", loss)


def _shared(plain: float, flat: float, words: str, loss: float) -> Iterator[tuple[str, float]]:
    """Yield a share of the smoothing that makes a loss, where it is a number of few digits."""
    if flat == plain or not np.isfinite([plain, flat]).all():
        return
    share = (loss - plain) / (flat - plain)
    if 0.0 < share < 1.0 and abs(share * 1000 - round(share * 1000)) < FINEST:
        yield f"with label smoothing {share:.3g} {words}", loss


def _less_entropy(
    plain: float, flat: float, count: int, places: float, words: str, loss: float
) -> Iterator[tuple[str, float]]:  # fmt: skip
    """Yield the same for a divergence: it is the cross entropy less what the smoothed labels have themselves."""
    if count < 1 or not np.isfinite([plain, flat, places]).all():
        return
    share = np.arange(1, 1000) / 1000.0
    own = (1 - share) * np.log(1 - share) + share * np.log(share / count)
    made = (1 - share) * plain + share * flat + places * own
    for at in np.flatnonzero(np.abs(made - loss) <= CLOSE * abs(loss)):
        yield f"with label smoothing {share[at]:.3g} {words}, less the entropy of the labels", loss

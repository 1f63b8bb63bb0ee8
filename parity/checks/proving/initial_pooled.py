"""Spreads of all drawn leaves together, and of further draws: what no leaf and no one draw shows by itself.

A normal distribution cut off at two of its standard deviations has 0.88 times the spread: of a few hundred numbers
that is within what draws leave open, of all leaves it is not. Models are built again only where one draw is doubtful.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.initial_singles import StartDraws

__all__ = ["percent", "spread_error", "unlike_pooled"]

Samples: TypeAlias = Mapping[str, NDArray[np.float64]]

SUSPECT = 1.5
"""Standard errors of one draw from which further ones are asked for."""

MORE = 8
"""Further draws."""

SECONDS = 8.0
"""After which no further one is asked for: what takes long to be built is large, and one draw of it tells enough."""

FEWEST = 8
"""Elements of a leaf below which its spread is not looked at."""

ALIKE = 64
"""Numbers at the beginning of two leaves by which they are known as one draw."""


def unlike_pooled(
    draws: StartDraws, again: Callable[[], StartDraws | None], told: set[str], sigmas: float
) -> list[tuple[str, str]]:
    """Return that all drawn leaves together have another spread, with words, under the first of them; or nothing.

    Args:
        draws: As both models were built.
        again: Builds both once more; None where that cannot be done.
        told: Leaves of which something was found already.
        sigmas: Standard errors beyond which a spread is another.

    Numerics: the mean of the logarithms of the ratios of spreads, each weighed by one over its variance.
    """
    leaves = [leaf for leaf in draws[0] if leaf not in told and _drawn(draws[0][leaf]) and _drawn(draws[1][leaf])]
    leaves = _independent(draws, leaves)
    if len(leaves) < 2:
        return []
    log, error = _ratio(draws, leaves)
    if abs(log) <= SUSPECT * error:
        return []
    held: tuple[list[Samples], list[Samples]] = ([draws[0]], [draws[1]])
    end = time.monotonic() + SECONDS
    for _ in range(MORE):
        if time.monotonic() > end or (more := again()) is None:
            break
        for side, one in zip(held, more, strict=True):
            # a model that is built of a number of its own has one draw, however often it is built
            if not any(np.array_equal(one[leaf], other[leaf]) for leaf in leaves for other in side):
                side.append(one)
    every = tuple({leaf: np.concatenate([one[leaf].ravel() for one in side]) for leaf in leaves} for side in held)
    log, error = _ratio((every[0], every[1]), leaves)
    if abs(log) <= sigmas * error:
        return []
    said = (
        f"as {len(leaves)} leaves together, of {len(held[0])} and {len(held[1])} draws: spreads are "
        f"{math.exp(log):.4g} times as large there, where draws explain {percent(error)}"
    )
    return [(leaves[0], said)]


def _drawn(value: NDArray[np.float64]) -> bool:
    return value.size >= FEWEST and bool(np.isfinite(value).all() and np.ptp(value))


def _independent(draws: StartDraws, leaves: Sequence[str]) -> list[str]:
    """Return leaves that are no draws of others: numbers of a generator that begins anew are the same evidence."""
    near = np.zeros((len(leaves), len(leaves)), bool)
    for side in draws:
        begin = np.stack([side[leaf].ravel()[:FEWEST] for leaf in leaves]) if leaves else np.zeros((0, FEWEST))
        begin = begin - begin.mean(1, keepdims=True)
        begin = begin / np.maximum(np.linalg.norm(begin, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        near |= np.abs(begin @ begin.T) > 0.99
    kept: list[int] = []
    for at, leaf in enumerate(leaves):  # few are near, and all numbers of two are compared for these alone
        others = [leaves[other] for other in kept if near[at, other]]
        if not any(_one_draw(side[leaf], side[other]) for other in others for side in draws):
            kept.append(at)
    return [leaves[at] for at in kept]


def _one_draw(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    count = min(first.size, second.size, ALIKE)
    a, b = first.ravel()[:count], second.ravel()[:count]
    if not (np.ptp(a) and np.ptp(b)):
        return False
    return bool(abs(np.corrcoef(a, b)[0, 1]) > 0.99)


def _ratio(draws: tuple[Samples, Samples], leaves: Sequence[str]) -> tuple[float, float]:
    """Return the logarithm of the ratio of spreads over all leaves, and its standard error."""
    logs = np.array([math.log(draws[1][leaf].std() / draws[0][leaf].std()) for leaf in leaves])
    weights = np.array([spread_error(draws[0][leaf].ravel(), draws[1][leaf].ravel()) ** -2 for leaf in leaves])
    return float((weights * logs).sum() / weights.sum()), float(weights.sum() ** -0.5)


def spread_error(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the standard error of the logarithm of the ratio of the spreads of two samples, float64[n] each."""
    return math.sqrt(sum(max(_kurtosis(x) - 1.0, 0.5) / (4 * x.size) for x in (a, b)))


def percent(share: float) -> str:
    """Return a share in percent as it is read aloud, to one digit where it is below one percent.

    Example:
        >>> percent(0.104), percent(0.0032)
        ('10 percent', '0.3 percent')
    """
    return f"{100 * share:.0f} percent" if share >= 0.0095 else f"{100 * share:.1g} percent"


def _kurtosis(x: NDArray[np.float64]) -> float:
    centred = x - x.mean()
    return float((centred**4).mean() / (centred**2).mean() ** 2)

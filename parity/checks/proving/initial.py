"""The initial values of a trainer and its port: constants, spreads and distributions, leaf by leaf.

The draws of two frameworks differ, so that single values say nothing. What all draws of a distribution have in common
does: whether there is one at all, its mean and its spread within what so many draws leave open, its form, and what
`initial_structure` knows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.initial_structure import equal_leaves, tail_unlike, unlike_structure
from parity.checks.proving.losses import Pairing

__all__ = ["UnlikeStart", "compare_starts"]

SIGMAS = 7.0
"""Standard errors beyond which a mean or a spread is another: by chance once in 4e11 of leaves."""

CHANCE = 1e-11
"""Chance of a difference of two distributions by draws alone, below which they are two (Kolmogorov and Smirnov)."""

FEWEST = 8
"""Elements of a leaf below which no spread is compared."""


@dataclass(frozen=True)
class UnlikeStart:
    """A leaf of the second model that begins otherwise than its counterpart."""

    leaf: str
    said: str


def compare_starts(pairing: Pairing) -> tuple[list[UnlikeStart], int]:
    """Return the leaves whose own initial values are not of one distribution, and how many were compared.

    Args:
        pairing: Of the models, as they were built.

    Numerics: means and standard deviations against 7 standard errors, which are estimated from both samples, the
    fourth moment included; constants must be equal to 1e-6.
    """
    expected = pairing.over(pairing.subjects.first.leaves)
    found = []
    for leaf, here in expected.items():
        there = pairing.subjects.second.leaves[leaf]
        said = _unlike(here.ravel(), there.ravel()) or unlike_structure(here, there)
        if said:
            found.append(UnlikeStart(leaf, said))
    told = {one.leaf for one in found}
    own = {leaf: pairing.subjects.second.leaves[leaf] for leaf in expected}
    found += [UnlikeStart(leaf, said) for leaf, said in equal_leaves(expected, own) if leaf not in told]
    return found, len(expected)


def _unlike(a: NDArray[np.float64], b: NDArray[np.float64]) -> str:
    constant = [bool(x.size == 0 or (x == x[0]).all()) for x in (a, b)]
    if a.size <= 1 or all(constant):
        if a.size and abs(a[0] - b[0]) > 1e-6 * max(abs(a[0]), abs(b[0])) and all(constant) and a.size > 1:
            return f"{a[0]:.6g} everywhere here, {b[0]:.6g} there"
        return ""
    if any(constant):
        at = constant.index(True)
        words = ("here", "there") if at == 0 else ("there", "here")
        x = (a, b)[at]
        return f"{x[0]:.6g} everywhere {words[0]}, drawn with a spread of {(b, a)[at].std():.4g} {words[1]}"
    if a.size < FEWEST:
        return ""
    n = a.size
    spread = math.hypot(a.std(), b.std()) / math.sqrt(n)
    if abs(a.mean() - b.mean()) > SIGMAS * spread:
        return f"mean {a.mean():.4g} here, {b.mean():.4g} there, where draws explain {spread:.1g}"
    error = math.sqrt(sum(max(_kurtosis(x) - 1.0, 0.5) / (4 * n) for x in (a, b)))
    if abs(math.log(a.std() / b.std())) > SIGMAS * error:
        return f"spread {a.std():.4g} here, {b.std():.4g} there, where draws explain {100 * error:.1g} percent"
    gap = _largest_gap(a / a.std(), b / b.std())
    if gap > math.sqrt(-math.log(CHANCE / 2) / 2) * math.sqrt(2.0 / n):
        return (
            f"another distribution of one spread: largest values {np.abs(a).max():.4g} here, "
            f"{np.abs(b).max():.4g} there"
        )
    return tail_unlike(a, b, CHANCE)


def _kurtosis(x: NDArray[np.float64]) -> float:
    centred = x - x.mean()
    return float((centred**4).mean() / (centred**2).mean() ** 2)


def _largest_gap(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the largest distance of two empirical distributions."""
    every = np.sort(np.concatenate([a, b]))
    shares = [np.searchsorted(np.sort(x), every, side="right") / len(x) for x in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())

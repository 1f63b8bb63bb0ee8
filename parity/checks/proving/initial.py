"""The initial values of a trainer and its port: constants, spreads and distributions, leaf by leaf.

The draws of two frameworks differ, so that single values say nothing. What all draws of a distribution have in common
does: whether there is one at all, its mean and its spread within what so many draws leave open, its form, and what
`initial_structure` knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.initial_pooled import percent, spread_error, unlike_pooled
from parity.checks.proving.initial_singles import StartDraws, unlike_singles
from parity.checks.proving.initial_structure import equal_leaves, tail_unlike, unlike_structure
from parity.checks.proving.losses import Pairing

__all__ = ["UnlikeStart", "compare_starts"]

SIGMAS = 7.0
"""Standard errors beyond which a mean or a spread is another: by chance once in 4e11 of leaves."""

CHANCE = 1e-11
"""Chance of a difference of two distributions by draws alone, below which they are two (Kolmogorov and Smirnov)."""

FEWEST = 8
"""Elements of a leaf below which no spread is compared."""

FEWEST_POOLED = 64
"""The same of one among several of its shape: their standard errors are added, and have to be known better."""


@dataclass(frozen=True)
class UnlikeStart:
    """A leaf of the second model that begins otherwise than its counterpart."""

    leaf: str
    said: str


def compare_starts(
    pairing: Pairing, again: Callable[[], StartDraws | None] = lambda: None
) -> tuple[list[UnlikeStart], int]:
    """Return the leaves whose own initial values are not of one distribution, and how many were compared.

    Args:
        pairing: Of the models, as they were built.
        again: Builds both models once more, where one draw is not enough; None where that cannot be done.

    Numerics: means and standard deviations against 7 standard errors, which are estimated from both samples, the
    fourth moment included; spreads of all leaves of one shape together too, and of all leaves of several draws where
    one of each is doubtful; constants must be equal to 1e-6.
    """
    expected = pairing.over(pairing.subjects.first.leaves)
    found = []
    for leaf, here in expected.items():
        there = pairing.subjects.second.leaves[leaf]
        said = _unlike(here.ravel(), there.ravel()) or unlike_structure(here, there)
        if said:
            found.append(UnlikeStart(leaf, said))
    told = {one.leaf for one in found}
    pooled = _of_one_shape(expected, pairing.subjects.second.leaves, told)
    found += pooled
    told |= {one.leaf for one in pooled}
    own = {leaf: pairing.subjects.second.leaves[leaf] for leaf in expected}
    found += [UnlikeStart(leaf, said) for leaf, said in equal_leaves(expected, own) if leaf not in told]
    found += [UnlikeStart(leaf, said) for leaf, said in unlike_singles((expected, own), again)]
    if not found:
        found += [UnlikeStart(leaf, said) for leaf, said in unlike_pooled((expected, own), again, told, SIGMAS)]
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
    error = spread_error(a, b)
    if abs(math.log(a.std() / b.std())) > SIGMAS * error:
        return f"spread {a.std():.4g} here, {b.std():.4g} there, where draws explain {percent(error)}"
    gap = _largest_gap(a / a.std(), b / b.std())
    if gap > math.sqrt(-math.log(CHANCE / 2) / 2) * math.sqrt(2.0 / n):
        return (
            f"another distribution of one spread: largest values {np.abs(a).max():.4g} here, "
            f"{np.abs(b).max():.4g} there"
        )
    return tail_unlike(a, b, CHANCE)


def _of_one_shape(
    expected: Mapping[str, NDArray[np.float64]], own: Mapping[str, NDArray[np.float64]], told: set[str]
) -> list[UnlikeStart]:
    """Return leaves of one shape whose spreads together are of another distribution, as of layers that are alike.

    No leaf by itself may show what several do: of as many draws in all. Shapes alone choose what belongs together.
    """
    groups: dict[tuple[int, ...], list[str]] = {}
    for leaf, a in expected.items():
        b = own[leaf]
        if leaf not in told and a.size >= FEWEST_POOLED and a.shape == b.shape and np.ptp(a) and np.ptp(b):
            groups.setdefault(a.shape, []).append(leaf)
    found = []
    for shape, leaves in groups.items():
        drawn = [[one[leaf].ravel() / one[leaf].std() for leaf in leaves] for one in (expected, own)]
        if len(leaves) < 2 or any(len(np.unique(np.stack(side), axis=0)) < len(leaves) for side in drawn):
            continue  # draws that are the same ones are no further evidence
        logs = [math.log(own[leaf].std() / expected[leaf].std()) for leaf in leaves]
        errors = [spread_error(expected[leaf].ravel(), own[leaf].ravel()) for leaf in leaves]
        if abs(sum(log / error for log, error in zip(logs, errors, strict=True))) > SIGMAS * math.sqrt(len(leaves)):
            share, bound = math.exp(np.mean(logs)), math.hypot(*errors) / len(leaves)
            said = (
                f"as {len(leaves)} leaves of its shape {list(shape)}: spreads are {share:.4g} times as large there, "
                f"where draws explain {percent(bound)}"
            )
            found.append(UnlikeStart(leaves[0], said))
    return found


def _largest_gap(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the largest distance of two empirical distributions."""
    every = np.sort(np.concatenate([a, b]))
    shares = [np.searchsorted(np.sort(x), every, side="right") / len(x) for x in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())

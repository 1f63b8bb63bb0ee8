"""Likely causes of a parting at a norm, told by what both made of the same values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.checks.models.fitting import Float64s, fits, least_difference, tolerance

__all__ = ["norm_cause", "norm_way_cause"]

_EPSILONS = (0.0, 2.0**-52, 1e-12, 1e-8, 1e-7, 2.0**-23, 1e-6, 1e-5, 1e-4, 1e-3)
"""Those that libraries have as defaults, with the spacings of float64 and float32."""


def norm_cause(first: Float64s, second: Float64s, given: Float64s) -> str:
    """Return how two norms of one input differ, told by their outputs; empty where that is not known.

    Args:
        first: Output of one, of the last axis normalized.
        second: Output of the other.
        given: What both normalized.
    """
    if first.shape != given.shape or given.ndim < 2 or given.shape[-1] < 3:
        return ""
    n = given.shape[-1]
    lead = tuple(range(given.ndim - 1))
    here, there = (one - one.mean(lead, keepdims=True) for one in (first, second))  # without the bias of the norm
    for factor in (math.sqrt((n - 1) / n), math.sqrt(n / (n - 1))):
        if np.abs(there - factor * here).max(initial=0.0) <= 1e-3 * abs(1.0 - factor) * np.abs(here).max(initial=0.0):
            return "variance: biased in one, unbiased in the other"
    rms = given / np.sqrt((given**2).mean(-1, keepdims=True))
    difference = second - first
    for sign, where in ((1.0, "there"), (-1.0, "here")):
        if np.allclose(difference, sign * rms, rtol=1e-3, atol=1e-6 * float(np.abs(rms).max())):
            return f"RMSNorm: the scale is one plus the parameter {where}"
    return ""


@dataclass(frozen=True)
class _NormWay:
    """One way to normalize the last axis, or it and another one."""

    centred: bool
    """Whether the mean is taken off, as in a LayerNorm; an RMSNorm keeps it."""
    epsilon: float
    inside: bool
    """Whether epsilon is added to the variance, or to its root."""
    scaled: bool = False
    """Whether what is normalized was scaled first: its mean of squares is of what was scaled."""
    with_axis: int | None = None
    """A further axis over which it is normalized, such as that of the heads."""


def norm_way_cause(first: Float64s, second: Float64s, given: Float64s, leaves: Sequence[Float64s]) -> str:
    """Return how two norms without known settings differ, each made again; empty where that is not known.

    Args:
        first: Output of one, float64[..., n].
        second: Output of the other.
        given: What both normalized, of the same shape.
        leaves: What the norm holds itself: a scale of [n], and perhaps a bias.
    """
    own = [leaf for leaf in leaves if leaf.shape == given.shape[-1:]]
    if first.shape != given.shape or given.ndim < 2 or not 1 <= len(own) <= 2:
        return ""
    limit = tolerance(first, second)
    here: list[_NormWay] = []
    there: list[_NormWay] = []
    for scale, bias in [(own[0], 0.0 * own[0])] if len(own) == 1 else [(own[0], own[1]), (own[1], own[0])]:
        ways = [(way, normal * scale + bias) for way, normal in _normalized(given)]
        ways += [(replace(way, scaled=True), normal + bias) for way, normal in _normalized(given * scale)]
        for way, made in ways:
            for side, got in ((here, first), (there, second)):
                if fits(made, got, limit):
                    side.append(way)
    phrase, _ = least_difference(here, there, _norm_differences)
    return f"norm: {phrase}" if phrase else ""


def _normalized(given: Float64s) -> Iterator[tuple[_NormWay, Float64s]]:
    more = [axis for axis in range(1, given.ndim - 1) if given.shape[axis] > 1]  # samples are never taken together
    for axis, centred, epsilon, inside in itertools.product((None, *more), (True, False), _EPSILONS, (True, False)):
        if not (epsilon == 0.0 and not inside):  # the same as inside
            over = (-1,) if axis is None else (axis, -1)
            x = given - given.mean(over, keepdims=True) if centred else given
            square = (x * x).mean(over, keepdims=True)
            with np.errstate(all="ignore"):
                yield (
                    _NormWay(centred, epsilon, inside, with_axis=axis),
                    x / (np.sqrt(square + epsilon) if inside else np.sqrt(square) + epsilon),
                )


def _norm_differences(a: _NormWay, b: _NormWay) -> list[str]:
    """Return what differs in two ways, as phrases."""
    found = []
    if a.centred != b.centred:
        side, other = ("here", "there") if a.centred else ("there", "here")
        found.append(f"the mean is taken off {side}, not {other}")
    if a.epsilon != b.epsilon:
        found.append(f"epsilon {a.epsilon:g} here, {b.epsilon:g} there")
    if a.inside != b.inside:
        where = {True: "inside the root", False: "outside"}
        found.append(f"epsilon {where[a.inside]} here, {where[b.inside]} there")
    if a.with_axis != b.with_axis:
        here, there = (
            "the last axis alone" if one is None else f"axis {one} and the last one"
            for one in (a.with_axis, b.with_axis)
        )
        found.append(f"over {here} here, over {there} there")
    if a.scaled != b.scaled:
        order = {True: "before", False: "after"}
        found.append(f"scaled {order[a.scaled]} it is normalized here, {order[b.scaled]} there")
    return found

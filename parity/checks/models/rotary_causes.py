"""The likely cause of inputs that part by a rotary alone: it stands before a module in one model, not in the other.

No base and no scale of places is asked for: a rotary turns pairs of numbers, each by an angle of its place and pair,
the same in every sample and head.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from parity.checks.models.fitting import Float64s

__all__ = ["rotary_cause"]

Pairs: TypeAlias = NDArray[np.complex128]

CLOSE = 1e-9
"""Largest distance of a turn from one that is equal in all samples and heads: numbers are divided by each other."""

LEAST = 1e-6
"""Size of a pair, relative to the largest, below which its angle is not read."""


def rotary_cause(paths: tuple[str, str], first: Float64s, second: Float64s) -> str:
    """Return that what goes into a module is turned by its place in one of two models.

    Args:
        paths: Of the module in each.
        first: What goes into it in one, float64[batch, ., ., width of a head].
        second: What goes into it in the other.
    """
    if first.shape != second.shape or first.ndim != 4 or first.shape[-1] % 2 or first.shape[-1] < 4:
        return ""
    for way, (one, two) in {"halves": _halves(first, second), "neighbours": _neighbours(first, second)}.items():
        for axis in (1, 2):
            if (turns := _turns(one, two, axis)) is None:
                continue
            if np.abs(turns[0] - 1.0).max() <= CLOSE:  # the first place is not turned, whichever is the turned one
                side, path, other = _side(turns, paths)
                return (
                    f"order: rotary (pairs of {way}) before {path} {side}, not {other}: what goes into it {side} is "
                    f"that {other}, turned forwards by its place"
                )
    return ""


def _side(turns: Pairs, paths: tuple[str, str]) -> tuple[str, str, str]:
    """Return where the rotary is, by the direction in which rotaries turn; either may be the other turned back."""
    forwards = float(np.angle(turns[1]).sum()) >= 0.0
    return ("there", paths[1], "here") if forwards else ("here", paths[0], "there")


def _halves(*values: Float64s) -> list[Pairs]:
    half = values[0].shape[-1] // 2
    return [one[..., :half] + 1j * one[..., half:] for one in values]


def _neighbours(*values: Float64s) -> list[Pairs]:
    return [one[..., ::2] + 1j * one[..., 1::2] for one in values]


def _turns(one: Pairs, two: Pairs, axis: int) -> Pairs | None:
    """Return by what pairs are turned, [places, pairs]; None where that differs in samples or heads.

    Args:
        one: Pairs, complex[batch, ., ., pairs].
        two: The same, turned.
        axis: Of the places.
    """
    a, b = (np.moveaxis(z, axis, 0).reshape(z.shape[axis], -1, z.shape[-1]) for z in (one, two))
    if a.shape[0] < 2 or a.shape[1] < 2 or np.abs(a).min() <= LEAST * np.abs(a).max():
        return None
    turns = b / a
    mean = turns.mean(1)
    even = np.abs(turns - mean[:, None]).max() <= CLOSE and np.abs(np.abs(mean) - 1.0).max() <= CLOSE
    return mean if even and np.abs(mean - 1.0).max() > 1e-3 else None

"""Likely causes of a parting at a pooling: over all places, or by windows.

Both models' values are made again from what agrees before them by each of the ways below; see `fitting.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from parity.checks.models.fitting import Float64s, fits, least_difference, tolerance
from parity.checks.models.flow_causes import BETWEEN, LARGEST, Terms, distinct_terms
from parity.checks.programs import ACTIVATIONS

__all__ = ["pooling_cause", "window_cause"]

_POOLS: Mapping[str, Callable[[Float64s, tuple[int, ...]], Float64s]] = {
    "mean": lambda x, axes: x.mean(axes),
    "max": lambda x, axes: x.max(axes),
    "sum": lambda x, axes: x.sum(axes),
    "first": lambda x, axes: x.reshape(x.shape[0], -1, x.shape[-1])[:, 0],
    "last": lambda x, axes: x.reshape(x.shape[0], -1, x.shape[-1])[:, -1],
}


def pooling_cause(terms: Terms, first: Float64s, second: Float64s) -> str:
    """Return how each model pools the same values over all places; empty where that is not known.

    Args:
        terms: What agrees in both before it, [batch, places..., channels].
        first: What one model made of it, [batch, channels].
        second: What the other made of it.
    """
    limit = tolerance(first, second)
    for (name, values), between in itertools.product(distinct_terms(terms), BETWEEN):
        if first.ndim != 2 or values.ndim < 3 or (values.shape[0], values.shape[-1]) != first.shape:
            continue
        axes = tuple(range(1, values.ndim - 1))
        made = {word: pool(ACTIVATIONS[between](values), axes) for word, pool in _POOLS.items()}
        here, there = ([word for word, one in made.items() if fits(one, got, limit)] for got in (first, second))
        if len(here) == len(there) == 1 and here != there:
            return f"pooling: of {name} the {here[0]} here, the {there[0]} there"
    return ""


@dataclass(frozen=True)
class _Windows:
    """One way to pool an image by windows."""

    kind: str
    size: int
    stride: int
    padding: tuple[int, int]
    """Before and after, on both axes."""
    laid: str
    """The order of the axes of the result."""


def window_cause(terms: Terms, first: Float64s, second: Float64s) -> str:
    """Return how each model pools the same image by windows; empty where that is not known.

    Args:
        terms: What agrees in both before it, [batch, height, width, channels].
        first: What one model made of it: an image, or one that is flattened, [batch, elements].
        second: What the other made of it, of the same shape.
    """
    limit = tolerance(first, second)
    for (name, values), between in itertools.product(distinct_terms(terms), BETWEEN):
        if first.ndim not in (2, 4) or values.ndim != 4 or values.shape[0] != first.shape[0]:
            continue
        if values.size > LARGEST:
            continue
        here: list[_Windows] = []
        there: list[_Windows] = []
        for way, made in _pooled(ACTIVATIONS[between](values), first.shape):
            for side, got in ((here, first), (there, second)):
                if fits(made, got, limit):
                    side.append(way)
        phrase, _ = least_difference(here, there, _differences)
        if phrase:
            return f"pooling: of {name} {phrase}"
    return ""


def _pooled(image: Float64s, shape: tuple[int, ...]) -> Iterator[tuple[_Windows, Float64s]]:
    """Yield every way whose result has the shape, with what it makes."""
    paddings = ((0, 0), (1, 1), (0, 1))
    for size, stride, padding in itertools.product((2, 3), (1, 2, 3), paddings):
        places = [(extent + sum(padding) - size) // stride + 1 for extent in image.shape[1:3]]
        if min(places) < 1 or image.shape[0] * places[0] * places[1] * image.shape[3] != np.prod(shape):
            continue
        windows = _windows(image, size, stride, padding, np.nan)
        counted = np.isfinite(windows).sum((-2, -1))
        sums = np.nansum(windows, axis=(-2, -1))
        kinds = {
            "max": np.where(counted > 0, np.nanmax(np.where(np.isnan(windows), -np.inf, windows), (-2, -1)), np.nan),
            "mean with the padding counted": sums / size**2,
            "mean without the padding": sums / np.maximum(counted, 1),
        }
        for kind, made in kinds.items():
            for laid, order in (("channels last", (0, 1, 2, 3)), ("channels first", (0, 3, 1, 2))):
                if len(shape) == 4 and laid == "channels first":
                    continue
                if kind.endswith("without the padding") and padding == (0, 0):
                    continue  # the same as with it
                result = made.transpose(order).reshape(shape if len(shape) == 2 else made.shape)
                yield _Windows(kind, size, stride, padding, laid), result


def _windows(image: Float64s, size: int, stride: int, padding: tuple[int, int], fill: float) -> Float64s:
    """Return the windows of an image, [batch, places, places, channels, size, size]."""
    padded = np.pad(image, ((0, 0), padding, padding, (0, 0)), constant_values=fill)
    return sliding_window_view(padded, (size, size), axis=(1, 2))[:, ::stride, ::stride]


def _differences(a: _Windows, b: _Windows) -> list[str]:
    """Return what differs in two ways, as phrases."""
    found = []
    if a.kind != b.kind:
        found.append(f"the {a.kind} here, the {b.kind} there")
    if a.size != b.size:
        found.append(f"windows of {a.size} here, {b.size} there")
    if a.stride != b.stride:
        found.append(f"a stride of {a.stride} here, {b.stride} there")
    if a.padding != b.padding:
        found.append(f"padding {a.padding} here, {b.padding} there")
    if a.laid != b.laid:
        found.append(f"flattened with {a.laid} here, {b.laid} there")
    return found

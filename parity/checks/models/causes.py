"""Likely causes of a parting: settings that differ, and activations that fit what both models made of one input.

What is said here is likely, and is labelled so: it explains a verdict and never makes one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from parity.checks.models.fitting import fits, least_difference, tolerance
from parity.checks.programs import ACTIVATIONS

__all__ = ["activation_cause", "gate_cause", "setting_cause", "weight_cause"]

_SAME = (
    ("eps", "epsilon"),
    ("p", "rate"),
    ("stride", "strides"),
    ("dilation", "kernel_dilation"),
    ("padding", "padding"),
    ("kernel_size", "kernel_size"),
    ("num_groups", "num_groups"),
    ("approximate", "approximate"),
    ("negative_slope", "negative_slope"),
    ("momentum", "momentum"),
    ("groups", "feature_group_count"),
    ("num_heads", "num_heads"),
    ("affine", "use_bias"),
)
"""A setting of PyTorch, and what Flax calls it."""


def setting_cause(kinds: tuple[str, str], first: Mapping[str, object], second: Mapping[str, object]) -> str:
    """Return the settings of two modules that differ, as a phrase; empty where none is known to.

    Args:
        kinds: Names of their classes.
        first: Settings of one.
        second: Of the other; each may be in the words of either framework.

    Example:
        >>> setting_cause(("LayerNorm", "LayerNorm"), {"eps": 1e-5}, {"epsilon": 1e-6})
        'LayerNorm: eps 1e-05 here, epsilon 1e-06 there'
        >>> here, there = {"num_groups": 4, "num_channels": 8}, {"num_groups": None, "group_size": 4}
        >>> setting_cause(("GroupNorm", "GroupNorm"), here, there)
        'GroupNorm: num_groups 4 here, num_groups 2 there'
        >>> here, there = {"eps": 1e-5, "momentum": 0.1}, {"epsilon": 1e-5, "momentum": 0.9}
        >>> setting_cause(("BatchNorm1d", "BatchNorm"), here, there)
        ''
    """
    found = []
    first, second = _counted(first, second), _counted(second, first)
    for word, other in _SAME:
        here = next((name for name in (word, other) if name in first), None)
        there = next((name for name in (other, word) if name in second), None)
        if here is None or there is None:
            continue
        a, b = first[here], second[there]
        if word == "padding" and _paddings(first) == _paddings(second):
            continue
        if not _equal(word, a, b, {*first}, {*second}):
            found.append(f"{here} {a!r} here, {there} {b!r} there")
    kind = kinds[0] if kinds[0] == kinds[1] else f"{kinds[0]} and {kinds[1]}"
    return f"{kind}: {'; '.join(found)}" if found else ""


def _counted(settings: Mapping[str, object], other: Mapping[str, object]) -> Mapping[str, object]:
    """Return settings with the number of groups where they give the size of one, by the channels of the other."""
    size, channels = settings.get("group_size"), other.get("num_channels")
    if isinstance(size, int) and size and isinstance(channels, int) and channels % size == 0:
        return {**settings, "num_groups": channels // size}
    return settings


def _equal(word: str, a: object, b: object, first: set[str], second: set[str]) -> bool:
    if word == "momentum" and isinstance(a, float) and isinstance(b, float):
        # PyTorch's is the weight of the new value, Flax's that of the old
        same = ("eps" in first) == ("eps" in second)
        return math.isclose(a, b if same else 1.0 - b, rel_tol=1e-12)
    if isinstance(a, str) != isinstance(b, str):
        return False
    return _tuple(a) == _tuple(b)


def _paddings(settings: Mapping[str, object]) -> object:
    """Return the padding before and after each axis, or the setting itself where the size of the input decides it.

    `SAME` is what keeps the size where the stride is 1, the odd one after: a port may say either.
    """
    value, kernel = settings.get("padding"), settings.get("kernel_size")
    axes = len(kernel) if isinstance(kernel, tuple) else 0
    stride, dilation = (
        _tuple(next((settings[name] for name in names if name in settings), 1))
        for names in (("stride", "strides"), ("dilation", "kernel_dilation"))
    )
    if isinstance(value, str) and axes:
        if value.upper() == "VALID":
            return ((0, 0),) * axes
        if value.upper() == "SAME" and stride in (1, None) and isinstance(kernel, tuple):
            spread = dilation if isinstance(dilation, int) else 1 if dilation is None else 0
            if not spread:
                return value
            added = [(size - 1) * spread for size in kernel]
            return tuple((size // 2, size - size // 2) for size in added)
    if isinstance(value, int) and axes:
        return ((value, value),) * axes
    if isinstance(value, (tuple, list)) and len(value) == axes:
        return tuple((one, one) if isinstance(one, int) else tuple(one) for one in value)
    return value


def _tuple(value: object) -> object:
    """Return a setting as PyTorch and Flax may spell it: one number for all axes, or a number for each."""
    if isinstance(value, tuple) and len(set(value)) == 1:
        return value[0]
    return value


def activation_cause(
    befores: Sequence[NDArray[np.float64]], first: NDArray[np.float64], second: NDArray[np.float64]
) -> str:
    """Return the functions that make both models' values of what is before them; empty where none is known to.

    Args:
        befores: What agrees in both, the nearest first.
        first: What one model made of it, of the same shape.
        second: What the other made of it.
    """
    for before in befores:
        if before.shape != first.shape:
            continue
        with np.errstate(all="ignore"):
            made = {name: function(before) for name, function in ACTIVATIONS.items()}
        here, there = (next((n for n, one in made.items() if _close(one, got)), "") for got in (first, second))
        if here and there and here != there:
            return f"activation: {here} here, {there} there"
    return ""


def gate_cause(
    befores: Sequence[NDArray[np.float64]], first: NDArray[np.float64], second: NDArray[np.float64]
) -> str:
    """Return what two gated layers do differently with the same two projections; empty where that is not known.

    Args:
        befores: What agrees in both, the nearest first: one fused projection of twice the width, or two of the width.
        first: What one model made of it, float64[..., width]: an activation of one times the other.
        second: What the other made of it.
    """
    wide = (*first.shape[:-1], 2 * first.shape[-1]) if first.ndim else ()
    if befores and first.ndim and befores[0].shape == wide:
        parts = np.split(befores[0], 2, axis=-1)
    else:
        parts = list(befores[1::-1])
    if len(parts) != 2 or any(part.shape != first.shape for part in parts):
        return ""
    limit = tolerance(first, second)
    made: tuple[list[tuple[str, int]], list[tuple[str, int]]] = ([], [])
    for name, gate in itertools.product(ACTIVATIONS, (0, 1)):
        with np.errstate(all="ignore"):
            value = ACTIVATIONS[name](parts[gate]) * parts[1 - gate]
        for side, got in zip(made, (first, second), strict=True):
            if fits(value, got, limit):
                side.append((name, gate))
    phrase, _ = least_difference(*made, _gate_differences)
    return f"gate: {phrase}" if phrase else ""


def _gate_differences(a: tuple[str, int], b: tuple[str, int]) -> list[str]:
    found = [f"{a[0]} here, {b[0]} there"] if a[0] != b[0] else []
    which = ("first", "second")
    return [*found, f"of the {which[a[1]]} projection here, of the {which[b[1]]} there"] if a[1] != b[1] else found


def weight_cause(
    first: NDArray[np.float64], second: NDArray[np.float64], given: NDArray[np.float64],
    leaves: Sequence[NDArray[np.float64]],
) -> str:  # fmt: skip
    """Return how two layers use the same weights in another way; empty where that is not known.

    Args:
        first: Output of one, [..., out].
        second: Output of the other.
        given: What both were given, [..., in].
        leaves: What the layer holds itself, in the first model's shapes.
    """
    if first.ndim < 2 or first.shape[:-1] != given.shape[:-1]:
        return ""
    limit = tolerance(first, second)
    for bias in (leaf for leaf in leaves if leaf.shape == first.shape[-1:]):
        for sign, side, other in ((1.0, "here", "there"), (-1.0, "there", "here")):
            if fits(np.broadcast_to(sign * bias, first.shape), first - second, limit):
                return f"bias: once more {side} than {other} (missing {other}, or added twice {side})"
    square = (given.shape[-1], first.shape[-1])
    for weight in (leaf for leaf in leaves if leaf.shape == square and square[0] == square[1]):
        for sign in (1.0, -1.0):
            # whatever both add to the product falls out of the difference
            if fits(sign * (given @ weight.T - given @ weight), first - second, limit):
                return "weight: transposed in one, as it is in the other"
    return ""


def _close(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    return bool(np.abs(a - b).max(initial=0.0) <= 1e-12 * max(float(np.abs(b).max(initial=0.0)), 1e-300))

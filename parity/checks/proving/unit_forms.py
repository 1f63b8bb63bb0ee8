"""Forms of a gradient that scale parts of it: whole, leaf by leaf, in groups of leaves, by rows or by columns.

Where a part is clipped, its norm after clipping is the limit: the same for all clipped parts, or the same multiple of
the norm of their parameters (adaptive clipping). Parts below the limit keep one scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.effective import FEWEST
from parity.checks.proving.seen import SeenUpdate
from parity.checks.proving.slots import LeafArrays, names_of

__all__ = ["GradientForm", "centred_forms", "plain_forms", "unit_forms"]

SAME = 1e-7
"""Relative distance of two scales within one part."""

LIMIT = 1e-5
"""The same of two limits: libraries add up to 1e-6 to a norm."""

SMALLEST = 1e-3
"""What adaptive clipping takes a norm of parameters for that is smaller, as zero biases are."""


@dataclass(frozen=True)
class GradientForm:
    """A way to make the gradient that an optimizer is given, but for its scale."""

    kind: str
    title: str
    """What a cause about it begins with; empty for the gradient of the loss as it is."""
    words: str
    make: Callable[[SeenUpdate], LeafArrays]
    size: float = 0.0
    """Its number, of forms of one kind."""

    def same(self, other: GradientForm) -> bool:
        """Return whether two are one form with one number."""
        return self.kind == other.kind and abs(self.size - other.size) <= LIMIT * max(abs(self.size), abs(other.size))


def plain_forms(update: SeenUpdate, seen: LeafArrays) -> list[GradientForm]:
    """Return the gradient of the loss itself, at one scale for all."""
    return [GradientForm("plain", "", "the gradient of the loss as it is", lambda one: one.gradient)]


def centred_forms(update: SeenUpdate, seen: LeafArrays) -> list[GradientForm]:
    """Return gradients less their mean over all axes of a matrix but one."""
    return [
        GradientForm(f"centred {axis}", "gradient centralization", f"matrices of gradients less their mean along "
                     f"axis {axis} of the port's layout", _centred(axis))
        for axis in (0, -1)
    ]  # fmt: skip


def _centred(axis: int) -> Callable[[SeenUpdate], LeafArrays]:
    def make(update: SeenUpdate) -> LeafArrays:
        return {leaf: g - g.mean(_other_axes(g, axis), keepdims=True) if g.ndim > 1 else g
                for leaf, g in update.gradient.items()}  # fmt: skip

    return make


def _other_axes(array: NDArray[np.float64], axis: int) -> tuple[int, ...]:
    """Return the one axis of a matrix; of a kernel all but the last one, or all but the first."""
    return tuple(range(array.ndim - 1)) if axis == 0 else tuple(range(1, array.ndim))


Units = Callable[[str, NDArray[np.float64]], NDArray[np.float64]]


def unit_forms(update: SeenUpdate, seen: LeafArrays) -> list[GradientForm]:
    """Return the clippings by parts of which the first update is made.

    Args:
        update: The first one.
        seen: The gradient that the optimizer was given, but for its scale.
    """
    found = []
    for name, words, axis in (("leaf", "of each leaf", None), ("axis 0", "along axis 0 (the port's layout)", 0),
                              ("axis 1", "along the last axis (the port's layout)", -1)):  # fmt: skip
        for adaptive in (False, True):
            form = _clipped(update, seen, name, words, axis, adaptive=adaptive)
            found += [form] if form is not None else []
    return found or _grouped(update, seen)


def _norms(array: NDArray[np.float64], axis: int | None) -> NDArray[np.float64]:
    axes = _other_axes(array, axis) if axis is not None and array.ndim > 1 else None
    return np.sqrt((array**2).sum(axes, keepdims=True)) if array.ndim else np.abs(array)


def _scales(update: SeenUpdate, seen: LeafArrays, axis: int | None) -> dict[str, NDArray[np.float64]] | None:
    """Return the scale of each part, in a shape that goes with its leaf; None where a part has several."""
    found = {}
    for leaf, g in update.gradient.items():
        axes = _other_axes(g, axis) if axis is not None and g.ndim > 1 else tuple(range(g.ndim))
        square = (g * g).sum(axes, keepdims=True)
        scale = np.where(square > 0.0, (g * seen[leaf]).sum(axes, keepdims=True) / np.where(square > 0.0, square, 1.0),
                         0.0)  # fmt: skip
        if float(np.abs(seen[leaf] - scale * g).max(initial=0.0)) > SAME * float(np.abs(seen[leaf]).max(initial=0.0)):
            return None
        found[leaf] = scale
    return found


def _clipped(update: SeenUpdate, seen: LeafArrays, name: str, words: str, axis: int | None, *,
             adaptive: bool) -> GradientForm | None:  # fmt: skip
    """Return a clipping by the norm of each part, where parts at the limit show it."""
    scales = _scales(update, seen, axis)
    if scales is None or (axis is not None and not any(g.ndim > 1 for g in update.gradient.values())):
        return None
    each: list[tuple[float, float]] = []
    for leaf, g in update.gradient.items():
        base = np.maximum(_norms(update.before[leaf], axis), SMALLEST) if adaptive else np.ones_like(_norms(g, axis))
        sizes = np.asarray(_norms(g, axis) / base).ravel()
        each += [(s, r) for s, r in zip(np.asarray(scales[leaf]).ravel(), sizes, strict=True) if s > 0.0]
    s, r = (np.array(one) for one in zip(*each, strict=True)) if each else (np.zeros(0), np.zeros(0))
    if s.size < FEWEST:
        return None
    top, limit = float(s.max()), float((s * r).max())
    clipped = np.abs(s * r - limit) <= LIMIT * limit
    whole = np.abs(s - top) <= LIMIT * top
    # the scale of what is not clipped is known where something is not, and then all that is must be above the limit
    if not (clipped | whole).all() or int((clipped & (s < top * (1 - LIMIT))).sum()) < 2:
        return None
    free = top if int((whole & ~clipped).sum()) else float("inf")

    def make(one: SeenUpdate) -> LeafArrays:
        made = {}
        for leaf, g in one.gradient.items():
            base = np.maximum(_norms(one.before[leaf], axis), SMALLEST) if adaptive else 1.0
            sizes = _norms(g, axis) / base
            made[leaf] = g * np.minimum(free, limit / np.where(sizes > 0.0, sizes, 1.0))
        return made

    size = limit / free if np.isfinite(free) else 0.0
    shown = f"{size:.6g}" if size else "one number"
    if adaptive:
        return GradientForm(f"adaptive {name}", "adaptive clipping", f"the norm {words} is clipped to {shown} times "
                            "that of the parameters", make, size)  # fmt: skip
    said = "leaf by leaf" if axis is None else f"by the norm {words}"
    return GradientForm(f"clip {name}", "clipping", f"{said}, each to {shown}", make, size)


def _grouped(update: SeenUpdate, seen: LeafArrays) -> list[GradientForm]:
    """Return a clipping of groups of leaves, each by its own norm: leaves of one scale are a group."""
    scales = _scales(update, seen, None)
    if scales is None:
        return []
    groups: list[tuple[float, list[str]]] = []
    for leaf, scale in scales.items():
        value = float(np.asarray(scale).ravel()[0])
        home = next((one for one in groups if abs(one[0] - value) <= LIMIT * abs(one[0])), None)
        (groups.append((value, [leaf])) if home is None else home[1].append(leaf))
    if not 2 <= len(groups) <= 4 or len(groups) == len(scales):
        return []
    sizes = [value * _norm(update.gradient, leaves) for value, leaves in groups]
    limit, top = max(sizes), max(value for value, _ in groups)
    held = [abs(size - limit) <= LIMIT * limit for size in sizes]
    if sum(held) < 2 or not all(at or abs(one[0] - top) <= LIMIT * top for at, one in zip(held, groups, strict=True)):
        return []
    parts = [leaves for _, leaves in groups]

    def make(one: SeenUpdate) -> LeafArrays:
        # the groups that are clipped at the first update; one that is not is below the limit
        return {leaf: one.gradient[leaf] * min(limit / _norm(one.gradient, leaves), np.inf if at else top)
                for leaves, at in zip(parts, held, strict=True) for leaf in leaves}  # fmt: skip

    words = f"by the norms of {len(groups)} groups of leaves, such as {names_of(min(parts, key=len))}"
    return [GradientForm("clip groups", "clipping", words, make)]


def _norm(gradient: Mapping[str, NDArray[np.float64]], leaves: list[str]) -> float:
    return float(np.sqrt(sum(float((gradient[leaf] ** 2).sum()) for leaf in leaves)))

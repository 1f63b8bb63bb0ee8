"""Forms of a gradient that scale parts of it: whole, leaf by leaf, in groups of leaves, by rows or by columns.

Where a part is clipped, its norm after clipping is the limit: the same for all clipped parts, or the same multiple of
the norm of their parameters (adaptive clipping). Parts below the limit keep one scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.effective import FEWEST, one_value
from parity.checks.proving.seen import SeenUpdate
from parity.checks.proving.slots import LeafArrays, names_of

__all__ = ["EPSILON", "GradientForm", "centred_forms", "plain_forms", "unit_forms", "value_forms"]

SAME = 1e-7
"""Relative distance of two scales within one part."""

LIMIT = 1e-5
"""The same of two limits: libraries add up to 1e-6 to a norm."""

EPSILON = 1e-6
"""What `torch.nn.utils.clip_grad_norm_` adds to a norm."""

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
    """Its number, of forms of one kind; 0 where it is not known."""
    limit: float = 0.0
    """What parts are clipped to, in units of what was observed; 0 for forms that clip nothing."""
    freed: Callable[[float], GradientForm] | None = None
    """The same with a scale of what is not clipped, where the first update has nothing of that kind."""

    off: float = 0.0
    """How far the limits of its parts are from one another, relative."""
    turned: bool = False
    """Whether it says of axes, which are those of the port's layout: in the trainer's own they may be turned."""
    decay: float = 0.0
    """Share of the parameters that is added (L2), where it is a part of the form."""
    decayed: frozenset[str] = frozenset()
    """Leaves to which it is added."""
    weights: tuple[float, ...] = ()
    """Of parts of the batch, where it is a sum of their gradients."""
    strided: bool = False
    """Whether these parts are of every so manyth row."""
    added: bool = False
    """Whether a share of the parameters is added to what was clipped, of whatever strength."""

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
                     f"axis {axis} of the port's layout", _centred(axis), turned=True)
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


@dataclass(frozen=True)
class _Units:
    """How leaves are cut into parts that are clipped each by its norm."""

    name: str
    words: str
    axis: int | None
    """Of matrices: the parts lie along all axes but the last (0), or but the first (-1); None for whole leaves."""
    vectors: str
    """`whole`, `each` element by itself, or `left` as they are."""

    def axes(self, array: NDArray[np.float64]) -> tuple[int, ...]:
        """Return the axes of a leaf over which a norm is taken."""
        if array.ndim <= 1:
            return () if self.vectors == "each" else tuple(range(array.ndim))
        return tuple(range(array.ndim)) if self.axis is None else _other_axes(array, self.axis)

    def norms(self, array: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the norm of each part, in a shape that goes with the leaf."""
        return np.sqrt((array**2).sum(self.axes(array), keepdims=True))

    def clips(self, array: NDArray[np.float64]) -> bool:
        """Return whether a leaf is clipped at all."""
        return array.ndim > 1 or self.vectors != "left"


UNITS = tuple(
    _Units(f"{name}{vectors}", f"{words}{more}", axis, vectors)
    for name, words, axis in (("leaf ", "of each leaf", None), ("first ", "along axis 0 (the port's layout)", 0),
                              ("last ", "along the last axis (the port's layout)", -1))
    for vectors, more in (("whole", ""), ("each", ", of vectors of each element"), ("left", ", of matrices alone"))
    if axis is not None or vectors != "each"
)  # fmt: skip
"""Ways to cut leaves into parts, the plainest first."""


def unit_forms(update: SeenUpdate, seen: LeafArrays) -> list[GradientForm]:
    """Return the clippings by parts of which the first update is made.

    Args:
        update: The first one.
        seen: The gradient that the optimizer was given, but for its scale.
    """
    deep = any(g.ndim > 1 for g in update.gradient.values())
    flat = any(g.ndim == 1 for g in update.gradient.values())
    found = []
    for units in UNITS:
        if (units.axis is None or deep) and (units.vectors == "whole" or flat):
            scales, share = _scales(update, seen, units)
            for adaptive in (False, True) if scales is not None else ():
                # what is added to a norm shows in the last digits: of two the one that fits better is first
                form = _clipped(update, scales, units, 0.0, adaptive=adaptive)  # type: ignore[arg-type]
                more = _clipped(update, scales, units, EPSILON, adaptive=adaptive)  # type: ignore[arg-type]
                pair = [replace(one, added=bool(share)) for one in (form, more)
                        if one is not None and not (adaptive and one is more)]  # fmt: skip
                found += sorted(pair, key=lambda one: one.off)[:1]
    return found or _grouped(update, seen)


def _scales(
    update: SeenUpdate, seen: LeafArrays, units: _Units
) -> tuple[dict[str, NDArray[np.float64]] | None, float]:
    """Return the scale of each part, in a shape that goes with its leaf, and the share of the parameters beside it.

    There is none where a part has several scales.

    A share of the parameters of a leaf may be added to it (decay). Parts of one element show none: the share that all
    other leaves have is taken off them.
    """
    shares = {leaf: _share(update, leaf, np.asarray(seen[leaf]), units) for leaf in update.gradient}
    if None in shares.values():
        return None, 0.0
    known = {leaf: share for leaf, share in shares.items()
             if update.gradient[leaf].size > units.norms(update.gradient[leaf]).size + 1}  # fmt: skip
    common = one_value(known, 1e-5) if known and all(known.values()) else 0.0  # type: ignore[arg-type]
    found = {}
    for leaf, g in update.gradient.items():
        share = shares[leaf] if leaf in known else common
        found[leaf] = _scale(np.asarray(seen[leaf]) - (share or 0.0) * update.before[leaf], g, units.axes(g))
    return found, max((abs(share or 0.0) for share in shares.values()), default=0.0)


def _scale(one: NDArray[np.float64], g: NDArray[np.float64], axes: tuple[int, ...]) -> NDArray[np.float64]:
    """Return how much of a gradient is in each part of an array."""
    square = (g * g).sum(axes, keepdims=True)
    made = (g * one).sum(axes, keepdims=True) / np.where(square > 0.0, square, 1.0)
    return np.asarray(np.where(square > 0.0, made, 0.0))


def _share(update: SeenUpdate, leaf: str, o: NDArray[np.float64], units: _Units) -> float | None:
    """Return which share of the parameters is in a leaf beside scaled parts; None where that does not make it."""
    g, p = update.gradient[leaf], update.before[leaf]
    axes = units.axes(g)
    limit = SAME * float(np.abs(o).max(initial=0.0))
    left = o - _scale(o, g, axes) * g
    if float(np.abs(left).max(initial=0.0)) <= limit:
        return 0.0
    other = p - _scale(p, g, axes) * g
    total = float((other * other).sum())
    share = float((left * other).sum()) / total if total and g.size > units.norms(g).size + 1 else 0.0
    return share if float(np.abs(left - share * other).max(initial=0.0)) <= limit else None


def _clipped(
    update: SeenUpdate, scales: LeafArrays, units: _Units, epsilon: float, *, adaptive: bool
) -> GradientForm | None:
    """Return a clipping by the norm of each part, where parts at the limit show it."""
    each: list[tuple[float, float]] = []
    free = set()
    for leaf, g in update.gradient.items():
        if not units.clips(g):
            free |= {float(one) for one in np.asarray(scales[leaf]).ravel()}
            continue
        base = np.maximum(units.norms(update.before[leaf]), SMALLEST) if adaptive else 1.0
        sizes = np.asarray((units.norms(g) + epsilon) / base).ravel()
        each += [(s, r) for s, r in zip(np.asarray(scales[leaf]).ravel(), sizes, strict=True) if s > 0.0]
    s, r = (np.array(one) for one in zip(*each, strict=True)) if each else (np.zeros(0), np.zeros(0))
    if s.size < FEWEST:
        return None
    top, limit = max(float(s.max()), *free, 0.0), float((s * r).max())
    clipped = np.abs(s * r - limit) <= LIMIT * limit
    whole = np.abs(s - top) <= LIMIT * top
    # the scale of what is not clipped is known where something is not, and then all that is must be above the limit
    if not (clipped | whole).all() or int((clipped & (s < top * (1 - LIMIT))).sum()) < 2:
        return None
    if any(abs(one - top) > LIMIT * top for one in free):
        return None
    known = free or int((whole & ~clipped).sum())
    off = float(np.ptp((s * r)[clipped]) / limit)
    return replace(_unit_form(units, limit, top if known else float("inf"), epsilon, adaptive=adaptive), off=off)


def _unit_form(units: _Units, limit: float, free: float, epsilon: float, *, adaptive: bool) -> GradientForm:
    def make(one: SeenUpdate) -> LeafArrays:
        made = {}
        for leaf, g in one.gradient.items():
            base = np.maximum(units.norms(one.before[leaf]), SMALLEST) if adaptive else 1.0
            sizes = (units.norms(g) + epsilon) / base
            most = np.minimum(free, limit / np.where(sizes > 0.0, sizes, 1.0)) if units.clips(g) else free
            made[leaf] = g * most
        return made

    size = limit / free if np.isfinite(free) else 0.0
    freed = None if size else lambda scale: _unit_form(units, limit, scale, epsilon, adaptive=adaptive)
    shown, turned = f"{size:.6g}" if size else "one number", units.axis is not None
    if adaptive and units.axis is None and not size:
        said = ("the gradient of each leaf is scaled to one number times the norm of its parameters (LARS, or a "
                "clipping below whose limit no leaf is)")  # fmt: skip
        return GradientForm(f"adaptive {units.name}", "trust ratio", said, make, size, limit, freed)
    if adaptive:
        said = f"the norm {units.words} is clipped to {shown} times that of the parameters"
        return GradientForm(
            f"adaptive {units.name}", "adaptive clipping", said, make, size, limit, freed, turned=turned
        )
    said = "leaf by leaf" if units.axis is None else f"by the norm {units.words}"
    return GradientForm(
        f"clip {units.name}", "clipping", f"{said}, each to {shown}", make, size, limit, freed, turned
    )


def value_forms(update: SeenUpdate, seen: LeafArrays) -> list[GradientForm]:
    """Return a clipping of every element by itself, where several elements lie at one limit.

    Args:
        update: The first one.
        seen: The gradient that the optimizer was given, but for its scale.
    """
    g, o = (np.concatenate([one[leaf].ravel() for leaf in update.gradient]) for one in (update.gradient, seen))
    good = np.abs(g) > 1e-9 * float(np.abs(g).max())
    scale, top = float((o[good] / g[good]).max()), float(np.abs(o).max())
    flush = int((np.abs(o) >= top * (1 - SAME)).sum())
    if scale <= 0.0 or not 2 <= flush <= o.size - 2:
        return []

    def make(one: SeenUpdate) -> LeafArrays:
        return {leaf: np.clip(scale * held, -top, top) for leaf, held in one.gradient.items()}

    return [GradientForm("value", "clipping", f"every element is clipped by itself (by value) to {top / scale:.6g}",
                         make, top / scale, top)]  # fmt: skip


def _grouped(update: SeenUpdate, seen: LeafArrays) -> list[GradientForm]:
    """Return a clipping of groups of leaves, each by its own norm: leaves of one scale are a group."""
    scales, _ = _scales(update, seen, UNITS[0])
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

"""What one run makes of its parameters after the step: limits, norms, masks, means; told by applying it to the other.

Both runs are at one point before the update at which they part. Where what the port has after it is a projection of
what the trainer has (or the other way round), element by element, that projection is all that parts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.lockstep import AHEAD, MODEL
from parity.checks.proving.slots import LeafArrays, names_of
from parity.checks.proving.walk import TwoWalks, go_on

__all__ = ["projection_cause"]

FIT = 1e-9
"""How far a projected element may be from what it is made to, relative to the largest element of its leaf."""

NORM = 1e-5
"""Relative distance of two norms that are one limit: libraries add up to 1e-6 to a norm."""

Array64 = NDArray[np.float64]


@dataclass(frozen=True)
class _ProjectedLeaf:
    """One leaf that parts: before the update, after it in the run that projects, and in the other."""

    before: Array64
    made: Array64
    other: Array64

    @property
    def close(self) -> float:
        return FIT * float(np.abs(self.made).max(initial=0.0)) + 4e-16 * float(np.abs(self.before).max(initial=0.0))


@dataclass(frozen=True)
class _FoundProjection:
    """A projection that makes the values of a leaf."""

    words: str
    """With a place for the limit."""
    limit: float | None
    count: int
    """Array64 or parts that are at the limit, exactly: one alone is at any limit."""
    apply: Callable[[Array64], Array64]
    sizes: Callable[[Array64], Array64] = np.ravel
    """What is compared with the limit: the elements themselves, or norms."""
    alike: float = 1e-12
    """Relative distance of two sizes that are one."""


def projection_cause(walk: TwoWalks) -> str:
    """Return what one run does to its parameters after the step and the other does not; empty where nothing shows it.

    Args:
        walk: Two trainers whose models part after an update, and are equal before it.
    """
    if walk.what != MODEL or walk.gap is None or walk.done < 1:
        return ""
    statistics = walk.pairing.subjects.second.statistics
    leaves = [leaf for leaf in walk.gap.leaves if leaf not in statistics]
    if not leaves or len(leaves) < len(walk.gap.leaves):
        return ""
    before, *after = _states(walk, walk.done)
    names = ("the trainer", "the port")
    for at in (0, 1):
        here = {
            leaf: _ProjectedLeaf(*(np.asarray(one[leaf]) for one in (before, after[at], after[1 - at])))
            for leaf in leaves
        }
        if any(one.made.shape != one.other.shape for one in here.values()):
            return ""
        for kind in KINDS:
            found = {leaf: kind(one) for leaf, one in here.items()}
            if None in found.values():
                continue
            known = {leaf: one for leaf, one in found.items() if one is not None}
            if not _told(walk, at, known):
                continue
            return f"projection: {_said(walk, at, known)} by {names[at]} after the step, {_else(walk, at, known)}"
    return ""


def _states(walk: TwoWalks, done: int) -> list[LeafArrays]:
    over, (one, two) = walk.pairing.over, walk.lanes[:2]
    return [over(one.moments[done - 1].slots[MODEL]), over(one.moments[done].slots[MODEL]),
            two.moments[done].slots[MODEL]]  # fmt: skip


def _told(walk: TwoWalks, at: int, found: dict[str, _FoundProjection]) -> bool:
    """Return whether more than one number is at the limit: at this update, or at later ones of the run."""
    # a number of few digits is one that was written down: what a rule makes has all of them
    before = _states(walk, walk.done)[0]
    begun = any(_written(value) for leaf in found for value in np.asarray(before[leaf]).ravel())
    if not begun and all(one.limit is not None and _written(one.limit) for one in found.values()):
        return True
    counts: dict[object, int] = {}
    for one in found.values():
        key = one.words if one.limit is None else next(
            (k for k in counts if isinstance(k, float)
             and abs(k - one.limit) <= NORM * abs(k)), one.limit)  # fmt: skip
        counts[key] = counts.get(key, 0) + one.count
    if all(count > 1 for count in counts.values()):
        return True
    if walk.done > AHEAD:
        return False  # states that other causes are read off are dropped by further updates
    go_on(walk)
    lane = walk.lanes[at]
    for done in range(walk.done + 1, len(lane.moments)):
        now = lane.moments[done].slots.get(MODEL, {})
        now = walk.pairing.over(now) if at == 0 and now else now
        old = lane.moments[done - 1].slots.get(MODEL, {})
        if not now or not old:
            continue
        # a run that projects again leaves its values where they are, and is at the limit again, or has left it
        if any(float(np.abs(one.apply(np.asarray(now[leaf])) - now[leaf]).max(initial=0.0)) > NORM * float(
                np.abs(now[leaf]).max(initial=0.0)) for leaf, one in found.items()):  # fmt: skip
            return False
        held = [leaf for leaf, one in found.items() if one.limit is not None and _at_limit(now[leaf], one)]
        if len(held) == len(found):
            return True
    return False


def _written(limit: float) -> bool:
    short = float(f"{limit:.5g}")
    return abs(limit - short) <= 4e-16 * abs(short) or limit == float(np.float32(short))


def _at_limit(values: Array64, one: _FoundProjection) -> bool:
    sizes = np.abs(one.sizes(np.asarray(values)))
    return bool((np.abs(sizes - abs(one.limit or 0.0)) <= 1e-12 * np.abs(sizes).max(initial=0.0)).any())


def _said(walk: TwoWalks, at: int, found: dict[str, _FoundProjection]) -> str:
    words: dict[str, list[str]] = {}
    for leaf, one in found.items():
        shown = one.words if one.limit is None else one.words.format(f"{one.limit:.6g}")
        words.setdefault(shown, []).append(leaf)
    return "; ".join(f"{names_of(leaves)} {how}" for how, leaves in words.items())


def _else(walk: TwoWalks, at: int, found: dict[str, _FoundProjection]) -> str:
    """Return what the other does, as the end of a sentence: nothing, or the same to a wider limit."""
    other = ("the port", "the trainer")[at]
    now = _states(walk, walk.done)[2 - at]
    for leaf, one in found.items():
        sizes = np.sort(one.sizes(np.asarray(now[leaf])))
        if one.limit is None or sizes.size < 3 or not np.ptp(sizes):
            continue
        for end, second in ((sizes[-1], sizes[-2]), (sizes[0], sizes[1])):
            flush = abs(end - second) <= one.alike * abs(end)
            if flush and abs(end - one.limit) > NORM * abs(end) and (end > 0) == (one.limit > 0):
                return f"by {other} to {end:.6g}"
    return f"not by {other}"


def _clamped(one: _ProjectedLeaf) -> _FoundProjection | None:
    """Array64 above or below a number are that number."""
    low, high = one.made < one.other - one.close, one.made > one.other + one.close
    tops, ends = one.made[low], one.made[high]
    if not (low | high).any() or (tops.size and np.ptp(tops)) or (ends.size and np.ptp(ends)):
        return None
    top = float(tops[0]) if tops.size else np.inf
    end = float(ends[0]) if ends.size else -np.inf
    apply = lambda held: np.clip(held, end, top)  # noqa: E731
    if end > top or float(np.abs(apply(one.other) - one.made).max()) > one.close:
        return None
    if np.isfinite(top) and np.isfinite(end):
        if abs(top + end) <= 1e-12 * abs(top):
            sizes = lambda held: np.abs(held).ravel()  # noqa: E731
            return _FoundProjection("is limited to {} on both sides", top, tops.size + ends.size, apply, sizes)
        return _FoundProjection(f"is limited from {end:.6g} to {{}}", top, tops.size + ends.size, apply)
    words = "is limited to at most {}" if np.isfinite(top) else "is limited to at least {}"
    return _FoundProjection(words, top if np.isfinite(top) else end, tops.size + ends.size, apply)


def _parts(array: Array64) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "the norm of it all", tuple(range(array.ndim))
    if array.ndim > 1:
        yield "the norm along its last axis", (array.ndim - 1,)
        yield "the norm along its first axis", (0,)
    if array.ndim > 2:
        yield "the norm of each of its first axis", tuple(range(1, array.ndim))
        yield "the norm of each of its last axis", tuple(range(array.ndim - 1))


def _of_norm(one: _ProjectedLeaf) -> _FoundProjection | None:
    """Parts whose norm is above a number, or all, are scaled to it."""
    if one.made.size < 2:
        return None
    for words, axes in _parts(one.made):
        sizes = [np.sqrt((held**2).sum(axes, keepdims=True)) for held in (one.made, one.other)]
        if not (sizes[1] > 0.0).all():
            continue
        scaled = one.other * (sizes[0] / sizes[1])
        off = np.abs(scaled - one.made)
        moved = np.abs(sizes[0] / sizes[1] - 1.0) > FIT
        if float(off.max()) > one.close or not moved.any():
            continue
        limit = float(np.median(sizes[0][moved]))
        if float(np.abs(sizes[0][moved] - limit).max()) > NORM * limit:
            continue
        if (sizes[1][~moved] > limit * (1 + NORM)).any():
            continue
        grown = bool((sizes[1][moved] < limit * (1 - NORM)).any())

        def apply(held: Array64, axes: tuple[int, ...] = axes, limit: float = limit, grown: bool = grown) -> Array64:
            size = np.sqrt((held**2).sum(axes, keepdims=True))
            share = limit / np.where(size > 0.0, size, 1.0)
            return held * (share if grown else np.minimum(share, 1.0))

        how = "is set to {}" if grown or moved.all() else "is limited to {}"

        def norms(held: Array64, axes: tuple[int, ...] = axes) -> Array64:
            return np.sqrt((held**2).sum(axes)).ravel()

        return _FoundProjection(f"({words}) {how}", limit, int(moved.sum()), apply, norms, NORM)
    return None


def _of_mean(one: _ProjectedLeaf) -> _FoundProjection | None:
    """Parts are less their mean."""
    for words, axes in _parts(one.made):
        if one.made.size < 2:
            return None
        mean = one.other.mean(axes, keepdims=True)
        if float(np.abs(one.other - mean - one.made).max()) <= one.close:
            where = words.replace("the norm of it all", "of all").replace("the norm ", "")
            return _FoundProjection(f"is made to have no mean ({where})", None, 2,
                                    partial(_less_mean, axes=axes))  # fmt: skip
    return None


def _less_mean(held: Array64, axes: tuple[int, ...]) -> Array64:
    return held - held.mean(axes, keepdims=True)


def _over_sum(held: Array64, axes: tuple[int, ...]) -> Array64:
    return held / held.sum(axes, keepdims=True)


def _of_sum(one: _ProjectedLeaf) -> _FoundProjection | None:
    """Parts are over their sum, as of a distribution."""
    for words, axes in _parts(one.made):
        total = one.other.sum(axes, keepdims=True)
        if one.made.size < 2 or not np.all(total):
            continue
        if float(np.abs(one.other / total - one.made).max()) <= one.close:
            return _FoundProjection(f"is divided by its sum ({words.replace('the norm ', '')})", None, 2,
                                    partial(_over_sum, axes=axes))  # fmt: skip
    return None


def _of_sign(one: _ProjectedLeaf) -> _FoundProjection | None:
    """Array64 are without their sign."""
    if float(np.abs(np.abs(one.other) - one.made).max(initial=0.0)) > one.close:
        return None
    return _FoundProjection("is without its signs", None, 2, np.abs)


def _of_symmetry(one: _ProjectedLeaf) -> _FoundProjection | None:
    """A square matrix is the mean of itself and of it turned, or one of its triangles."""
    if one.made.ndim != 2 or one.made.shape[0] != one.made.shape[1]:
        return None
    ways: Sequence[tuple[str, Callable[[Array64], Array64]]] = (
        ("is the mean of itself and of it turned (symmetric)", lambda held: (held + held.T) / 2),
        ("is its lower triangle", np.tril), ("is its upper triangle", np.triu),
        ("is without its diagonal", lambda held: held - np.diag(np.diag(held))),
    )  # fmt: skip
    for words, apply in ways:
        if float(np.abs(apply(one.other) - one.made).max()) <= one.close:
            return _FoundProjection(words, None, 2, apply)
    return None


def _of_mask(one: _ProjectedLeaf) -> _FoundProjection | None:
    """Some elements are set to zero, or stay where they were."""
    off = np.abs(one.made - one.other) > one.close
    if not off.any() or off.all() or one.made.size < 3:
        return None
    place = ", ".join(str(int(at)) for at in np.argwhere(off)[0])
    shown = f"{int(off.sum())} of {off.size} elements, such as [{place}]"
    if not np.any(one.made[off]):
        return _FoundProjection(f"is set to 0 at {shown},", None, 2 * int(off.sum()),
                      lambda held: np.where(off, 0.0, held))  # fmt: skip
    if np.array_equal(one.made[off], one.before[off]):
        return _FoundProjection(f"is kept as it was at {shown},", None, 2 * int(off.sum()),
                      lambda held: np.where(off, one.made, held))  # fmt: skip
    return None


KINDS = (_clamped, _of_norm, _of_symmetry, _of_mean, _of_sum, _of_sign, _of_mask)

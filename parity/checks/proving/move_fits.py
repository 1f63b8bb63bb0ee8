"""One way in which a run may move its parameters, fitted to one update: epsilon, and rate and decay of each leaf.

The direction is something over the root of something else; an epsilon beside or under the root is found by Newton's
method, the rest by least squares in float64, leaf by leaf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.seen import SeenUpdate

__all__ = ["LeafMove", "MoveWay", "columns_of", "divisor_of", "fitted_move", "norms_of", "share_of_epsilon"]

FIT = 1e-9
"""How far a move may be from what its form gives, relative to its largest element."""

ROUNDING = 16 * 2.0**-52
"""The same, relative to the largest parameter: a move is a difference of two of them."""

APART = 1e-8
"""Smallest singular value of columns of length one from which none of them is made of the others."""

FEW = 3
"""Elements that a leaf must have more than a form has numbers."""

EPSILONS = (1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""From which the epsilon of a form is looked for: each a start of Newton's method, no answer by itself."""


@dataclass(frozen=True)
class LeafMove:
    """What one leaf went by at one update."""

    rate: float
    """Times the direction."""
    ahead: float
    """Times the gradient beside a momentum, relative to the rate; 0 where there is none."""
    decay: float
    """Times the parameters."""
    size: float
    """Norm of the direction."""
    size_decayed: float
    """Norm of the direction with the parameters times decay over rate."""
    params: float
    """Norm of the parameters."""
    clear: bool = True
    """Whether no other shares make the same move with decay: parameters that began at zero are their first move, a
    share of the momentum, so that the gradient beside that may stand for decay."""


@dataclass(frozen=True)
class MoveWay:
    """What is moved by, and what that is divided by: slots, as of `move_forms.MoveForm`."""

    top: str
    mixed: str = ""
    under: str = ""
    mean: str = ""
    place: str = ""
    sign: bool = False


def fitted_move(way: MoveWay, update: SeenUpdate) -> tuple[float, dict[str, LeafMove]] | None:
    """Return epsilon and what each leaf went by; None where the form does not make the move of a leaf."""
    move = update.move
    width = 1 + bool(way.mixed)
    leaves = [leaf for leaf, one in move.items() if one.size > width + 1 and np.any(one)]
    large = [leaf for leaf in leaves if move[leaf].size > width + 1 + FEW]
    if not large:
        return None
    parts = {leaf: columns_of(way, update, leaf) for leaf in leaves}
    if any(not np.isfinite(one).all() for tops, under in parts.values() for one in (*tops, under)):
        return None
    tried = [0.0]
    if way.under and way.place != "whole":
        largest = sorted(large, key=lambda leaf: -move[leaf].size)[:3]
        tried = [one for leaf in largest if (one := _epsilon(way, update, leaf, *parts[leaf])) is not None]
    for epsilon in tried:
        found: dict[str, LeafMove] = {}
        for leaf in leaves:
            tops, under = parts[leaf]
            made = _leaf_move(update, leaf, tops, divisor_of(way, under, epsilon))
            if made is None:
                break
            found[leaf] = made
        else:
            return epsilon, found
    return None


def _epsilon(way: MoveWay, update: SeenUpdate, leaf: str, tops: list[NDArray[np.float64]], under: NDArray[np.float64]
             ) -> float | None:  # fmt: skip
    """Return the epsilon with which a leaf's move is made, by Newton's method on what is left over."""
    u, p = update.move[leaf].ravel(), update.before[leaf].ravel()
    tops = [tops[0], *(one for one in tops[1:] if np.any(one))]
    scale = float(np.median(np.sqrt(np.maximum(under, 0.0)))) ** (2 if way.place == "under" else 1)
    best: tuple[float, float] | None = None
    for start in (0.0, *(scale * one for one in EPSILONS)):
        epsilon = start
        for _ in range(12):
            divisor = divisor_of(way, under, epsilon)
            if not (divisor > 0.0).all():
                break
            slope = -1.0 / divisor**2 if way.place == "beside" else -0.5 / divisor**3
            columns = [*(one / divisor for one in tops), *((p,) if np.any(p) else ())]
            parts = _solved(columns, u)
            off = _off(columns, u)
            if best is None or off < best[1]:
                best = epsilon, off
            if parts is None or off <= 1e-15:
                break
            change = sum((part * one * slope for part, one in zip(parts, tops, strict=False)), np.zeros_like(u))
            parts = _solved([*columns, change], u)
            if parts is None:
                break
            step = float(parts[-1])
            now = epsilon + step
            if not np.isfinite(now) or now < 0.0 or abs(step) <= 1e-15 * abs(now):
                break
            epsilon = now
        if best is not None and best[1] <= 1e-12:
            break
    return best[0] if best is not None else None


def _solved(columns: list[NDArray[np.float64]], made: NDArray[np.float64]) -> NDArray[np.float64] | None:
    sizes = [float(np.abs(one).max(initial=0.0)) for one in columns]
    if not all(0.0 < size < np.inf for size in sizes):
        return None
    table = np.stack([one / size for one, size in zip(columns, sizes, strict=True)], 1)
    found, *_ = np.linalg.lstsq(table, made, rcond=1e-14)
    return found / np.array(sizes)


def _off(columns: list[NDArray[np.float64]], made: NDArray[np.float64]) -> float:
    parts = _solved(columns, made)
    if parts is None:
        return float("inf")
    left = made - sum(part * one for part, one in zip(parts, columns, strict=True))
    return float(np.abs(left).max()) / max(float(np.abs(made).max()), 1e-300)


def _leaf_move(update: SeenUpdate, leaf: str, tops: list[NDArray[np.float64]], divisor: NDArray[np.float64]
               ) -> LeafMove | None:  # fmt: skip
    """Return rate and decay of a leaf; None where they do not make its move."""
    u, p = update.move[leaf].ravel(), update.before[leaf].ravel()
    limit = max(FIT * float(np.abs(u).max()), ROUNDING * float(np.abs(p).max(initial=0.0)))
    tops = [tops[0], *(one for one in tops[1:] if np.any(one))]  # no momentum is there before the first update
    with np.errstate(all="ignore"):  # what is divided by nothing makes no move, which fits nothing
        columns = [one / divisor for one in tops]
    for more in ([], [p]):  # without decay where that is enough
        parts = _solved([*columns, *more], u)
        if parts is None:
            continue
        left = u - sum(part * one for part, one in zip(parts, [*columns, *more], strict=True))
        if float(np.abs(left).max()) > limit:
            continue
        rate, ahead = -float(parts[0]), float(parts[1] / parts[0]) if len(tops) > 1 and parts[0] else 0.0
        decay = -float(parts[-1]) if more else 0.0
        direction = columns[0] + (ahead * columns[1] if len(tops) > 1 else 0.0)
        decayed = direction + (decay / rate * p if rate else 0.0)
        size, size_decayed, params = (float(np.linalg.norm(one)) for one in (direction, decayed, p))
        return LeafMove(rate, ahead, decay, size, size_decayed, params, _are_apart([*columns, p]))
    return None


def _are_apart(columns: list[NDArray[np.float64]]) -> bool:
    """Return whether no column is made of the others, those left out that are nothing."""
    sizes = [float(np.linalg.norm(one)) for one in columns]
    some = [one / size for one, size in zip(columns, sizes, strict=True) if 0.0 < size < np.inf]
    return not some or float(np.linalg.svd(np.stack(some, 1), compute_uv=False)[-1]) > APART


def columns_of(way: MoveWay, update: SeenUpdate, leaf: str) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Return what is moved by, [n] each, and what it is divided by the root of, [n]."""
    gradient = update.gradient[leaf].ravel()
    tops = [update.kept[way.top][leaf].ravel() if way.top else gradient]
    if way.mixed:
        tops.append(gradient if way.mixed == "gradient" else update.held[way.top][leaf].ravel())
    if way.sign:
        tops = [np.sign(one) for one in tops]
    under = update.kept[way.under][leaf].ravel() if way.under else np.ones_like(gradient)
    if way.mean:
        under = under - update.kept[way.mean][leaf].ravel() ** 2
    return tops, under


def divisor_of(way: MoveWay, under: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """Return what a direction is divided by, [n]."""
    if not way.under or way.place == "whole":
        return under
    if way.place == "under":
        return np.sqrt(np.maximum(under, 0.0) + epsilon)
    return np.sqrt(np.maximum(under, 0.0)) + epsilon


def share_of_epsilon(way: MoveWay, update: SeenUpdate, epsilon: float) -> float:
    """Return how much an epsilon is of the smallest number to which it is added."""
    roots = [np.sqrt(np.abs(columns_of(way, update, leaf)[1])) for leaf in update.before]
    least = min(float(one[one > 0.0].min(initial=np.inf)) for one in roots)
    return epsilon / least ** (2 if way.place == "under" else 1) if np.isfinite(least) else 0.0


def norms_of(
    way: MoveWay, update: SeenUpdate, epsilon: float, moves: Mapping[str, LeafMove]
) -> tuple[float, float, float]:
    """Return the norms of what all leaves are moved by, decay included where it is known, of all parameters, and of
    what they are moved by without decay.
    """
    squares = [0.0, 0.0, 0.0]
    shares = {leaf: one.decay / one.rate for leaf, one in moves.items() if one.rate}
    known = set(shares.values())
    for leaf, before in update.before.items():
        tops, under = columns_of(way, update, leaf)
        one = tops[0] / divisor_of(way, under, epsilon)
        share = shares.get(leaf, float(np.median(list(known))) if known else 0.0)
        squares[0] += float(((one + share * before.ravel()) ** 2).sum())
        squares[1] += float((before**2).sum())
        squares[2] += float((one**2).sum())
    return squares[0] ** 0.5, squares[1] ** 0.5, squares[2] ** 0.5

"""Of which form the moves of one run are: what is divided by what, which epsilon, which decay, and at which rates.

Every form is fitted to all updates of a run that are kept, leaf by leaf, from its own values, gradients and slots. The
plainest that makes all of them is the form of the run; its rates and decays by leaf are what is left to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.seen import SeenUpdate, seen_updates
from parity.checks.proving.walk import TwoWalks

__all__ = ["FEW", "LeafMove", "MoveForm", "entering_form", "move_form"]

FIT = 1e-9
"""How far a move may be from what its form gives, relative to its largest element."""

ROUNDING = 16 * 2.0**-52
"""The same, relative to the largest parameter: a move is a difference of two of them."""

FEW = 3
"""Elements that a leaf must have more than a form has numbers."""

EPSILONS = (1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""From which the epsilon of a form is looked for: each a start of Newton's method, no answer by itself."""

MIXES = ("gradient", "before")
"""What may be added to a momentum: where the gradient was clipped or has decay in it, the momentum before tells it."""

Arrays = Mapping[str, NDArray[np.float64]]


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


@dataclass(frozen=True)
class MoveForm:
    """How a run moves its parameters."""

    top: str
    """What is moved by: a slot, or empty for the gradient itself."""
    mixed: str
    """What is added to it: the `gradient`, or the same slot `before` the update; empty where nothing is."""
    signed: bool
    under: str
    """The slot by whose root it is divided; empty where by none."""
    mean: str
    """The slot whose square is taken from that one; empty where none is."""
    place: str
    """Of epsilon: `beside` the root, or `under` it; `whole` where it is divided by the slot itself."""
    epsilons: Mapping[int, float] = field(default_factory=dict)
    """Of each update."""
    moves: Mapping[int, Mapping[str, LeafMove]] = field(default_factory=dict)
    seen: Mapping[int, float] = field(default_factory=dict)
    """How much epsilon is of what it is added to, at most, at each update."""
    gradients: Mapping[int, float] = field(default_factory=dict)
    """Norm of the gradient of all leaves at each update."""
    wholes: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Norms of the direction and of the parameters, over all leaves, those too that are too small to be fitted."""


@dataclass(frozen=True)
class _Way:
    top: str
    mixed: str = ""
    under: str = ""
    mean: str = ""
    place: str = ""
    sign: bool = False


def move_form(walk: TwoWalks, at: int) -> MoveForm | None:
    """Return the form of the moves of a run; None where none that is known makes them all.

    Args:
        walk: Two trainers after some updates.
        at: 0 for the trainer, 1 for its port.
    """
    updates, born = _updates(walk, at)
    return _form_of(updates, born)


def entering_form(walk: TwoWalks, at: int, slot: str) -> MoveForm | None:
    """Return the form of what enters a momentum at each update, beside what it keeps of itself: its `decay`.

    Args:
        walk: Two trainers after some updates.
        at: 0 for the trainer, 1 for its port.
        slot: The momentum, by which alone the run moves.
    """
    updates, born = _updates(walk, at)
    if any(slot not in one.kept for one in updates):
        return None
    inner = [
        SeenUpdate(one.at, one.held[slot], one.gradient,
                   {leaf: held - one.kept[slot][leaf] for leaf, held in one.held[slot].items()}, one.held, one.kept)
        for one in updates
    ]  # fmt: skip
    return _form_of(inner, born - {slot})


def _updates(walk: TwoWalks, at: int) -> tuple[list[SeenUpdate], set[str]]:
    """Return the updates that are fitted, and the slots that begin at zero: a copy of the parameters is no moment."""
    found = seen_updates(walk, at)
    found = found[-4:] if len(walk.lanes[at].moments) > 5 else found
    start = walk.lanes[at].moments[0].slots
    slots = found[-1].kept if found else {}
    return found, {slot for slot in slots if not any(np.any(one) for one in start.get(slot, {}).values())}


def _form_of(updates: list[SeenUpdate], born: set[str]) -> MoveForm | None:
    if len(updates) < 2:
        return None
    for way in _ways(updates[-1], born):
        # the last update first: at the first one a moment is a multiple of the gradient, and most ways fit it
        found: dict[int, tuple[float, dict[str, LeafMove]]] = {}
        for update in reversed(updates):
            made = _fitted(way, update)
            if made is None:
                break
            found[update.at] = made
        else:
            moves = {step: one[1] for step, one in sorted(found.items())}
            epsilons = {step: one[0] for step, one in sorted(found.items())}
            wholes = {one.at: _whole(way, one, epsilons[one.at], moves[one.at]) for one in updates}
            seen = {one.at: _share(way, one, epsilons[one.at]) for one in updates}
            return MoveForm(
                way.top, way.mixed, way.sign, way.under, way.mean, way.place, epsilons, moves, seen,
                {one.at: sum(float((g * g).sum()) for g in one.gradient.values()) ** 0.5 for one in updates}, wholes,
            )  # fmt: skip
    return None


def _ways(update: SeenUpdate, born: set[str]) -> Iterator[_Way]:
    """Give the forms that are tried, the plainest first.

    Args:
        update: Whose slots they are made of.
        born: Those of them that begin at zero.
    """
    values = {slot: np.concatenate([one.ravel() for one in held.values()]) for slot, held in update.kept.items()}
    signed = [slot for slot, one in values.items() if slot in born and (one < 0.0).any()]
    squares = [slot for slot, one in values.items() if not (one < 0.0).any() and np.any(one)]
    for top in (*signed, ""):
        yield _Way(top)
    for mixed in MIXES:
        for top in signed:
            yield _Way(top, mixed)
    for top in (*signed, ""):
        yield _Way(top, sign=True)
    tops = [*((one, "") for one in (*signed, "")), *((one, mixed) for mixed in MIXES for one in signed)]
    for top, mixed in tops:
        for under in squares:
            for place in ("beside", "under"):
                yield _Way(top, mixed, under, place=place)
    for top in signed:
        for under in squares:
            yield _Way(top, under=under, place="whole")
    for under in squares:
        for mean in signed:
            for top in (*(one for one in signed if one != mean), ""):
                for place in ("beside", "under"):
                    yield _Way(top, under=under, mean=mean, place=place)


def _columns(way: _Way, update: SeenUpdate, leaf: str) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
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


def _divisor(way: _Way, under: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    if not way.under or way.place == "whole":
        return under
    if way.place == "under":
        return np.sqrt(np.maximum(under, 0.0) + epsilon)
    return np.sqrt(np.maximum(under, 0.0)) + epsilon


def _share(way: _Way, update: SeenUpdate, epsilon: float) -> float:
    roots = [np.sqrt(np.abs(_columns(way, update, leaf)[1])) for leaf in update.before]
    least = min(float(one[one > 0.0].min(initial=np.inf)) for one in roots)
    return epsilon / least ** (2 if way.place == "under" else 1) if np.isfinite(least) else 0.0


def _whole(way: _Way, update: SeenUpdate, epsilon: float, moves: Mapping[str, LeafMove]) -> tuple[float, float]:
    """Return the norms of what all leaves are moved by, decay included where it is known, and of all parameters."""
    squares = [0.0, 0.0]
    shares = {leaf: one.decay / one.rate for leaf, one in moves.items() if one.rate}
    known = set(shares.values())
    for leaf, before in update.before.items():
        tops, under = _columns(way, update, leaf)
        one = tops[0] / _divisor(way, under, epsilon)
        share = shares.get(leaf, float(np.median(list(known))) if known else 0.0)
        squares[0] += float(((one + share * before.ravel()) ** 2).sum())
        squares[1] += float((before**2).sum())
    return squares[0] ** 0.5, squares[1] ** 0.5


def _fitted(way: _Way, update: SeenUpdate) -> tuple[float, dict[str, LeafMove]] | None:
    """Return epsilon and what each leaf went by; None where the form does not make the move of a leaf."""
    move = update.move
    width = 1 + bool(way.mixed)
    leaves = [leaf for leaf, one in move.items() if one.size > width + 1 and np.any(one)]
    large = [leaf for leaf in leaves if move[leaf].size > width + 1 + FEW]
    if not large:
        return None
    parts = {leaf: _columns(way, update, leaf) for leaf in leaves}
    if any(not np.isfinite(one).all() for tops, under in parts.values() for one in (*tops, under)):
        return None
    tried = [0.0]
    if way.under and way.place != "whole":
        largest = sorted(large, key=lambda leaf: -move[leaf].size)[:3]
        tried = [found for leaf in largest if (found := _epsilon(way, update, leaf, *parts[leaf])) is not None]
    for epsilon in tried:
        found = {}
        for leaf in leaves:
            tops, under = parts[leaf]
            one = _leaf_move(update, leaf, tops, _divisor(way, under, epsilon))
            if one is None:
                break
            found[leaf] = one
        else:
            return epsilon, found
    return None


def _epsilon(way: _Way, update: SeenUpdate, leaf: str, tops: list[NDArray[np.float64]], under: NDArray[np.float64]
             ) -> float | None:  # fmt: skip
    """Return the epsilon with which a leaf's move is made, by Newton's method on what is left over."""
    u, p = update.move[leaf].ravel(), update.before[leaf].ravel()
    tops = [tops[0], *(one for one in tops[1:] if np.any(one))]
    scale = float(np.median(np.sqrt(np.maximum(under, 0.0)))) ** (2 if way.place == "under" else 1)
    best: tuple[float, float] | None = None
    for start in (0.0, *(scale * one for one in EPSILONS)):
        epsilon = start
        for _ in range(12):
            divisor = _divisor(way, under, epsilon)
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
    return found / np.array(sizes)  # type: ignore[no-any-return]


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
        norms = [float(np.linalg.norm(one)) for one in (direction, decayed, p)]
        return LeafMove(rate, ahead, decay, *norms)
    return None



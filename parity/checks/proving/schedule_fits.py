"""Schedules that rates follow: a rise, a constant, and then a cosine, power, steps, restarts or a root, with numbers.

Every family is fitted to all rates of a run. The plainest that gives each of them is said, and where two runs are of
one family, only the numbers in which they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.schedule_lengths import exact_length
from parity.checks.proving.schedule_pieces import straight_pieces

__all__ = ["FittedSchedule", "fitted_schedule", "unlike_schedules"]

FIT = 2e-6
"""How far a rate may be from what a schedule gives, relative to the largest one."""

SHARE = 1e-4
"""The same, relative to how far rates go: of rates that hardly move many schedules give nearly all."""

LONGEST = 160
"""Updates of a cosine or a power that are tried at most: of longer ones exact rates alone show a length."""

POWERS = (2.0, 0.5, 0.9, 3.0)

FALLS = ("a cosine", "an exponential", *(f"a power of {power:g}" for power in POWERS))
"""What a rate may do after it stayed; a line after it is a straight piece."""

Rates64 = NDArray[np.float64]


@dataclass(frozen=True)
class FittedSchedule:
    """A family and its numbers, by the words with which each is told."""

    family: str
    numbers: Mapping[str, str]

    def text(self) -> str:
        """Return the family with all of its numbers."""
        return ", ".join([self.family, *(words for words in self.numbers.values() if words)])


def unlike_schedules(here: Sequence[float], there: Sequence[float]) -> str:
    """Return in what two schedules differ, as a phrase; empty where one of them is of no family that is known.

    Args:
        here: Rates of the trainer's first updates, all of them.
        there: The port's.
    """
    one, two = (fitted_schedule(rates) for rates in (here, there))
    if one is None or two is None:
        return ""
    if one.family != two.family:
        return f"{one.text()} here; {two.text()} there"
    other = [key for key in {**one.numbers, **two.numbers} if one.numbers.get(key) != two.numbers.get(key)]
    if other in ([], ["rate"]):
        return ""  # a factor alone is said already
    sides = [", ".join(each.numbers.get(key) or f"no {key}" for key in other) for each in (one, two)]
    return f"{one.family}: {sides[0]} here; {sides[1]} there"


def fitted_schedule(rates: Sequence[float]) -> FittedSchedule | None:
    """Return the plainest schedule that gives all rates; None where none that is known does.

    Args:
        rates: Of the first updates of a run, all of them.

    Numerics: scale and floor by least squares in float64, lengths by trying each; within 2e-6 of the largest rate.
    """
    r = np.asarray(rates, dtype=np.float64)
    top = float(np.abs(r).max(initial=0.0))
    if len(r) < 5 or not top or not np.isfinite(r).all():
        return None
    for over in range(len(r) - 3):
        warm = _warm(r, over, top)
        if warm is None:
            continue
        for found in _bodies(r[over:], top, over):
            return FittedSchedule(found.family, {**warm, **found.numbers})
    if pieces := straight_pieces(r, FIT * top):
        return FittedSchedule("straight pieces", {"rate": f"from {r[0]:.6g}", "pieces": pieces})
    return _held(r, top)


def _held(r: Rates64, top: float) -> FittedSchedule | None:
    """Return a schedule that stays for some updates before it falls, behind a rise or from the first one on."""
    for over in range(len(r) - 5):
        warm = _warm(r, over, top)
        last = next((at for at in range(over, len(r)) if abs(r[at] - r[over]) > FIT * top), len(r)) - 1
        if warm is None or last - over < 2:
            continue
        for found in _bodies(r[last:], top, last):
            if found.family in FALLS:
                hold = f"{r[over]:.6g} for {last - over + 1} updates"
                return FittedSchedule(found.family, {**warm, "hold": hold, **found.numbers})
    return None


def _warm(r: Rates64, over: int, top: float) -> dict[str, str] | None:
    """Return the words of a rise over so many updates; None where they are on no line or cosine to what follows."""
    if not over:
        return {}
    rise = r[: over + 1]
    curve = rise[0] + (rise[-1] - rise[0]) * (1 - np.cos(np.pi * np.arange(over + 1) / over)) / 2
    if over > 2 and rise[-1] > rise[0] and float(np.abs(rise - curve).max()) <= SHARE * (rise[-1] - rise[0]):
        return {"warm-up": f"a rise by a cosine over {over} updates from {r[0]:.6g}"}
    step = float(rise[1] - rise[0])
    if over > 2 and float(np.abs(np.diff(rise[:over]) - step).max()) > FIT * top:
        return None
    if over == 1:
        return {"warm-up": f"update 1 at {r[0]:.6g}"} if r[0] < r[1] * (1 - FIT) else None
    if step > FIT * top and over + 1 < len(r) and all(abs(r[at + 1] - r[at] - step) <= FIT * top
                                                      for at in (over - 1, over)):  # fmt: skip
        return None  # the rise goes on
    if abs(step) <= FIT * top:  # a number for some updates, and another one after them
        return {"warm-up": f"{r[0]:.6g} for the first {over} updates"} if abs(r[over] - r[0]) > FIT * top else None
    if step < 0.0:
        return None
    return {"warm-up": f"a linear warm-up of {over} updates from {r[0]:.6g}, {step:+.6g} each"}


def _bodies(r: Rates64, top: float, over: int) -> Iterator[FittedSchedule]:
    """Give the schedules that make the rates after a warm-up, the plainest first."""
    n = np.arange(len(r), dtype=np.float64)
    limit = FIT * top
    if float(np.ptp(r)) <= limit:
        yield FittedSchedule("a constant rate", {"rate": f"{r[0]:.6g}"})
        return
    if len(r) < 5:
        return
    limit = min(limit, SHARE * float(np.ptp(r)))
    steps = np.diff(r)
    moved = np.flatnonzero(np.abs(steps) > limit)
    if float(np.ptp(steps)) <= limit:
        yield FittedSchedule("a line", {"rate": f"from {r[0]:.6g}", "slope": f"{steps[0]:+.6g} at each update"})
        return
    # of a curve that has hardly begun each ratio is nearly one, and so are their differences
    if (r > 0.0).all() and float(np.ptp(np.diff(np.log(r)))) <= min(4 * FIT, SHARE * abs(np.log(r[-1] / r[0]))):
        yield FittedSchedule("an exponential", {"rate": f"from {r[0]:.6g}",
                                                "factor": f"times {r[1] / r[0]:.6g} each"})  # fmt: skip
        return
    if (r > 0.0).all() and len(moved) <= (len(r) - 1) // 2 and not (np.diff(moved) == 1).any():
        factors = sorted({f"{r[at + 1] / r[at]:.6g}" for at in moved})
        places = ", ".join(str(int(at) + 2 + over) for at in moved)
        yield FittedSchedule("steps", {"rate": f"from {r[0]:.6g}", "place": f"at update {places}",
                                       "factor": f"times {' and '.join(factors)}"})  # fmt: skip
        return
    for family, numbers, shapes in _shapes(n, over):
        parts, off = _parts(shapes, r)
        fits = np.flatnonzero(off <= limit)
        # where a floor of zero is enough it is the one that is meant
        fits = np.array([at for at in fits if abs(parts[at, 1]) <= 2 * FIT * top] or fits, dtype=int)
        if len(fits) and np.ptp(shapes[fits], axis=0).max() > FIT:
            break  # several lengths give them: none is told but by exact rates
        for at in fits[:1]:
            scale, floor = float(parts[at, 0]), float(parts[at, 1])
            begin = f"from {scale + floor:.6g}" if family != "one over a root" else f"{scale:.6g} times it"
            low = f"a floor of {floor:.6g}" if abs(floor) > 2 * FIT * top else ""
            if scale > 0.0 and floor > -2 * FIT * top:
                yield FittedSchedule(family, {"rate": begin, "length": numbers[at], "floor": low})
    yield from _long(r, top)


def _long(r: Rates64, top: float) -> Iterator[FittedSchedule]:
    """Give the schedule of which the rates are so few that one length alone gives them exactly."""
    cosine = ("a cosine", lambda share: (1 + np.cos(np.pi * np.minimum(share, 1.0))) / 2)
    powers = ((f"a power of {one:g}", lambda share, one=one: (1 - np.minimum(share, 1.0)) ** one) for one in POWERS)
    for family, shape in (cosine, *powers):
        one = exact_length(r, shape, len(r) + 1, (0, 1) if family == "a cosine" else (0,))
        if one is not None and one.top > one.floor > -FIT * top:
            late = ", counted from 1" if one.shift else ""
            low = f"a floor of {one.floor:.6g}" if abs(one.floor) > FIT * top else ""
            yield FittedSchedule(family, {"rate": f"from {one.top:.6g}", "length": f"over {one.length} updates{late}",
                                          "floor": low})  # fmt: skip
            return


def _shapes(n: Rates64, over: int) -> Iterator[tuple[str, list[str], Rates64]]:
    """Give families with the words and the values, from 1 down to 0, of each of their members."""
    lengths = np.arange(2, LONGEST + 1)
    for shift in (0, 1):
        late = ", counted from 1" if shift else ""
        share = (n + shift)[None] / lengths[:, None]
        words = [f"over {one} updates{late}" for one in lengths]
        yield "a cosine", words, (1 + np.cos(np.pi * np.minimum(share, 1.0))) / 2
        yield "a cosine", [f"{one}, going on after them" for one in words], (1 + np.cos(np.pi * share)) / 2
        every, members = [], []
        for first in range(2, len(n) + 1):
            for times in (1, 2, 3):
                every.append(f"restarts after {first} updates, {times} times as long each{late}" if times > 1 else
                             f"restarts every {first} updates{late}")  # fmt: skip
                members.append(_restarts(n + shift, first, times))
        yield "a cosine with restarts", every, np.array(members)
        for power in POWERS:
            yield f"a power of {power:g}", words, (1 - np.minimum(share, 1.0)) ** power
    offsets = [*range(1, 41)]
    # of the update, counted from 1 from the first one on, and a number
    yield "one over a root", [f"of the update {one - 1 - over:+d}" for one in offsets], np.array(
        [(n + one) ** -0.5 for one in offsets])  # fmt: skip
    drops = np.unique(np.concatenate([np.arange(1, 21) / 100, np.arange(1, 11) / 10, [0.001, 0.005]]))
    words = [f"of 1 and {one:g} times the count" for one in drops]
    yield "one over a line", words, 1 / (1 + drops[:, None] * n[None])


def _restarts(n: Rates64, first: int, times: int) -> Rates64:
    at, length = n.copy(), np.full_like(n, float(first))
    for _ in range(len(n)):
        over = at >= length
        at[over] -= length[over]
        length[over] *= times
    return np.asarray((1 + np.cos(np.pi * at / length)) / 2)


def _parts(shapes: Rates64, r: Rates64) -> tuple[Rates64, Rates64]:
    """Return scale and floor of each shape, [m, 2], and how far the rates are from it at most, [m]."""
    centred = shapes - shapes.mean(1, keepdims=True)
    square = (centred**2).sum(1)
    scale = (centred @ (r - r.mean())) / np.where(square > 0.0, square, 1.0)
    floor = r.mean() - scale * shapes.mean(1)
    off = np.abs(scale[:, None] * shapes + floor[:, None] - r[None]).max(1)
    return np.stack([scale, floor], 1), np.where(square > 0.0, off, np.inf)

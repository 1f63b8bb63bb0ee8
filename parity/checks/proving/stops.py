"""Where a gradient is stopped, let through or scaled in one of two programs that compute the same.

Each point of the way back is tried: with what goes back through it stopped, or let through, all gradients are those
of the other program, or they are not. The points where one value goes into lines of the user are tried together, as
a `detach` in a function that is called twice is one in both calls. No name decides: all is told by gradients.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs import KnownValues, made_by
from parity.checks.progress import tell
from parity.checks.proving.losses import Pairing, other_values
from parity.checks.proving.sources import PortTrainer
from parity.contract import TracedProgram, WayBack
from parity.errors import SpecError

__all__ = ["loss_stop_cause", "model_stop_cause"]

Gradients: TypeAlias = Mapping[str, NDArray[np.float64]]

DRAWS = 2

CLOSE = 1e-9
"""Largest distance, relative to the largest gradient of its leaf, that counts as equal."""

MOST_LINES = 4
"""Lines that take one value, up to which all choices of them are tried."""

MOST_PAIRED = 150
"""Points of which two are tried together."""

FEWEST = 8
"""Numbers of all gradients from which the shares of two points can be solved for."""

SECONDS = 12.0
"""Of the processor, for one of the two programs."""


@dataclass(frozen=True)
class _Draw:
    """Both programs at one place of their leaves, and their gradients as the second has them."""

    programs: tuple[TracedProgram, TracedProgram]
    gradients: tuple[Gradients, Gradients]
    weights: tuple[Sequence[NDArray[np.float64]], Sequence[NDArray[np.float64]]]


def loss_stop_cause(pairing: Pairing, first: PortTrainer, second: PortTrainer) -> str:
    """Return where the gradient of one of two losses is stopped, or scaled; empty where that is not found.

    Args:
        pairing: Of the models.
        first: The trainer.
        second: Its port.
    """
    draws: list[_Draw] = []
    one = [np.ones(())]
    for at in range(DRAWS):
        values = other_values(pairing, 51 + at)
        batches = first.batch(at), second.batch(at)
        try:
            programs = first.probe.trace(values, batches[0]), second.probe.trace(pairing.over(values), batches[1])
            losses = first.probe.loss(values, batches[0]), second.probe.loss(pairing.over(values), batches[1])
        except SpecError:
            return ""
        if programs[0] is None or programs[1] is None:
            return ""
        expected = pairing.over(losses[0].gradients, grads=True)
        draws.append(_Draw((programs[0], programs[1]), (expected, losses[1].gradients), (one, one)))
    return _cause(pairing, draws)


def model_stop_cause(pairing: Pairing) -> str:
    """Return where the gradient of one of two models is stopped, or scaled; empty where that is not found.

    Args:
        pairing: Of the models.
    """
    subjects, draws = pairing.subjects, list[_Draw]()
    for at in range(DRAWS):
        values = other_values(pairing, 51 + at)
        over = pairing.over(values)
        try:
            made = subjects.evaluate(values, over)
            one = subjects.first.trace(values, subjects.inputs.first)
            two = subjects.second.trace(over, subjects.inputs.second)
        except SpecError:
            return ""
        if one is None or two is None:
            return ""
        weights = tuple(
            [weigh(n, output.shape) for n, output in enumerate(program.outputs)]
            for weigh, program in zip(subjects.weighs, (one, two), strict=True)
        )
        gradients = pairing.over(made[0].gradients, grads=True), made[1].gradients
        draws.append(_Draw((one, two), gradients, weights))  # type: ignore[arg-type]
    return _cause(pairing, draws)


def _cause(pairing: Pairing, draws: Sequence[_Draw]) -> str:
    tell("port: gradients, value by value")
    leaves = pairing.subjects.first.leaves, pairing.subjects.second.leaves
    try:
        for side in (1, 0):
            backs = [draw.programs[side].way_back(list(leaves[side]), draw.weights[side]) for draw in draws]
            if any(back is None for back in backs):
                continue
            search = _StopSearch(pairing, draws, [back for back in backs if back is not None], side)
            if cause := search.cause():
                return cause
    finally:
        tell()
    return ""


class _StopSearch:
    """Tries the points of one program; see `loss_stop_cause`."""

    def __init__(self, pairing: Pairing, draws: Sequence[_Draw], backs: Sequence[WayBack], side: int) -> None:
        self.pairing, self.draws, self.backs, self.side = pairing, draws, backs, side
        self.operations = draws[0].programs[side].operations
        self.others = draws[0].programs[1 - side].operations
        self.points = backs[0].points
        self._moves: dict[int, NDArray[np.float64]] = {}
        """By how much each point alone moves the gradients of the first draw."""
        self.own = [self._gradient(at, {}) for at in range(len(draws))]

    def cause(self) -> str:
        """Return the change that makes all gradients equal, as a phrase; empty where none does."""
        pairs = list(zip(self.own, self.draws, strict=True))
        if all(_equal(own, draw.gradients[1 - self.side]) for own, draw in pairs):
            return ""
        # a way back that does not give the gradient as it is tells nothing
        if not all(_equal(own, draw.gradients[self.side]) for own, draw in pairs):
            return ""
        end, found = time.process_time() + SECONDS, list[tuple[tuple[int, ...], float]]()
        for group in self._groups():
            if time.process_time() > end:
                break
            share = self._share(group)
            if share is not None:
                found.append((group, share))
                if self.points[group[0]].stops:
                    break
        whole = [(group, share) for group, share in found if share in (0.0, 1.0)]
        if found:
            return f"{self._said(*self._best(whole or found))} (with that changed all gradients are equal)"
        if pair := self._pair(end):
            said = "; and ".join(self._said((at,), share) for at, share in pair.items())
            return f"{said} (with both changed all gradients are equal)"
        return ""

    def _pair(self, end: float) -> dict[int, float]:
        """Return two points and the shares of both that make all gradients equal; nothing where no two do.

        What each point alone gives the gradient is known by then: of two, the shares are solved for. That the points
        may lie on one way is seen by the gradients with both of them changed.
        """
        wanted = self.draws[0].gradients[1 - self.side]
        gap = np.concatenate([(wanted[leaf] - self.own[0][leaf]).ravel() for leaf in wanted])
        # of points that one value goes through the last, the nearest to its use
        known = {
            np.round(move / np.abs(move).max(), 9).tobytes(): at for at, move in self._moves.items() if move.any()
        }
        # a share of what a stop lets through is said last: an operation that both have says more
        points = sorted(sorted(known.values())[-MOST_PAIRED:], key=lambda at: self.points[at].stops)
        if len(points) < 2 or gap.size < FEWEST:
            return {}
        moves = np.stack([self._moves[at] for at in points])
        gram, toward = moves @ moves.T, moves @ gap
        for first, second in itertools.combinations(range(len(points)), 2):
            if time.process_time() > end:
                break
            a, b, c = gram[first, first], gram[first, second], gram[second, second]
            if (size := a * c - b * b) <= 1e-12 * a * c:
                continue
            times = ((c * toward[first] - b * toward[second]) / size, (a * toward[second] - b * toward[first]) / size)
            left = gap - times[0] * moves[first] - times[1] * moves[second]
            if min(map(abs, times)) < 1e-6 or np.abs(left).max() > 1e-7 * np.abs(gap).max():
                continue
            own = [float(not self.points[points[at]].stops) for at in (first, second)]
            shares = [own[n] + times[n] * (1.0 - 2.0 * own[n]) for n in (0, 1)]
            # a number of a formula has few digits, and rounding has many
            pair = dict(zip((points[first], points[second]), (float(f"{one:.9g}") for one in shares), strict=True))
            if all(_equal(self._gradient(at, pair), draw.gradients[1 - self.side]) for at, draw in
                   enumerate(self.draws)):  # fmt: skip
                return pair
        return {}

    def _groups(self) -> Iterator[tuple[int, ...]]:
        """Yield points that are tried together: each alone, those of a line, and values as lines take them."""
        stops = [at for at, one in enumerate(self.points) if one.stops]
        plain = [at for at, one in enumerate(self.points) if not one.stops]
        seen: set[tuple[int, ...]] = set()
        ways = itertools.chain(
            ((at,) for at in stops), self._by_line(stops), [tuple(stops)] if len(stops) > 1 else [],
            self._stopped_by_other(plain), ((at,) for at in plain), self._by_line(plain), self._taken(plain),
        )  # fmt: skip
        for group in ways:
            if group and group not in seen:
                seen.add(group)
                yield group

    def _stopped_by_other(self, points: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the values that a line of the other program stops, and all that it stops, each where it is last seen.

        A function that several lines call stops in each of the calls: no one line of this program has all of them.
        """
        lines: dict[str, list[KnownValues]] = {}
        for one in self.others:
            if one.kind in STOPPING and one.inputs and one.inputs[0].dtype.kind == "f":
                lines.setdefault(one.place, []).append(KnownValues([np.asarray(one.inputs[0], np.float64)]))
        made = [at for at in points if self.points[at].number < 0]
        held = [[next((at for at in reversed(made) if known.has(self._value(at))), -1) for known in each]
                for each in lines.values()]  # fmt: skip
        for group in (*held, [at for each in held for at in each]):
            if group and min(group) >= 0:
                yield tuple(sorted(set(group)))

    def _by_line(self, points: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield what operations of one kind give, or take, in one expression, however often it is computed."""
        lines: dict[tuple[str, str, str, int], list[int]] = {}
        for at in points:
            one = self.operations[self.points[at].at]
            lines.setdefault((one.place, one.kind, one.text, self.points[at].number), []).append(at)
        yield from (tuple(held) for held in lines.values() if len(held) > 1)

    def _taken(self, points: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield values as some of the lines take them that do, each value and all that one expression makes."""
        single: dict[object, dict[str, list[int]]] = {}
        alike: dict[object, dict[str, list[int]]] = {}
        for at in points:
            point = self.points[at]
            if point.number < 0:
                continue
            line = self.operations[point.at].place
            single.setdefault(point.source, {}).setdefault(line, []).append(at)
            if point.source >= 0:
                maker = self.operations[point.source]
                alike.setdefault((maker.place, maker.kind, maker.text), {}).setdefault(line, []).append(at)
        for lines in (*single.values(), *alike.values()):
            if not 1 <= len(lines) <= MOST_LINES:
                continue
            for count in range(1, max(len(lines), 2)):
                for some in itertools.combinations(lines.values(), count):
                    yield tuple(sorted(at for each in some for at in each))

    def _gradient(self, draw: int, shares: Mapping[int, float]) -> Gradients:
        made = self.backs[draw].gradient(shares)
        return made if self.side == 1 else self.pairing.over(made, grads=True)

    def _share(self, group: tuple[int, ...]) -> float | None:
        """Return the share that makes all gradients equal: 0 or 1, or another of a point alone; None for none."""
        own = float(not self.points[group[0]].stops)
        share: float | None = None
        for at, draw in enumerate(self.draws):
            wanted, mine = draw.gradients[1 - self.side], self.own[at]
            made = self._gradient(at, dict.fromkeys(group, 1.0 - own))
            if at == 0 and len(group) == 1:
                self._moves[group[0]] = np.concatenate([(made[leaf] - mine[leaf]).ravel() for leaf in wanted])
            if share is None:
                if _equal(made, wanted):
                    share = 1.0 - own
                else:
                    share = None if len(group) > 1 else _between(mine, made, wanted, own)
                if share is None:
                    return None
            elif not _equal(made if share == 1.0 - own else self._gradient(at, {group[0]: share}), wanted):
                return None
        return share

    def _best(self, found: Sequence[tuple[tuple[int, ...], float]]) -> tuple[tuple[int, ...], float]:
        """Return the one that is told: what the other program stops as well, or the last, the nearest to its use."""
        ends = KnownValues(
            np.asarray(x, np.float64) for one in self.others if one.kind in STOPPING for x in one.inputs
        )
        known = [each for each in found if any(ends.has(self._value(at)) for at in each[0])]
        fewest = min(len(group) for group, _ in known or found)
        return [each for each in known or found if len(each[0]) == fewest][-1]

    def _value(self, at: int) -> NDArray[np.float64]:
        point = self.points[at]
        one = self.operations[point.at]
        return np.asarray(one.outputs[0] if point.number < 0 else one.inputs[point.number], np.float64)

    def _said(self, group: tuple[int, ...], share: float) -> str:
        point = self.points[group[0]]
        one = self.operations[point.at]
        if point.number < 0:
            what = made_by(self.operations, point.at)
        elif point.source < 0:
            what = f"what {one.kind} is given at {one.place}"
        else:
            lines = list(dict.fromkeys(self.operations[self.points[at].at].place for at in group))
            takes = "take" if len(lines) > 1 else "takes"
            what = f"{made_by(self.operations, point.source)}, as {' and '.join(lines)} {takes} it"
        sides = ("here", "there") if self.side == 0 else ("there", "here")
        if point.stops and share == 1.0:
            what = f"`{one.text}` ({one.place})" if one.text else one.place
            text = f"gradient stopped: at {what} {sides[0]}, not {sides[1]}"
        elif share == 0.0:
            text = (
                f"gradient stopped: {sides[0]} it goes back through {what}, {sides[1]} it is stopped"
                f"{self._line_of(group)}"
            )
        else:
            much = f"{share:.6g} of it goes on {sides[1]}, none {sides[0]}" if point.stops else (
                f"{sides[1]} it is {share:.6g} times what it is {sides[0]}")  # fmt: skip
            text = f"gradient scaled: of what goes back through {what}, {much}"
        return text

    def _line_of(self, group: tuple[int, ...]) -> str:
        """Return the line at which the other program stops that value; empty where none is found."""
        for one in self.others:
            if one.kind in STOPPING and one.inputs:
                known = KnownValues([np.asarray(one.inputs[0], np.float64)])
                if any(known.has(self._value(at)) for at in group):
                    return f" at {one.place}"
        return ""


STOPPING = ("detach", "detach_", "data", "stop_gradient")
"""Operations that PyTorch and JAX stop a gradient by: they tell a line, and decide nothing."""


def _between(mine: Gradients, made: Gradients, wanted: Gradients, own: float) -> float | None:
    """Return the share between and beyond two with which gradients are what is wanted; None where there is none.

    Args:
        mine: Gradients with the share that a point has.
        made: Those with the other one, 0 for 1.
        wanted: What they shall be.
        own: The share that the point has.
    """
    change = np.concatenate([(made[leaf] - mine[leaf]).ravel() for leaf in wanted])
    gap = np.concatenate([(wanted[leaf] - mine[leaf]).ravel() for leaf in wanted])
    size = float(change @ change)
    times = float(change @ gap) / size if size > 0.0 else 0.0
    if not times or change.size < 2 or abs(times) < 1e-6:
        return None
    moved = {leaf: mine[leaf] + times * (made[leaf] - mine[leaf]) for leaf in wanted}
    return own + times * (1.0 - 2.0 * own) if _equal(moved, wanted) else None


def _equal(one: Gradients, two: Gradients) -> bool:
    """Return whether gradients are the same of every leaf that both have."""
    largest = max((float(np.abs(g).max(initial=0.0)) for g in two.values()), default=0.0)
    for leaf in one.keys() & two.keys():
        scale = max(float(np.abs(two[leaf]).max(initial=0.0)), 1e-3 * largest)
        if not float(np.abs(one[leaf] - two[leaf]).max(initial=0.0)) <= CLOSE * scale:
            return False
    return largest > 0.0

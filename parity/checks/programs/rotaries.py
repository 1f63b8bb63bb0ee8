"""Rotaries that two programs apply to one value: which numbers of a head are turned, in which pairs, by which angles.

A rotary is told by what it does, however it is written: pairs of the numbers of a head are turned, each by an angle
of its place and pair, the same in every sample and head. What two of them differ in is proven by putting the one in
place of the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import Explanation, FloatNumbers
from parity.checks.programs.trials import fits_all, flat_of, limits_of
from parity.contract import OperationArrays, OperationEdit, ProgramOperation, TracedProgram

__all__ = ["rotary_difference"]

CLOSE = 1e-9
"""Largest distance of a turn from one that is equal in all samples and heads: numbers are divided by each other."""

LEAST = 1e-6
"""Size of a pair, relative to the largest, below which its angle is not read."""

LARGEST = 2**18
"""Elements of a value above which no rotary is looked for."""

MOST_VALUE = 1e100
"""Size of a number from which its square may be none."""

MOST = 2000
"""Pairs of values that are compared."""


@dataclass(frozen=True)
class _Rotary:
    """What turns pairs of the numbers of a head."""

    pairs: tuple[tuple[int, int], ...]
    """Numbers of a head that are turned together."""
    axis: int
    """Of the places."""
    turns: NDArray[np.complex128]
    """By what each pair is turned, [places, pairs]."""
    at: int
    """Operation that makes the turned value."""
    source: tuple[int, int]
    """Operation that holds what is turned, and which of its outputs, then inputs."""
    shape: tuple[int, ...]
    """Of the value that is turned."""

    @property
    def width(self) -> int:
        """Return the numbers of a head."""
        return self.shape[-1]

    @property
    def key(self) -> tuple[object, ...]:
        """Return what two that turn alike share."""
        return self.pairs, tuple(np.round(self.turns, 7).ravel().tolist())

    def of(self, x: FloatNumbers, axis: int) -> FloatNumbers:
        """Return a value turned whose places lie along an axis; of fewer places by the angles of the first ones."""
        made = np.array(x, np.float64)
        one, two = ([pair[n] for pair in self.pairs] for n in (0, 1))
        turns = self.turns[: x.shape[axis]]
        shape = [1] * x.ndim
        shape[axis], shape[-1] = turns.shape
        turned = (x[..., one] + 1j * x[..., two]) * turns.reshape(shape)
        made[..., one], made[..., two] = turned.real, turned.imag
        return made

    @property
    def text(self) -> str:
        """Return it in words."""
        still = np.abs(self.turns - 1.0).max(0) <= CLOSE
        pairs = [pair for pair, rests in zip(self.pairs, still, strict=True) if not rests]
        turned = sorted(n for pair in pairs for n in pair)
        first, last = turned[0], turned[-1]
        if len(turned) == self.width:
            which = f"all {self.width} numbers of a head"
        elif turned == list(range(first, last + 1)):
            which = f"the numbers {first} to {last} of the {self.width} of a head"
        else:
            which = f"{len(turned)} of the {self.width} numbers of a head ({_listed(turned)})"
        one, two = pairs[0]
        kind = "neighbours" if two == one + 1 else f"numbers {two - one} apart"
        # the first places may be one, as of two documents that are packed: the first that is turned on says it
        further = np.angle(self.turns[1:] / self.turns[:-1])[:, ~still]
        angles = next(row for row in further if row.any())
        shown = ", ".join(f"{angle:.4g}" for angle in angles)
        return f"{which}, in pairs of {kind}, by angles of {shown} from place to place"

    @property
    def along(self) -> str:
        """Return along which axis places are counted, in words."""
        return f", places counted along axis {self.axis} of {list(self.shape)}"


def rotary_difference(
    first: Sequence[TracedProgram], second: Sequence[TracedProgram], orders: Sequence[tuple[int, ...]] | None,
    seconds: float,
) -> Explanation | None:  # fmt: skip
    """Return in what the rotaries of two programs differ, where that is all that differs; else None.

    Args:
        first: A program, at one or several places of its leaves and inputs.
        second: The other at the same places.
        orders: For each output, the order of axes that takes the first's to the second's; None where they are equal.
        seconds: Of the processor.
    """
    ends = time.process_time() + seconds
    found = [list(_rotaries(one[0].operations, ends)) for one in (first, second)]
    keys = [{one.key for one in each} for each in found]
    sides = [_widest([one for one in each if one.key not in keys[1 - at]]) for at, each in enumerate(found)]
    wholes = [_whole(each) for each in sides]
    if None in wholes:
        return None
    both = [one for one in wholes if one is not None]
    texts = [one.text for one in both]
    if len(both[0].turns) != len(both[1].turns):  # one may count heads as places
        texts = [f"{text}{one.along}" for text, one in zip(texts, both, strict=True)]
    for at, (mine, theirs) in enumerate(((first, second), (second, first))):
        wanted = [flat_of(one.outputs, orders if at == 1 else None) for one in theirs]
        own = orders if at == 0 else None
        limits = limits_of([flat_of(one.outputs, own) for one in mine], wanted)
        scaled = [one / limit for one, limit in zip(wanted, limits, strict=True)] if limits else []
        for edits in _ways(sides[at], both[1 - at]) if limits else ():
            if fits_all(mine, [edits] * len(mine), scaled, limits, own):
                place = mine[0].operations[sides[at][0].at].place
                return Explanation("rotary", texts[0], texts[1], place, at, 0, edits)
    return None


def _whole(rotaries: Sequence[_Rotary]) -> _Rotary | None:
    """Return the rotary of most places where all others turn as its first places do; None where they do not.

    Queries and keys may have other numbers of heads: where heads are counted as places, so have their rotaries.
    """
    longest = max(rotaries, key=lambda one: len(one.turns), default=None)
    if longest is None or any(
        one.pairs != longest.pairs or np.abs(one.turns - longest.turns[: len(one.turns)]).max() > CLOSE
        for one in rotaries
    ):
        return None
    return longest


def _ways(rotaries: Sequence[_Rotary], other: _Rotary) -> Iterator[dict[int, OperationEdit]]:
    """Yield the edits that turn as another rotary does all that some turn: along their axis, or one of its extent."""
    count = len(other.turns)
    if all(one.shape[one.axis] <= count for one in rotaries):
        yield {one.at: _in_place(one, other, one.axis) for one in rotaries}
    for axis in range(max(len(one.shape) for one in rotaries) - 1):
        if all(axis < len(one.shape) - 1 and axis != one.axis and one.shape[axis] == count for one in rotaries):
            yield {one.at: _in_place(one, other, axis) for one in rotaries}


def _widest(rotaries: Sequence[_Rotary]) -> list[_Rotary]:
    """Return those of the most numbers: a part that is turned by itself is turned as a part of the whole too."""
    width = max((one.width for one in rotaries), default=0)
    return [one for one in rotaries if one.width == width]


def _in_place(one: _Rotary, other: _Rotary, axis: int) -> OperationEdit:
    """Return the edit that turns what a rotary turns as another one does, with places along an axis."""
    at, place = one.source

    def after(
        outputs: OperationArrays, inputs: OperationArrays, sources: Sequence[OperationArrays]
    ) -> OperationArrays:
        return (other.of(sources[0][place] if sources else inputs[place - len(outputs)], axis),)

    return OperationEdit(after=after, sources=() if at == one.at else (at,))


def _rotaries(operations: Sequence[ProgramOperation], ends: float) -> Iterator[_Rotary]:
    """Yield what turns values of a program, each value once by the first operation that gives it turned."""
    held: dict[tuple[int, ...], list[tuple[int, int, FloatNumbers, FloatNumbers]]] = {}
    tried = 0
    for at, one in enumerate(operations):
        count = len(one.outputs)
        for place, x in [*enumerate(one.inputs, count), *enumerate(one.outputs)]:
            if x.dtype.kind != "f" or not 3 <= x.ndim <= 5 or not 4 <= x.size <= LARGEST or x.shape[-1] < 4:
                continue
            if not (np.abs(x) < MOST_VALUE).all():
                continue  # a mask is filled with what no rotary turns
            squares = np.asarray((x * x).sum(-1))
            alike = held.setdefault(x.shape, [])
            if any(np.array_equal(x, value) for _, _, value, _ in alike):
                continue
            made = place < count == 1
            near = [other for other in alike if made and np.allclose(other[3], squares, rtol=1e-10, atol=0.0)]
            for source, part, value, _ in reversed(near):
                tried += 1
                if tried > MOST or time.process_time() > ends:
                    return
                if source != at and source not in one.before:
                    continue
                if (found := _between(value, x, at, (source, part))) is not None:
                    yield found
                    break
            else:
                # a value that is turned is turned no further, or each would be seen from all before it
                alike.append((at, place, x, squares))


def _between(x: FloatNumbers, y: FloatNumbers, at: int, source: tuple[int, int]) -> _Rotary | None:
    """Return the rotary that takes one value to another."""
    width = x.shape[-1]
    moved = np.flatnonzero(np.abs(x - y).reshape(-1, width).max(0))
    if not moved.size:
        return None
    inner = list(range(int(moved[0]), int(moved[-1]) + 1))
    for numbers in dict.fromkeys((tuple(range(width)), tuple(inner))):
        if len(numbers) % 2:
            continue
        half = len(numbers) // 2
        for pairs in (list(zip(numbers[:half], numbers[half:], strict=True)),
                      list(zip(numbers[::2], numbers[1::2], strict=True))):  # fmt: skip
            one, two = ([pair[n] for pair in pairs] for n in (0, 1))
            before, after = (z[..., one] + 1j * z[..., two] for z in (x, y))
            for axis in range(x.ndim - 1):
                if (turns := _turns(before, after, axis)) is not None:
                    return _Rotary(tuple(pairs), axis, turns, at, source, x.shape)
    return None


def _turns(
    one: NDArray[np.complex128], two: NDArray[np.complex128], axis: int
) -> NDArray[np.complex128] | None:  # fmt: skip
    """Return by what pairs are turned, [places, pairs]; None where that differs in samples or heads."""
    a, b = (np.moveaxis(z, axis, 0).reshape(z.shape[axis], -1, z.shape[-1]) for z in (one, two))
    if a.shape[0] < 2 or a.shape[1] < 2 or np.abs(a).min() <= LEAST * np.abs(a).max():
        return None
    turns = b / a
    mean = np.asarray(turns.mean(1))
    even = np.abs(turns - mean[:, None]).max() <= CLOSE and np.abs(np.abs(mean) - 1.0).max() <= CLOSE
    further = np.abs(mean[1:] - mean[:1]).max(initial=0.0) > CLOSE  # or it turns all places alike
    return mean if even and further else None


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:6]))
    return f"{shown} and {len(numbers) - 6} more" if len(numbers) > 6 else shown

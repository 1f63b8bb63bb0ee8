"""What an operation makes of all numbers along axes of a value, such as their sum: told by values, and others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from parity.checks.programs.edits import FloatNumbers, OperationChange, edit_of, equal
from parity.contract import OperationEdit, ProgramOperation

__all__ = ["reduced_over", "reductions_of"]

_REDUCED: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "mean": np.mean, "maximum": np.max, "minimum": np.min,
    "mean of squares": lambda x, axis, **k: np.mean(x * x, axis=axis, **k), "root of the sum of squares":
    lambda x, axis, **k: np.sqrt(np.sum(x * x, axis=axis, **k)),
    "first": lambda x, axis, **k: _end(x, axis, 0), "last": lambda x, axis, **k: _end(x, axis, -1),
}  # fmt: skip


def _end(x: FloatNumbers, axes: Sequence[int], place: int) -> FloatNumbers:
    """Return the first or last values along axes."""
    for axis in sorted(axes, reverse=True):
        x = np.asarray(x.take(place, axis))
    return x


def reductions_of(one: ProgramOperation) -> Iterator[OperationChange]:
    """Yield other reductions of an input, or the same over other axes."""
    y = one.outputs[0]
    for place, x in enumerate(one.inputs):
        same, own = _ways(x, y)
        if not own:
            continue
        word, over = own[0]
        for way in same:
            if way in own or (way[0] != word and way[1] != over):
                continue
            function = _REDUCED[way[0]]
            edit = OperationEdit(
                after=lambda o, i, s, f=function, w=way, p=place: (
                    np.asarray(f(i[p], axis=w[1])).reshape(o[0].shape),
                )  # type: ignore[misc]
            )
            yield OperationChange(
                "reduction", f"{word} over {_axes(over)}", f"{way[0]} over {_axes(way[1])}", 1, edit
            )
        for axis in range(y.ndim):
            for more in dict.fromkeys((word, "mean")) if y.shape[axis] > 1 and word in ("sum", "mean") else ():
                whole = edit_of(
                    lambda y, w=more, a=axis: np.broadcast_to(_REDUCED[w](y, axis=a, keepdims=True), y.shape)
                )
                own_words = f"{word} over {_axes(over)}"
                other = f"{own_words}, and {'' if more == word else 'the mean '}over axis {axis} of that"
                yield OperationChange("reduction", own_words, other, 1, whole)
        return


def _axes(axes: Sequence[int]) -> str:
    return ("axis " if len(axes) == 1 else "axes ") + ", ".join(map(str, axes))


def _ways(
    x: FloatNumbers, y: FloatNumbers
) -> tuple[dict[tuple[str, tuple[int, ...]], FloatNumbers], list[tuple[str, tuple[int, ...]]]]:
    """Return the reductions of a value that give as many numbers as another has, and those that give that other."""
    if x.dtype.kind != "f" or not 1 <= x.ndim <= 5 or x.size <= y.size:
        return {}, []
    axes = [c for n in range(1, x.ndim + 1) for c in itertools.combinations(range(x.ndim), n)]
    with np.errstate(all="ignore"):
        made = {(word, over): np.asarray(f(x, axis=over)) for word, f in _REDUCED.items() for over in axes}
    same = {way: value for way, value in made.items() if value.size == y.size}
    return same, [way for way, value in same.items() if equal(value.reshape(y.shape), y)]


def reduced_over(one: ProgramOperation) -> str:
    """Return over which axes an operation reduces what it is given, told by values; empty where it does not."""
    y = one.outputs[0]
    for x in one.inputs if y.dtype.kind == "f" else ():
        own = _ways(x, y)[1]
        if len(own) == 1 or (own and len({over for _, over in own}) == 1):
            return f" over {_axes(own[0][1])} of {list(x.shape)}"
    return ""

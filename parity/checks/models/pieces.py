"""Pieces: what a leaf is cut into so that every piece of one model is a piece of the other, up to the order of axes.

A fused projection is the pieces of the separate ones, a stack of layers is the layers; most leaves are one piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cutting", "ExtentsKey", "LeafPart", "PartArrays", "cut", "key_of", "pieces_of", "turns"]

ExtentsKey = tuple[str, tuple[int, ...]]
"""Kind of a piece, and its extents in order without those of one."""


@dataclass(frozen=True)
class Cutting:
    """How leaves of one shape are cut."""

    merged: tuple[int, ...]
    """Their shape after adjacent axes were made one."""
    stacked: int | None = None
    """Axis along which layers lie, one piece each."""
    axis: int | None = None
    """Axis along which each is cut, counted without the one of the layers."""
    extents: tuple[int, ...] = ()
    """Of the parts along that axis."""
    heads: int = 1
    """Groups along that axis, each of which has a share of every part: those of a fused projection, head by head."""
    order: tuple[int, ...] | None = None
    """Of their axes, before adjacent ones are made one: of heads with the width between them; None for their own."""


@dataclass(frozen=True, eq=False)
class LeafPart:
    """A piece of a leaf."""

    leaf: str
    number: int
    """Place among the pieces of the leaf."""
    count: int
    """Pieces of the leaf."""
    kind: str
    index: NDArray[np.int64]
    """Where each element of the piece lies in the leaf, counted in C order; axes of extent one are left out."""

    @property
    def key(self) -> ExtentsKey:
        """Return what a piece shares with all that it could stand for."""
        return key_of(self.kind, self.index.shape)

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the piece of an array of the leaf's shape."""
        return np.asarray(array.reshape(-1)[self.index])

    def __str__(self) -> str:
        """Return the leaf, and which piece of it this is."""
        return self.leaf if self.count == 1 else f"{self.leaf} (part {self.number + 1} of {self.count})"


PartArrays = Mapping[LeafPart, NDArray[np.float64]]
"""Something of each piece, such as its gradient."""


def key_of(kind: str, shape: Sequence[int]) -> ExtentsKey:
    """Return the key of a shape.

    Args:
        kind: `parameter` or `statistic`.
        shape: Its axes of length 1 count for nothing.
    """
    return kind, tuple(sorted(n for n in shape if n != 1))


def cut(shape: Sequence[int], cutting: Cutting) -> list[NDArray[np.int64]]:
    """Return where the elements of each piece lie, in the order of layers and parts.

    Args:
        shape: Of the leaf.
        cutting: How it is cut.

    Example:
        >>> [one.tolist() for one in cut((4,), Cutting((4,), axis=0, extents=(1, 3)))]
        [0, [1, 2, 3]]
    """
    whole: NDArray[np.int64] = np.arange(int(np.prod(shape)), dtype=np.int64)
    if cutting.order is not None:
        whole = whole.reshape(shape).transpose(cutting.order)
    whole = whole.reshape(cutting.merged)
    layers = [whole] if cutting.stacked is None else list(np.moveaxis(whole, cutting.stacked, 0))
    if cutting.axis is None:
        return [np.squeeze(one) for one in layers]
    if cutting.heads > 1:
        return [np.squeeze(part) for one in layers for part in _by_heads(one, cutting)]
    bounds = list(pairwise(accumulate(cutting.extents, initial=0)))
    return [np.squeeze(one.take(range(low, high), cutting.axis)) for one in layers for low, high in bounds]


def _by_heads(whole: NDArray[np.int64], cutting: Cutting) -> list[NDArray[np.int64]]:
    """Return equal parts that lie side by side in every group along an axis."""
    axis, parts = cutting.axis or 0, len(cutting.extents)
    left, right = whole.shape[:axis], whole.shape[axis + 1 :]
    grouped = whole.reshape(*left, cutting.heads, parts, -1, *right)
    return [grouped.take(at, axis + 1).reshape(*left, -1, *right) for at in range(parts)]


def pieces_of(
    shapes: Mapping[str, tuple[int, ...]], statistics: frozenset[str], plan: Mapping[tuple[int, ...], Cutting]
) -> list[LeafPart]:
    """Return the pieces of all leaves of a model.

    Args:
        shapes: Leaf to shape.
        statistics: Leaves that are running statistics.
        plan: Shape to how it is cut; one without is a piece itself.
    """
    found = []
    for leaf, shape in shapes.items():
        parts = cut(shape, plan.get(shape, Cutting(shape)))
        kind = "statistic" if leaf in statistics else "parameter"
        found += [LeafPart(leaf, at, len(parts), kind, one) for at, one in enumerate(parts)]
    return found


def turns(here: tuple[int, ...], there: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the orders of axes that take one shape to another.

    Args:
        here: A shape.
        there: Another; of another number of axes no order takes the one to it.

    Example:
        >>> turns((2, 3), (3, 2)), turns((2, 2), (2, 2))
        ([(1, 0)], [(0, 1), (1, 0)])
    """
    orders = permutations(range(len(here)))
    return [axes for axes in orders if tuple(here[axis] for axis in axes) == there]

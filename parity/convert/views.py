"""Views of one storage that no target keeps as such: what one of them changes in place, the others have in PyTorch.

Arrays that are the same elements stay tied (`Array.shared`). One that is a part of another, as slices of a flat
buffer beside that buffer, becomes an array of its own: equal in value, and on its own from then on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parity.formats import Array, Tree, leaf_name, leaves

__all__ = ["overlapping"]

MOST = 1 << 20
"""Elements of an array whose places are compared one by one; a larger one with gaps is not looked at."""

View = tuple[str, int, tuple[int, ...], tuple[int, ...], int]
"""Name, first element, strides in elements, extents, bytes of an element."""


def overlapping(tree: Tree) -> list[str]:
    """Return the names of arrays that are other views of elements that one more array has, in their order.

    Args:
        tree: What was read; of formats that keep no storages no array is a view.

    Example:
        >>> overlapping({"weight": 1})
        []
    """
    storages: dict[object, list[View]] = defaultdict(list)
    for at, one in leaves(tree):
        if isinstance(one, Array) and isinstance(one.shared, tuple) and len(one.shared) == 3 and one.size:
            key, offset, strides = one.shared
            storages[key].append((leaf_name(at), offset, strides, one.shape, one.dtype.itemsize))
    found: list[str] = []
    for views in storages.values():
        apart = {view[1:]: view for view in reversed(views)}  # tied ones are one, named by the first
        shared = _of_others(sorted(apart.values(), key=_range))
        found += [one[0] for one in views if one[0] in shared]
    return found


def _of_others(views: Sequence[View]) -> set[str]:
    """Return the names of views that have an element of another, of views in the order in which they begin."""
    found: set[str] = set()
    open_: list[View] = []
    for one in views:
        open_ = [other for other in open_ if _range(other)[1] > _range(one)[0]]  # thousands of slices are disjoint
        met = [other[0] for other in open_ if _meet(one, other)]
        found |= {one[0], *met} if met else set()
        open_.append(one)
    return found


def _meet(one: View, other: View) -> bool:
    """Return whether two views, of which one begins within the other, have an element in common."""
    if _is_whole(one) and _is_whole(other):
        return True
    if max(np.prod(one[3]), np.prod(other[3])) > MOST or one[4] != other[4]:
        return False  # what was not looked at is not said
    return bool(np.isin(_places(one), _places(other)).any())


def _range(view: View) -> tuple[int, int]:
    """Return the first byte of a view and the one behind its last."""
    _, offset, strides, shape, size = view
    return offset * size, (offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1) * size


def _is_whole(view: View) -> bool:
    """Return whether a view has every element between its first and its last."""
    first, behind = _range(view)
    return behind - first == int(np.prod(view[3])) * view[4]


def _places(view: View) -> NDArray[np.int64]:
    """Return the elements of the storage that a view has, one by one."""
    _, offset, strides, shape, _ = view
    places = np.array([offset], np.int64)
    for n, step in zip(shape, strides, strict=True):
        places = (places[:, None] + np.arange(n, dtype=np.int64) * step).ravel()
    return places

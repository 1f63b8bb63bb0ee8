"""An array of a checkpoint that is not loaded: its shape, its dtype, and how a box of it is read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 and the float8 types with NumPy by name
import numpy as np
from numpy.typing import NDArray

from parity.errors import CheckpointError

__all__ = [
    "BLOCK_BYTES",
    "MOST_AXES",
    "Array",
    "Box",
    "InMemory",
    "MappedArray",
    "boxes",
    "contiguous",
    "count_of",
    "dtype_named",
    "extents",
    "number_of",
]

BLOCK_BYTES = 16 << 20
"""Bytes of an array that are read at once, if one row of it has no more."""

MOST_AXES = 64
"""Most axes of an array, as NumPy has it."""

MOST_BYTES = 1 << 62
"""Most bytes of an array, where an axis without elements counts as one, as NumPy counts."""

LONGEST_NAME = 32
"""Longest name of a dtype; others are not even looked up."""

STRIP = 256
"""Rows of a matrix that are transposed at once."""

Box = tuple[tuple[int, int], ...]
"""Start and stop along each axis, within the shape; empty for an array without axes."""


def dtype_named(name: str) -> np.dtype[Any] | None:
    """Return the dtype of a name such as `bfloat16`; None if NumPy and ml_dtypes have none.

    Example:
        >>> dtype_named("float32"), dtype_named("bfloat16").itemsize, dtype_named("qint8"), dtype_named("01i4")
        (dtype('float32'), 2, None, None)
    """
    return _dtype_named(name) if len(name) <= LONGEST_NAME else None


@lru_cache(256)
def _dtype_named(name: str) -> np.dtype[Any] | None:
    try:
        found = np.dtype(name)
    except (TypeError, ValueError, SyntaxError):  # some texts reach NumPy's parser of structured types
        return None
    return found if found.name == name and found.kind in "biufcV" and found.itemsize else None


class Array(ABC):
    """One array: known by shape and dtype, read by boxes.

    Attributes:
        shape: Its extents.
        dtype: Its dtype, of NumPy or ml_dtypes.
        chunk_bytes: Most bytes that must be in memory to read the smallest box; 0 if any box is read alone.
        shared: Equal for arrays of one shape that are the same elements, such as tied weights; None if not known.
        random_key: Kind of random keys that these are the data of, such as `threefry2x32`; empty for other arrays.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_bytes: int = 0
    shared: object = None
    random_key: str = ""

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Return the bytes of its elements."""
        return self.size * self.dtype.itemsize

    @abstractmethod
    def read(self, box: Box) -> NDArray[Any]:
        """Return a box of it, an array of the box's extents that may be a read-only view of the file.

        Raises:
            CheckpointError: The file does not hold what it should.
            OSError: It cannot be read.
        """

    def blocks(self, most: int = BLOCK_BYTES) -> Iterator[NDArray[Any]]:
        """Yield all of it in C order, in blocks of consecutive elements of at most `most` bytes each."""
        for box in boxes(self.shape, max(1, most // self.dtype.itemsize)):
            yield np.ascontiguousarray(self.read(box)).reshape(-1)

    def load(self) -> NDArray[Any]:
        """Return all of it in memory."""
        return np.array(self.read(tuple((0, n) for n in self.shape)), order="C").reshape(self.shape)

    def __str__(self) -> str:
        """Return its type for messages, such as `float32[2,3]`."""
        return f"{_name_of(self.dtype)}[{','.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        """Return its class and type."""
        return f"<{type(self).__name__} {self}>"


class InMemory(Array):
    """An array that is in memory already: small ones of a pickle, and those of tests."""

    def __init__(self, value: NDArray[Any]) -> None:
        self.value = value
        self.shape, self.dtype = value.shape, value.dtype

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box of it, a view."""
        return self.value[tuple(slice(*pair) for pair in box)]


class MappedArray(Array):
    """An array whose elements lie in a file as they are in memory, in C order or with strides of their own."""

    def __init__(
        self,
        mapped: NDArray[np.uint8],
        dtype: np.dtype[Any],
        shape: Sequence[int],
        *,
        start: int = 0,
        strides: Sequence[int] | None = None,
        shared: object = None,
    ) -> None:
        """Take the bytes of a file, mapped, and where in them the array lies.

        Args:
            mapped: The bytes, one axis; a memory map costs no memory of the process's own.
            dtype: Of the elements, little-endian.
            shape: Extents.
            start: Offset of the first element in bytes.
            strides: Steps along each axis in bytes; those of C order by default.
            shared: As of `Array`.

        Raises:
            CheckpointError: It does not lie within the bytes.
        """
        self.shape, self.dtype, self.shared = tuple(shape), dtype, shared
        self.mapped, self.start = mapped, start
        given = None if strides is None else tuple(strides)
        self.strides, self.contiguous, reach = _laid_out(self.shape, given, dtype.itemsize)
        if start < 0 or (reach and start + reach > mapped.size):
            raise CheckpointError(f"{self} reaches beyond the {mapped.size} bytes that hold it")

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box of it, a read-only view of the file."""
        extent = extents(box)
        if not math.prod(extent):
            return np.empty(extent, self.dtype)
        start = self.start + sum(low * step for (low, _), step in zip(box, self.strides, strict=True))
        whole = np.ndarray(extent, self.dtype, self.mapped, start, self.strides)
        whole.flags.writeable = False
        return whole


@lru_cache(4096)
def _laid_out(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int
) -> tuple[tuple[int, ...], bool, int]:
    """Check how an array lies in memory; many arrays of a file are alike.

    Args:
        shape: Extents.
        strides: Steps along each axis in bytes; None for those of C order.
        itemsize: Bytes of an element.

    Returns:
        The steps, whether they are those of C order, and the bytes from the first element to the end of the last; 0
        where there is none.

    Raises:
        CheckpointError: No array can have such a shape, or such steps.
    """
    counted = math.prod(max(n, 1) for n in shape) * itemsize
    if len(shape) > MOST_AXES or min(shape, default=0) < 0 or counted > MOST_BYTES:
        raise CheckpointError(f"no array can have the shape {str(list(shape))[:80]}")
    c_order = tuple(math.prod(shape[axis + 1 :]) * itemsize for axis in range(len(shape)))
    steps = c_order if strides is None else strides
    if min(steps, default=0) < 0:
        raise CheckpointError(f"an array of the steps {str(list(steps))[:80]} reaches beyond the bytes that hold it")
    alike = (n == 1 or a == b for n, a, b in zip(shape, steps, c_order, strict=True))
    if not math.prod(shape):
        return steps, True, 0
    return steps, all(alike), sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) + itemsize


@lru_cache(256)
def _name_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype, which NumPy puts together anew each time."""
    return dtype.name


def extents(box: Box) -> tuple[int, ...]:
    """Return the extents of a box.

    Example:
        >>> extents(((2, 4), (0, 3)))
        (2, 3)
    """
    return tuple(stop - start for start, stop in box)


def number_of(leaf: Any) -> Any:
    """Return the number that an array of one element holds; any other leaf as it is.

    Example:
        >>> number_of(InMemory(np.array([3.0]))), number_of("text")
        (3.0, 'text')
    """
    return leaf.load().item() if isinstance(leaf, Array) and leaf.size == 1 else leaf


def count_of(leaf: Any) -> int | None:
    """Return the count that a number or an array of one holds; None for anything but a whole number, 0 or more.

    Example:
        >>> count_of(InMemory(np.array([3.0]))), count_of(7), count_of(float("nan")), count_of(True), count_of(2.5)
        (3, 7, None, None, None)
    """
    value = number_of(leaf)
    whole = type(value) is int or (type(value) is float and value.is_integer())
    return int(value) if whole and value >= 0 else None


def contiguous(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array in C order: itself, or a copy; of a transposed one in strips, which stay in the cache.

    Example:
        >>> contiguous(np.arange(6).reshape(2, 3).T).tolist()
        [[0, 3], [1, 4], [2, 5]]
    """
    if values.flags.c_contiguous or values.ndim < 2 or abs(values.strides[-1]) <= values.itemsize:
        return np.ascontiguousarray(values).reshape(values.shape)
    out = np.empty(values.shape, values.dtype)
    for low in range(0, values.shape[-1], STRIP):
        out[..., low : low + STRIP] = values[..., low : low + STRIP]
    return out


def boxes(shape: Sequence[int], most: int) -> Iterator[Box]:
    """Divide an array in C order into boxes of consecutive elements.

    Args:
        shape: Its extents.
        most: Most elements of a box.

    Example:
        >>> list(boxes([2, 3], 4)), list(boxes([], 4)), list(boxes([0, 3], 4))
        ([((0, 1), (0, 3)), ((1, 2), (0, 3))], [()], [])
        >>> list(boxes([1, 3], 2))
        [((0, 1), (0, 2)), ((0, 1), (2, 3))]
    """
    if not math.prod(shape):
        return
    axis = next((a for a in range(len(shape)) if math.prod(shape[a + 1 :]) <= most), None)
    if axis is None:  # no axes at all
        yield ()
        return
    rest = tuple((0, n) for n in shape[axis + 1 :])
    step = max(1, most // math.prod(shape[axis + 1 :]))
    for lead in product(*map(range, shape[:axis])):
        for low in range(0, shape[axis], step):
            yield (*((at, at + 1) for at in lead), (low, min(low + step, shape[axis])), *rest)

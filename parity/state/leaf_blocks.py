"""Blocks of a leaf: a fixed grid over an array; the digests of its blocks make up the digest of the leaf.

So chunks and shards of an array are digested in any order and by several processes, and nobody has to hold it whole.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

__all__ = ["MARK", "LeafDigest", "Order", "array_type", "block_shape", "bytes_of"]

BLOCK = 1 << 18
"""Most elements of a block: 1 MiB of float32."""

RUN = 1 << 14
"""Most elements of a block along one axis, unless it would be small: a block of a matrix of at most so many columns
is one run of memory, which is digested without a copy."""

Shape = tuple[int, ...]

Order = tuple[int, ...]
"""Axes of an array, slowest first: `a.transpose(order)` is in C order. Empty for C order itself."""

AnyArray = NDArray[Any]

MARK = "blocks "
"""What stands before a digest that is made of those of blocks."""


def block_shape(shape: Sequence[int], order: Order = ()) -> Shape:
    """Return the extents of the blocks that an array is divided into.

    An array of at most 2**18 elements is one block. Of a larger one, a block has at most 2**14 elements along each
    axis, and 2**18 in all, taken from the axis that is fastest in the order to the slowest; one that is still small
    (of a long, narrow array) grows to 2**18. Extents are powers of two or the whole axis.

    Args:
        shape: Shape of the array.
        order: Its axes, slowest first; empty for C order.

    Example:
        >>> block_shape((4096, 4096)), block_shape((4096, 4096), (1, 0)), block_shape((512, 256, 3, 3))
        ((64, 4096), (4096, 64), (64, 256, 3, 3))
        >>> block_shape((128, 50000)), block_shape((48, 1024, 1024)), block_shape((10**6,))
        ((16, 16384), (1, 256, 1024), (262144,))
    """
    if math.prod(shape) <= BLOCK:
        return tuple(shape)
    block = [1] * len(shape)
    for most in (RUN, BLOCK):
        for axis in reversed(order or range(len(shape))):
            room = min(most, BLOCK * block[axis] // math.prod(block))
            block[axis] = max(block[axis], min(shape[axis], 1 << room.bit_length() - 1))
    return tuple(block)


def array_type(dtype: DTypeLike | str, shape: Sequence[int], order: Order = ()) -> str:
    """Return the type of an array as digests name it: dtype, shape, and the order of its axes if not C order.

    Example:
        >>> array_type("bfloat16", (2, 3)), array_type(np.float32, (2, 3), (1, 0))
        ('bfloat16[2,3]', 'float32[2,3]@1,0')
    """
    return f"{_name(dtype)}[{','.join(map(str, shape))}]" + ("@" + ",".join(map(str, order)) if order else "")


def bytes_of(dtype: str, size: int) -> np.dtype[Any]:
    """Return a type for the elements of one that NumPy does not know, such as `bfloat16`: bytes that have its name.

    Args:
        dtype: The name.
        size: Bytes of an element.

    Example:
        >>> array_type(bytes_of("bfloat16", 2), (3,))
        'bfloat16[3]'
    """
    return np.dtype(f"V{size}", metadata={"name": dtype})


def _name(dtype: DTypeLike | str) -> str:
    if isinstance(dtype, str):
        return dtype
    known = np.dtype(dtype)
    metadata: Mapping[str, str] = known.metadata or {}
    return metadata.get("name", str(known))


@dataclass
class _BlockPart:
    """A block of which some elements are here."""

    values: AnyArray
    given: NDArray[np.bool_]


class LeafDigest:
    """The digest of an array that comes in pieces: chunks or shards, in any order, each element once.

    A block is digested as soon as it is complete; only the bytes of incomplete blocks are kept. What was added in
    other processes is merged. After an error the object is of no further use.

    Args:
        shape: Shape of the whole array.
        dtype: Its type; a name, such as `bfloat16`, need not be known to NumPy.
        order: The order of axes in which the bytes of a block are digested, for arrays that lie in memory that way:
            over the transposed form, every matrix of a JAX state would have to be transposed.

    Raises:
        ValueError: The order is not one of the array's axes.

    Numerics: a block's digest is the XXH3-128 of its bytes, the leaf's the XXH3-128 of its blocks' digests (16 bytes
    each, most significant byte first) in C order of the grid. An array without elements has no blocks; one without
    axes has one.

    Example:
        >>> value = np.arange(12, dtype=np.float32).reshape(3, 4)
        >>> rows, rest = LeafDigest((3, 4), "float32"), LeafDigest((3, 4), "float32")
        >>> rows.add((2, 0), value[2:])
        >>> rest.add((0, 0), value[:2])
        >>> rows.merge(LeafDigest.unpacked(rest.packed()))
        >>> rows.text()
        'float32[3,4] blocks b67162bb60f4c41a14e46194a57b4872'
    """

    def __init__(self, shape: Sequence[int], dtype: DTypeLike | str, order: Order = ()) -> None:
        self.shape, self.order = tuple(shape), order
        self.dtype = _name(dtype)
        self._axes = order or tuple(range(len(self.shape)))
        if sorted(self._axes) != list(range(len(self.shape))):
            raise ValueError(f"{order} are not the axes of an array of shape {self.shape}")
        self._block = block_shape(self.shape, order)
        self._grid = tuple(-(-n // b) if b else 0 for n, b in zip(self.shape, self._block, strict=True))
        self._digests: dict[int, bytes] = {}
        self._parts: dict[int, _BlockPart] = {}
        self._scratch = np.empty(0, np.uint8)

    def add(self, start: Sequence[int], piece: AnyArray) -> None:
        """Add a box of the array.

        Args:
            start: Index of its first element in the whole array, one number for each axis.
            piece: Its elements, with the axes of the whole array, in any memory layout.

        Raises:
            ValueError: It is of another type, is not inside the array, or has elements that were added before.
        """
        if str(piece.dtype) != self.dtype and piece.dtype.kind != "V":  # bytes of a type that NumPy does not know
            raise ValueError(f"a piece of {piece.dtype} was added to an array of {self.dtype}")
        at, ndim = tuple(start), len(self.shape)
        if not len(at) == piece.ndim == ndim or any(
            low < 0 or low + n > most for low, n, most in zip(at, piece.shape, self.shape, strict=True)
        ):
            raise ValueError(f"a piece of shape {piece.shape} at {at} is not inside an array of shape {self.shape}")
        words = piece.view(_words(piece.itemsize))
        whole: list[tuple[int, AnyArray]] = []
        for index in product(*map(_touched, at, piece.shape, self._block)):
            number, extent = self._block_at(index)
            source, target = [], []
            for i, size, low, n, side in zip(index, extent, at, piece.shape, self._block, strict=True):
                first, end = max(low, i * side), min(low + n, i * side + size)
                source.append(slice(first - low, end - low))
                target.append(slice(first - i * side, end - i * side))
            values = words[tuple(source)]
            if number in self._digests or (values.shape == extent and number in self._parts):
                raise ValueError(f"elements of block {index} were added twice")
            if values.shape == extent:
                whole.append((number, values))
            else:
                self._fill(number, extent, tuple(target), values, np.True_)
        self._complete(whole)

    def merge(self, other: LeafDigest) -> None:
        """Add what was added to another one, which does not change.

        Raises:
            ValueError: It is of another array, or has elements that are here already.
        """
        if (self.shape, self.dtype, self.order) != (other.shape, other.dtype, other.order):
            raise ValueError(f"pieces of {other.type} were merged into {self.type}")
        clash = other._digests.keys() & {*self._digests, *self._parts} | other._parts.keys() & self._digests.keys()
        if clash:
            raise ValueError(f"elements of block number {min(clash)} were added twice")
        self._digests |= other._digests
        for number, part in other._parts.items():
            extent = part.given.shape
            self._fill(number, extent, tuple(map(slice, extent)), part.values, part.given)

    def text(self) -> str:
        """Return `type blocks digest`, the text of the leaf.

        Raises:
            ValueError: Elements are missing.
        """
        count = math.prod(self._grid)
        if missing := count - len(self._digests):
            raise ValueError(f"elements of {missing} of {count} blocks are missing")
        joined = b"".join(self._digests[number] for number in range(count))
        return f"{self.type} {MARK}{xxhash.xxh3_128_hexdigest(joined)}"

    @property
    def type(self) -> str:
        """Return the type of the array as its text names it."""
        return array_type(self.dtype, self.shape, self.order)

    @property
    def waiting(self) -> int:
        """Return the bytes of the blocks of which not all elements are here."""
        return sum(part.values.nbytes for part in self._parts.values())

    def packed(
        self, owner: int = 0, owners: int = 1, only: Literal["digests", "parts"] | None = None
    ) -> dict[str, Any]:
        """Return what was added as plain data that JSON holds, to be sent to another process.

        An array that is sharded along an axis that its blocks do not divide has incomplete blocks in every process.
        If process k merges what all others packed for owner k, each holds a share of them, and one merges the rest.

        Args:
            owner: The process that it is for: it gets the blocks of which the number modulo `owners` is this.
            owners: Number of processes that complete blocks.
            only: Whether the complete blocks alone go with it, by their digests, or the others, by their elements.
        """

        def own(kind: str, blocks: dict[int, Any]) -> dict[int, Any]:
            given = blocks if only in (kind, None) else {}
            return {number: given[number] for number in given if number % owners == owner}

        return {
            "array": [self.shape, self.dtype, self.order],
            "digests": {str(number): digest.hex() for number, digest in own("digests", self._digests).items()},
            "parts": {
                str(number): [_encoded(np.packbits(part.given)), _encoded(part.values[part.given])]
                for number, part in own("parts", self._parts).items()
            },
        }

    def owners(self, owners: int) -> set[int]:
        """Return those of so many owners, as of `packed`, that blocks of this fall to."""
        return {number % owners for blocks in (self._digests, self._parts) for number in blocks}

    @classmethod
    def unpacked(cls, value: dict[str, Any]) -> LeafDigest:
        """Return what `packed` described, after a way through JSON or without one."""
        shape, dtype, order = value["array"]
        made = cls(tuple(shape), dtype, tuple(order))
        made._digests = {int(number): bytes.fromhex(digest) for number, digest in value["digests"].items()}
        for number, (mask, data) in value["parts"].items():
            _, extent = made._block_at(map(int, np.unravel_index(int(number), made._grid)))
            given = np.unpackbits(np.frombuffer(b64decode(mask), np.uint8), count=math.prod(extent)).astype(np.bool_)
            size = len(held := b64decode(data)) // int(given.sum())
            values = np.empty(extent, _words(size))
            values[given.reshape(extent)] = np.frombuffer(held, values.dtype)
            made._parts[int(number)] = _BlockPart(values, given.reshape(extent))
        return made

    def _block_at(self, index: Iterable[int]) -> tuple[int, Shape]:
        """Return the number of a block in C order of the grid, and its extents: at the edges, what is there."""
        number, extent = 0, []
        for i, count, side, n in zip(index, self._grid, self._block, self.shape, strict=True):
            number = number * count + int(i)
            extent.append(min(side, n - int(i) * side))
        return number, tuple(extent)

    def _fill(self, number: int, extent: Shape, where: tuple[slice, ...], values: AnyArray, given: Any) -> None:
        """Put elements into an incomplete block, and digest it if these were the last."""
        if number not in self._parts:
            self._parts[number] = _BlockPart(np.empty(extent, values.dtype), np.zeros(extent, np.bool_))
        part = self._parts[number]
        if (part.given[where] & given).any():
            raise ValueError(f"elements of block number {number} were added twice")
        np.copyto(part.values[where], values, where=given)
        part.given[where] |= given
        if part.given.all():
            self._complete([(number, self._parts.pop(number).values)])

    def _complete(self, blocks: Sequence[tuple[int, AnyArray]]) -> None:
        for number, block in blocks:
            values = block.transpose(self._axes)
            if not values.flags.c_contiguous:
                values = self._gathered(values)
            self._digests[number] = xxhash.xxh3_128(values.reshape(-1).view(np.uint8).data).digest()

    def _gathered(self, values: AnyArray) -> AnyArray:
        """Return a copy in C order, in memory that the next call uses again."""
        if self._scratch.nbytes < values.nbytes:
            self._scratch = np.empty(values.nbytes, np.uint8)
        copy = self._scratch[: values.nbytes].view(values.dtype).reshape(values.shape)
        np.copyto(copy, values)
        return copy


def _touched(low: int, n: int, side: int) -> range:
    """Return the blocks along an axis that have some of n elements from `low` on."""
    return range(low // side, -(-(low + n) // side)) if n else range(0)


def _words(size: int) -> np.dtype[Any]:
    """Return a type that moves elements of a size without looking at them."""
    return np.dtype(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")


def _encoded(values: AnyArray) -> str:
    return b64encode(values.tobytes()).decode()

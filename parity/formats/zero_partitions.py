"""Flat partitions of ZeRO: where each parameter lies in what the ranks hold, as arrays that are read by boxes.

Stages 1 and 2 flatten the parameters of a group one after the other and cut the result into one part for each rank.
Stage 3 cuts each parameter into equal parts, the last one padded, and each rank flattens its parts.

Source: `deepspeed/utils/zero_to_fp32.py` and `deepspeed/runtime/zero/stage_1_and_2.py`, DeepSpeed 0.19.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from parity.errors import CheckpointError
from parity.formats.array import Array
from parity.formats.pieces import FlatArray, Segment

__all__ = ["FlatStream", "cut_groups", "cut_parameters", "parts_of", "require_fragments"]

ParameterShapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class FlatStream:
    """Flat arrays, one after the other."""

    arrays: Sequence[Array]

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return sum(array.size for array in self.arrays)

    def segments(self, start: int, size: int) -> list[Segment]:
        """Return where a range of elements lies."""
        stops = accumulate((array.size for array in self.arrays), initial=0)
        return [
            Segment(array, max(start - first, 0), min(start + size, last) - max(start, first))
            for array, (first, last) in zip(self.arrays, pairwise(stops), strict=True)
            if max(start, first) < min(start + size, last)
        ]


def cut_groups(
    stream: FlatStream, shapes: ParameterShapes, paddings: Sequence[int] | None, ranks: int, where: str
) -> dict[str, Array]:
    """Return the parameters of one group of stages 1 and 2.

    Args:
        stream: The partitions of the group, in the order of the ranks.
        shapes: Name to shape, in the order in which they were flattened.
        paddings: Elements after each parameter that are none; None before DeepSpeed 0.18.
        ranks: How many partitions there are, which decides what padding may follow the last parameter.
        where: For messages.

    Raises:
        CheckpointError: The partitions are shorter or longer than the parameters need.
    """
    gaps = paddings or [0] * len(shapes)
    if len(gaps) != len(shapes):
        raise CheckpointError(f"{where}: {len(gaps)} paddings of {len(shapes)} parameters")
    found: dict[str, Array] = {}
    start = 0
    for (name, shape), gap in zip(shapes.items(), gaps, strict=True):
        found[name] = _flat(f"{where}: {name}", shape, stream.segments(start, math.prod(shape)))
        start += math.prod(shape) + gap
    align = 2 * ranks
    if -(-start // align) != -(-stream.size // align):
        raise CheckpointError(f"{where}: the parameters take {start:,} elements, the partitions have {stream.size:,}")
    return found


def require_fragments(
    stream: FlatStream,
    shapes: ParameterShapes,
    paddings: Sequence[int] | None,
    recorded: Sequence[Mapping[str, tuple[int, int]]],
    where: str,
) -> None:
    """Check that each partition of a group holds what its own file says: the names of files alone order the ranks.

    Args:
        stream: The partitions of the group, in the order of the ranks.
        shapes: Name to shape, in the order in which they were flattened.
        paddings: Elements after each parameter that are none; None before DeepSpeed 0.18.
        recorded: Of each rank, name to where a part of the parameter begins in its partition, and its elements.
        where: For messages.

    Raises:
        CheckpointError: A file says that it holds another part than the one of its rank.
    """
    starts: dict[str, int] = {}
    at = 0
    for (name, shape), gap in zip(shapes.items(), paddings or [0] * len(shapes), strict=True):
        starts[name] = at
        at += math.prod(shape) + gap
    bounds = pairwise(accumulate((array.size for array in stream.arrays), initial=0))
    for rank, ((first, last), parts) in enumerate(zip(bounds, recorded, strict=True)):
        for name, shape in shapes.items():
            start, stop = max(starts[name], first), min(starts[name] + math.prod(shape), last)
            expected = (start - first, stop - start) if start < stop else None
            found = parts.get(name)
            if found != expected and (found or expected or (0, 0))[1]:
                raise CheckpointError(
                    f"{where}: the file of rank {rank} says that it holds {_part(found)} of {name}, and the part of "
                    f"this rank is {_part(expected)}: it is the file of another rank, or of another run"
                )


def _part(found: tuple[int, int] | None) -> str:
    return "nothing" if found is None else f"{found[1]:,} elements, from {found[0]:,} of its own on,"


def cut_parameters(streams: Sequence[FlatStream], shapes: ParameterShapes, where: str) -> dict[str, Array]:
    """Return the parameters of stage 3.

    Args:
        streams: What each rank holds, in the order of the ranks.
        shapes: Name to shape, in the order in which each rank has its parts.
        where: For messages.

    Raises:
        CheckpointError: A rank holds more or less than its parts.
    """
    held = sum(parts_of(math.prod(shape), len(streams)) for shape in shapes.values())
    for rank, stream in enumerate(streams):
        if stream.size != held:
            raise CheckpointError(f"{where}: the parts of rank {rank} take {held:,} elements, it has {stream.size:,}")
    found: dict[str, Array] = {}
    start = 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        part = parts_of(size, len(streams))
        segments = [
            segment
            for rank, stream in enumerate(streams)
            for segment in stream.segments(start, max(0, min(part, size - rank * part)))
        ]
        found[name] = _flat(f"{where}: {name}", shape, segments)
        start += part
    return found


def parts_of(size: int, ranks: int) -> int:
    """Return the elements of a parameter that each rank has, padding included.

    Args:
        size: Elements of the parameter.
        ranks: Number of ranks, at least 1.

    Example:
        >>> parts_of(9, 2), parts_of(8, 2), parts_of(1, 4)
        (5, 4, 1)
    """
    return -(-size // ranks)


def _flat(where: str, shape: tuple[int, ...], segments: list[Segment]) -> Array:
    try:
        return FlatArray(shape, segments)
    except CheckpointError as error:
        raise CheckpointError(f"{where}: {error}") from error

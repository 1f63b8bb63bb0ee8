"""Which process sends which bytes of a checkpoint, where several of one run send it: shares, cut between blocks.

Every process can read every byte, as the directory is theirs in common; who sends what decides nothing but speed. A
process takes blocks that it wrote itself, whose bytes its machine may still hold, but no more than an equal share:
where one process wrote everything, as with copies of the state in each, the links of all are used all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from parity.checkpoints.remote.head import piece_key
from parity.storage import BLOCK, FileDigest, join_blocks
from parity.storage.stores import Objects, upload_range

__all__ = ["Carriers", "FilePart", "Wrote", "divide", "joined", "part_key", "send_part"]

Wrote = Mapping[str, Mapping[int, int]]
"""File of a checkpoint to the number of each block of it, to the bytes of it that a process wrote."""


class FilePart(NamedTuple):
    """Bytes of a file that one process sends as one object."""

    file: str
    """Its path in the checkpoint."""
    start: int
    """First byte, the beginning of a block."""
    size: int


class Carriers(Protocol):
    """The processes of a run that send its checkpoints together."""

    def carry(
        self, folder: Objects, path: Path, sizes: Mapping[str, int], go_on: Callable[[], None]
    ) -> Mapping[FilePart, Sequence[bytes]]:
        """Send the files of a checkpoint, in parts.

        Args:
            folder: Of the checkpoint, at the store.
            path: The checkpoint.
            sizes: File to its bytes.
            go_on: Called now and then; what it raises ends the sending.

        Returns:
            Every part, to the digests of its blocks as they were sent.

        Raises:
            StoreError: The store refused or was not reached, here too.
            OSError: A file cannot be read.
        """

    def carry_again(
        self,
        folder: Objects,
        path: Path,
        sizes: Mapping[str, int],
        parts: Sequence[FilePart],
        go_on: Callable[[], None],
    ) -> Mapping[FilePart, Sequence[bytes]]:
        """Send parts in this process alone: another one sent other bytes than the seal has.

        Args:
            folder: As of `carry`.
            path: The checkpoint.
            sizes: File to its bytes.
            parts: What is sent.
            go_on: As of `carry`.

        Raises:
            StoreError: The store refused or was not reached.
            OSError: A file cannot be read.
        """


def divide(sizes: Mapping[str, int], wrote: Sequence[Wrote]) -> list[list[FilePart]]:
    """Divide the files of a checkpoint among processes.

    Args:
        sizes: File to its bytes.
        wrote: For each process what it wrote; empty where that is not known.

    Returns:
        For each process its parts, in the order of the files.

    Example:
        >>> for parts in divide({"state": 3 * BLOCK, "meta": 5}, [{"state": {2: BLOCK}}, {}]):
        ...     print([(part.file, part.start // BLOCK, part.size // BLOCK) for part in parts])
        [('state', 1, 2)]
        [('state', 0, 1), ('meta', 0, 0)]
    """
    units = [(name, at) for name, size in sizes.items() for at in range(0, max(size, 1), BLOCK)]
    fair = -(-sum(sizes.values()) // len(wrote))
    loads = [0] * len(wrote)
    chosen: dict[tuple[str, int], int] = {}
    rest = []
    for name, at in units:
        size = min(BLOCK, sizes[name] - at)
        bytes_of = [one.get(name, {}).get(at // BLOCK, 0) for one in wrote]
        most = max(bytes_of)
        who = bytes_of.index(most)
        if most and loads[who] + size <= max(fair, size):
            chosen[name, at] = who
            loads[who] += size
        else:
            rest.append((name, at, size))
    who = 0
    for name, at, size in rest:  # one process after the other, so that neighbours stay together
        if loads[who] + size > fair:
            who = loads.index(min(loads))
        chosen[name, at] = who
        loads[who] += size
    return [_parts(sizes, [unit for unit in units if chosen[unit] == one]) for one in range(len(wrote))]


def _parts(sizes: Mapping[str, int], units: Sequence[tuple[str, int]]) -> list[FilePart]:
    """Join blocks that lie together."""
    parts: list[FilePart] = []
    for name, at in units:
        size = min(BLOCK, sizes[name] - at)
        last = parts[-1] if parts else None
        if last is not None and last.file == name and last.start + last.size == at:
            parts[-1] = last._replace(size=last.size + size)
        else:
            parts.append(FilePart(name, at, size))
    return parts


def part_key(part: FilePart, whole: int) -> str:
    """Return the object of a part, below the folder of its checkpoint.

    Args:
        part: The part.
        whole: Bytes of its file: what is all of it lies as one process sends it.
    """
    return f"files/{part.file}" if part.size == whole else piece_key(part.file, part.start, part.size)


def send_part(folder: Objects, path: Path, part: FilePart, whole: int) -> list[bytes]:
    """Send a part of a checkpoint; return the digests of its blocks, of the bytes that were sent.

    Args:
        folder: Of the checkpoint, at the store.
        path: The checkpoint.
        part: The part.
        whole: Bytes of its file.

    Raises:
        StoreError: The store refused or was not reached.
        OSError: The file cannot be read.
    """
    return upload_range(folder, part_key(part, whole), path / part.file, part.start, part.size)


def joined(sizes: Mapping[str, int], sent: Mapping[FilePart, Sequence[bytes]]) -> dict[str, FileDigest]:
    """Return the digest of each file, as it was sent, from those of its parts."""
    blocks: dict[str, list[bytes]] = {name: [] for name in sizes}
    for part in sorted(sent):
        blocks[part.file] += sent[part]
    return {name: FileDigest(size, join_blocks(blocks[name])) for name, size in sizes.items()}

"""The gather of digests and the manifest of a checkpoint for 10 to 10,000 processes, without that many processes.

`python -m benchmarks.many_processes` prints the tables of docs/scale.md. What each process would send is made by the
code that makes it, one process after the other, and what the receiver does with it is done and timed; what a network
adds is not. Times are those of a processor, so that others who use the machine do not count.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.checkpoints.seal import Seal, parse_seal, seal_text
from parity.state import LeafDigest
from parity.storage import FileDigest

__all__ = ["Gathered", "Manifest", "gather", "main", "manifest"]

SHAPE = (14336, 4096)
"""Of a leaf: the projection of a block of an 8-billion-parameter model."""
LEAVES = 410
"""So many of them are 24 billion elements: the model, with two moments for each parameter, in float32."""
PROCESSES = (10, 100, 1000, 10000)
FILES = 3
"""Files that each process writes, as those of an OCDBT database of its own."""


@dataclass(frozen=True)
class Gathered:
    """What the gather of one leaf costs: bytes that one process receives, and its seconds of a processor."""

    megabytes: float
    """Received by process 0."""
    seconds: float
    """Of process 0, to the digest of the leaf."""
    before: float
    """Of the process that works longest before process 0 can begin; 0 where nothing comes before."""
    text: str
    """The digest of the leaf: the same in whatever way it was gathered."""


def gather(processes: int, shape: tuple[int, int] = SHAPE, groups: int = 1, owners: int = 1) -> Gathered:
    """Return what it costs to gather the digest of a leaf that is split by rows.

    Args:
        processes: Number of processes; of more than rows, as many as there are rows hold something.
        shape: Of the leaf.
        groups: Groups of neighbouring processes, each of which one gathers first; 1 for none.
        owners: Processes that each complete a share of the blocks first; 1 for none.
    """
    rows = -(-shape[0] // processes)
    starts = range(0, shape[0], rows)
    size = -(-len(starts) // groups)
    last = _Receiver(shape)
    first = [_Receiver(shape) for _ in range(groups if groups > 1 else owners)]
    for at, start in enumerate(starts):
        message = _message(start, min(rows, shape[0] - start), shape)
        if owners > 1:  # every process sends each owner its part; process 0 gets whole blocks alone
            for owner, part in _shares(message, owners):
                first[owner].take(part)
        elif groups > 1:
            first[at // size].take(message)
        else:
            last.take(message)
    for one in first if max(groups, owners) > 1 else ():
        last.take(one.digest.packed())
    before = max(one.seconds for one in first) if max(groups, owners) > 1 else 0.0
    return Gathered(last.megabytes, last.seconds, before, last.text())


class _Receiver:
    """One process that merges what others send it, with the bytes and the seconds of that."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.digest = LeafDigest(shape, np.float32)
        self.megabytes = self.seconds = 0.0

    def take(self, message: dict[str, Any]) -> None:
        """Merge a message."""
        sent = json.dumps(message)
        self.megabytes += len(sent) / 1e6
        began = time.process_time()
        self.digest.merge(LeafDigest.unpacked(json.loads(sent)))
        self.seconds += time.process_time() - began

    def text(self) -> str:
        """Return the digest of the leaf."""
        began = time.process_time()
        text = self.digest.text()
        self.seconds += time.process_time() - began
        return text


def _message(start: int, rows: int, shape: tuple[int, int]) -> dict[str, Any]:
    """Return what one process has of a leaf."""
    digest = LeafDigest(shape, np.float32)
    digest.add((start, 0), np.full((rows, shape[1]), start, np.float32))
    return digest.packed()


def _shares(message: dict[str, Any], owners: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the part of a message that each owner gets, of those that get any: as `LeafDigest.packed` shares it."""
    for owner in sorted({int(number) % owners for kind in ("digests", "parts") for number in message[kind]}):
        yield owner, {
            "array": message["array"],
            **{kind: {n: value for n, value in message[kind].items() if int(n) % owners == owner}
               for kind in ("digests", "parts")},
        }  # fmt: skip


@dataclass(frozen=True)
class Manifest:
    """What a seal costs whose checkpoint has files of every process."""

    megabytes: float
    written: float
    """Seconds of a processor to its text."""
    read: float
    """Seconds of a processor from its text, with every check of it."""


def manifest(processes: int, leaves: int = LEAVES) -> Manifest:
    """Return what the seal of a checkpoint with `FILES` files of each process costs.

    Args:
        processes: Number of processes.
        leaves: Leaves whose digests it holds.
    """
    files = {f"state/ocdbt.process_{at}/d/{file:032x}": FileDigest(1 << 20, f"{at:032x}")
             for at in range(processes) for file in range(FILES)}  # fmt: skip
    named = {f"model.params.{at}.weight": f"float32[14336,4096] blocks {at:032x}" for at in range(leaves)}
    seal = Seal(step=1, metric=None, saved_at=0.0, side="jax", spec_hash="0" * 32, files=files, leaves=named)
    began = time.process_time()
    text = seal_text(seal)
    written = time.process_time()
    parse_seal(text.encode(), "simulated")
    return Manifest(len(text) / 1e6, written - began, time.process_time() - written)


def lines(processes: Sequence[int]) -> Iterator[str]:
    """Yield the tables of docs/scale.md.

    Args:
        processes: Numbers of processes.
    """
    yield (
        "| processes | to process 0, MB | process 0, s | in groups: MB | leader, s | process 0, s "
        "| in shares: MB | owner, s | process 0, s |"
    )
    yield "|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for count in processes:
        ways = [gather(count), gather(count, groups=math.isqrt(count)), gather(count, owners=min(count, 224))]
        assert len({way.text for way in ways}) == 1
        one, *others = ways
        cells = [f"{LEAVES * one.megabytes:,.0f}", f"{LEAVES * one.seconds:,.1f}"]
        for way in others:
            cells += [f"{LEAVES * way.megabytes:,.1f}", f"{LEAVES * way.before:,.2f}", f"{LEAVES * way.seconds:,.2f}"]
        yield f"| {count:,} | {' | '.join(cells)} |"
    yield ""
    yield "| processes | files | seal, MB | written, s | read and checked, s |"
    yield "|--:|--:|--:|--:|--:|"
    for count in processes:
        seal = manifest(count)
        yield f"| {count:,} | {FILES * count:,} | {seal.megabytes:.2f} | {seal.written:.2f} | {seal.read:.2f} |"


def main(words: Sequence[str] | None = None) -> int:
    """Print the tables; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.many_processes", description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=PROCESSES, help="numbers of processes")
    for line in lines(parser.parse_args(words).processes):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

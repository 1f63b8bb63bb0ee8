"""Every directory that a crash may leave: what was synced is there, and of the rest any part, in any order.

The model is that of ALICE (Pillai et al., OSDI 2014) at its most hostile, after every prefix of the operations:

- the bytes of a file are sure once that file was synced, the names in a folder once that folder was; neither brings
  the other: a file may have its name and no bytes, or its bytes and no name;
- of names that are not sure, any subset may be there: lost, or kept while earlier ones are lost;
- of writes that are not sure, any may be missing, cut short at a sector, or have sectors of zeros or of old bytes;
- one change of one folder is whole or absent (a rename within a folder too: every journal gives that).
"""

import functools
import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.crash.disk import Disk, Tree, applied, enter, seen
from tests.crash.operations import Cut, Entry, Operation, Operations, Sync, Write

__all__ = ["SECTOR", "Crash", "Prefix", "crashes", "versions"]

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""
RECENT = 8
"""Writes before the last one that are left out one by one; earlier ones had their turn after earlier prefixes."""
PATIENCE = 200
"""Known crashes in a row after which a prefix is taken to be exhausted."""
STALE = b"\xa5"
"""What lay there before: blocks that were given to a file and never written."""


@dataclass(frozen=True)
class Crash:
    """One directory that a crash may leave."""

    after: int
    """Operations that were done when it happened."""
    how: str
    """What was lost of them, for people."""
    tree: Tree

    def digests(self) -> tuple[bytes, bytes]:
        """Return two digests, equal for two crashes exactly when the trees are, and when they are but for records."""
        parts = [(path, _digest(content)) for path, content in sorted(self.tree.items())]
        lines = [path.encode() + b"\0" + content for path, content in parts]
        apart = [line for line, (path, _) in zip(lines, parts, strict=True) if not path.endswith(".jsonl")]
        return _digest(b"\n".join(lines)), _digest(b"\n".join(apart))


def crashes(operations: Operations, start: int, stop: int, *, most: int, seed: int = 0) -> Iterator[Crash]:
    """Yield distinct directories that a crash may leave after `start` to `stop` operations, the same every time.

    Every prefix gives one in turn, its systematic cases first and then random ones, until there are `most` or no
    prefix finds new ones. At most three differ in nothing but the records: those are written all the time and synced
    seldom, and would make up most of the crashes.

    Args:
        operations: What happened. What was done before `start` is taken as durable: it was long ago.
    """
    known: set[bytes] = set()
    alike: Counter[bytes] = Counter()

    def fresh(crash: Crash) -> bool:
        whole, apart = crash.digests()
        if whole in known or alike[apart] == 3:
            return False
        known.add(whole)
        alike[apart] += 1
        return True

    prefixes = [Prefix(operations, start, count, seed).crashes() for count in range(start, stop + 1)]
    while prefixes:
        going = []
        for prefix in prefixes:
            crash = next(filter(fresh, itertools.islice(prefix, PATIENCE)), None)
            if crash is None:
                continue
            going.append(prefix)
            yield crash
            if len(known) >= most:
                return
        prefixes = going


def versions(durable: bytes, pending: list[Write | Cut]) -> Iterator[tuple[str, bytes]]:
    """Yield what a file may hold when some of its operations are not sure, each with its name; all of them first."""
    whole = durable
    steps = [whole := applied(whole, operation) for operation in pending]
    yield "whole", whole
    yield "none of it", durable
    base = durable[: len(whole)].ljust(len(whole), b"\0")
    yield "zeros", base
    yield "old blocks", durable[: len(whole)].ljust(len(whole), STALE)
    sectors = changed(base, whole, len(durable))
    for sector in sectors:
        at = sector * SECTOR
        if at >= len(durable):
            yield f"cut at {at}", whole[:at]
        yield f"zeros from {at}", overlaid(base, whole, [s for s in sectors if s < sector])
        yield f"a hole at {at}", overlaid(base, whole, [s for s in sectors if s != sector])
        yield f"nothing but {at}", overlaid(base, whole, [sector])
    for number, step in list(enumerate(steps, 1))[-RECENT:-1]:
        yield f"the first {number} writes", step
    for missing in range(len(pending) - 1)[-RECENT:]:
        content = steps[missing - 1] if missing else durable
        for operation in pending[missing + 1 :]:
            content = applied(content, operation)
        yield f"without write {missing + 1}", content
    yield "half", whole[: (len(durable) + len(whole)) // 2]


def changed(base: bytes, whole: bytes, durable: int) -> list[int]:
    """Return the sectors in which two contents of one length differ, and those past the durable end."""
    count = -(-len(whole) // SECTOR)
    spans = [slice(s * SECTOR, (s + 1) * SECTOR) for s in range(count)]
    return [s for s, span in enumerate(spans) if span.stop > durable or base[span] != whole[span]]


def overlaid(base: bytes, whole: bytes, sectors: Iterable[int]) -> bytes:
    """Return `base` with some sectors of `whole`."""
    content = bytearray(base)
    for sector in sectors:
        span = slice(sector * SECTOR, (sector + 1) * SECTOR)
        content[span] = whole[span]
    return bytes(content)


class Prefix:
    """The crashes after one prefix of the operations."""

    def __init__(self, operations: Operations, start: int, count: int, seed: int) -> None:
        self.count, self.random = count, random.Random(f"{seed} {count}")
        done = operations.done[:count]
        sure = _sure(done, start)
        self.disk = Disk(operations.folders)
        self.entries: list[Entry] = []
        pending: dict[int, list[Write | Cut]] = {}
        for number, operation in enumerate(done):
            if number in sure:
                self.disk.apply(operation)
            elif isinstance(operation, Entry):
                self.entries.append(operation)
            elif isinstance(operation, Write | Cut):
                pending.setdefault(operation.node, []).append(operation)
        self.pending = dict(reversed(pending.items()))  # the newest file first
        self.durable = {node: self.disk.contents.get(node, b"") for node in pending}
        self.found: dict[int, list[tuple[str, bytes]]] = {}

    def crashes(self) -> Iterator[Crash]:
        """Yield the systematic cases, then random ones without end."""
        for lost, contents, how in itertools.chain(self._systematic(), self._random()):
            yield Crash(self.count, f"{how}{self._names(lost)}", self._tree(lost, contents))

    def _systematic(self) -> Iterator[tuple[set[int], dict[int, bytes], str]]:
        every = set(range(len(self.entries)))
        kinds = {kind: self._all(kind) for kind in ("whole", "none of it", "zeros", "old blocks")}
        yield set(), kinds["whole"], "nothing lost"
        yield every, kinds["none of it"], "everything lost"
        for kind in ("none of it", "zeros", "old blocks"):
            yield set(), kinds[kind], f"bytes: {kind}"
        yield every, kinds["whole"], "names lost"
        newest = sorted(every, reverse=True)
        yield from _in_turn(
            (({one}, kinds["whole"], "one name lost") for one in newest),
            self._torn(),
            ((every - {one}, kinds["none of it"], "one name kept, no bytes") for one in newest),
            (({*range(k, len(every))}, kinds["whole"], "later names lost") for k in newest),
            (({one}, kinds["none of it"], "one name lost, no bytes") for one in newest),
            ((every - {one}, kinds["whole"], "one name kept") for one in newest),
            (({a, b}, kinds["whole"], "two names lost") for a, b in itertools.combinations(newest, 2)),
        )

    def _torn(self) -> Iterator[tuple[set[int], dict[int, bytes], str]]:
        whole = self._all("whole")
        cases = [[(node, how, content) for how, content in self._versions(node)] for node in self.pending]
        for node, how, content in _in_turn(*cases):
            yield set(), whole | {node: content}, f"node {node}: {how}"

    def _random(self) -> Iterator[tuple[set[int], dict[int, bytes], str]]:
        if not self.entries and not self.pending:
            return
        while True:
            share = self.random.choice((0.05, 0.3, 0.7, 0.95))
            lost = {i for i in range(len(self.entries)) if self.random.random() < share}
            yield lost, {node: self._any(node) for node in self.pending}, "at random"

    def _any(self, node: int) -> bytes:
        """Return one version of a file, or any subset of its sectors."""
        found = self._versions(node)
        if self.random.random() < 0.5:
            return self.random.choice(found)[1]
        whole, base = found[0][1], found[2][1]
        sectors = changed(base, whole, len(self.durable[node]))
        return overlaid(base, whole, [s for s in sectors if self.random.random() < 0.5])

    def _versions(self, node: int) -> list[tuple[str, bytes]]:
        if node not in self.found:
            self.found[node] = list(versions(self.durable[node], self.pending[node]))
        return self.found[node]

    def _all(self, kind: str) -> dict[int, bytes]:
        return {node: dict(self._versions(node))[kind] for node in self.pending}

    def _tree(self, lost: set[int], contents: dict[int, bytes]) -> Tree:
        entries = dict(self.disk.entries)
        own: set[int] = set()
        for number, entry in enumerate(self.entries):
            if number in lost:
                continue
            if entry.folder not in own:
                own.add(entry.folder)
                entries[entry.folder] = dict(entries[entry.folder])
            enter(entries[entry.folder], entry)
        return seen(entries, self.disk.contents | contents)

    def _names(self, lost: set[int]) -> str:
        shown = [self.entries[i].what for i in sorted(lost)][:4]
        return f" ({len(lost)} of {len(self.entries)} names lost: {'; '.join(shown)})" if lost else ""


def _sure(done: tuple[Operation, ...], start: int) -> set[int]:
    """Return the operations that outlive a crash after `done`: those before `start`, and what was synced since."""
    covered: dict[int, int] = {}
    for sync in done:
        if isinstance(sync, Sync):
            covered[sync.node] = max(sync.covers, covered.get(sync.node, 0))
    return {number for number, op in enumerate(done) if number < max(start, covered.get(_concerns(op), 0))}


def _concerns(operation: Operation) -> int:
    """Return the node whose sync makes an operation durable; -1 for one that changes nothing."""
    if isinstance(operation, Entry):
        return operation.folder
    return operation.node if isinstance(operation, Write | Cut) else -1


@functools.lru_cache(4096)
def _digest(content: bytes | None) -> bytes:
    """Return 32 digits of a file's bytes, another for every folder."""
    return b"folder" if content is None else hashlib.blake2b(content, digest_size=16).hexdigest().encode()


def _in_turn(*iterators: Iterable) -> Iterator:
    """Yield from several in turn, until all are exhausted."""
    waiting = [iter(i) for i in iterators]
    while waiting:
        for one in list(waiting):
            try:
                yield next(one)
            except StopIteration:
                waiting.remove(one)

"""Ranks of one run: where they hold different values, and what all of them hold as if it were of one process.

What is a copy by the framework's own word (`Leaf.copy`) has to agree, and counts; of the rest nothing says that it
should, so where ranks that held the same come to differ is observed.

Runs of other numbers of processes can be compared where parts are put together by the framework's word, and what all
ranks hold alike counts once. What ranks hold otherwise, and of which no framework says that it is a part of
something, has no counterpart in another number of processes: it is named, and never compared.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from parity.capture import Leaf, StateSnapshot, digest_of
from parity.checks.judging.evidence import Evidence
from parity.checks.running import Mark, Trace

__all__ = ["WHOLE", "GatheredRun", "base_of", "copies_apart", "gathered", "placed_in", "processes", "ranks_apart"]

_RANK = re.compile(r"rank(\d+):(.*)", re.DOTALL)
"""A path with the rank that it is of."""
_OTHER = re.compile(r"rank([1-9]\d*):")


def ranks_apart(marks: Sequence[Mark]) -> list[Evidence]:
    """Return where another rank came to hold other state than rank 0, of each path the first time.

    Args:
        marks: Marks of the uninterrupted run, at least one; of one process there is nothing to compare.
    """
    found: dict[str, Evidence] = {}
    alike: set[str] = set()
    for before, mark in itertools.pairwise(marks):
        old, leaves = before.snapshot.leaves, mark.snapshot.leaves
        for path, leaf in leaves.items():
            rank = _OTHER.match(path)
            if rank is None or path in found or leaf.role not in ("state", "array"):
                continue
            first = leaves.get(f"rank0:{path[rank.end() :]}")
            if leaf.same(first):
                if path in old and not leaf.same(old[path]):  # zeros that shards begin with have not moved yet
                    alike.add(path)
            elif first is not None and path in alike:
                when = "otherwise than on rank 0"
                found[path] = Evidence(leaf.component, path, mark.step, first.text, leaf.text, when)
    return list(found.values())


_CAUSES = ("scaler", "schedule", "data", "optimizer")
"""Components that make parameters differ at the same step, in the order of suspicion."""
_FOR_GOOD = 2
"""Marks at the end of a run at which copies have to differ to count: what lets them part and averages them again,
such as local SGD, has parted them at a last mark too."""


def copies_apart(marks: Sequence[Mark]) -> list[Evidence]:
    """Return which copies came to differ between ranks and stayed so: of each path once, where it began.

    Copies that came to agree again were let apart on purpose, as by local SGD between its averages: none of that
    component counts then.

    Args:
        marks: Marks of an uninterrupted run, at least one; of one process there is nothing to compare.
    """
    found: dict[str, Evidence] = {}
    lasting: dict[str, int] = {}
    returned: set[str] = set()
    for mark in marks:
        apart = _apart(mark)
        for path in apart:
            lasting[path] = lasting.get(path, 0) + 1
        for path in found.keys() - apart.keys():
            returned.add(found[path].component)
        for path, (there, here) in apart.items():
            when = f"otherwise than on rank {there[0]}"
            found.setdefault(path, Evidence(here.component, path, mark.step, there[1].text, here.text, when))
    counted = [e for e in found.values() if e.component not in returned and lasting[e.path] >= _FOR_GOOD]
    return sorted(counted, key=lambda e: (e.step, _suspicion(e.component)))


def _apart(mark: Mark) -> dict[str, tuple[tuple[int, Leaf], Leaf]]:
    """Return the copies that differ at a mark, by the path of the later rank, with the rank that differs from it."""
    copies: defaultdict[tuple[str, str], list[tuple[int, Leaf]]] = defaultdict(list)
    for path, leaf in mark.snapshot.leaves.items():
        if leaf.copy and (of_rank := _RANK.fullmatch(path)):
            copies[of_rank[2], leaf.copy].append((int(of_rank[1]), leaf))
    found = {}
    for (path, _), held in copies.items():
        for rank, leaf in held[1:]:
            if not leaf.same(held[0][1]):
                found[f"rank{rank}:{path}"] = (held[0], leaf)
    return found


def _suspicion(component: str) -> int:
    return next((at for at, word in enumerate(_CAUSES) if component.startswith(word)), len(_CAUSES))


WHOLE = "rank0:"
"""What paths of gathered leaves begin with: as those of rank 0, so that what is known of a run by its paths holds."""


class _OfRank(NamedTuple):
    """What one rank has at a path."""

    rank: int
    leaf: Leaf
    value: Any


@dataclass(frozen=True, kw_only=True)
class GatheredRun:
    """One run, of whatever number of processes, as if it were of one."""

    trace: Trace
    """Its marks, with the leaves that can be compared, and without a state at the end."""
    own: frozenset[str]
    """Paths, without a rank, of what ranks hold otherwise at any mark and nothing says to be a part."""
    first: Mapping[str, Mapping[int, Leaf]]
    """Of those at the first mark: path to rank to leaf."""
    last: frozenset[str]
    """Those at the last mark."""


def processes(count: int) -> str:
    """Return a number of processes in words.

    Example:
        >>> processes(1), processes(4)
        ('1 process', '4 processes')
    """
    return f"{count} process{'es' if count > 1 else ''}"


def base_of(path: str) -> str:
    """Return a path without its rank."""
    found = _RANK.fullmatch(path)
    return found[2] if found else path


def placed_in(traces: Sequence[Trace]) -> frozenset[str]:
    """Return the paths, without a rank, of what a framework splits over processes in any of some runs."""
    return frozenset(
        base_of(path) for trace in traces for mark in trace.marks
        for path, leaf in mark.snapshot.leaves.items() if leaf.extent is not None
    )  # fmt: skip


def gathered(trace: Trace, ranks: int, placed: Collection[str]) -> GatheredRun:
    """Return a run with one leaf for each path of its ranks.

    Args:
        trace: The run, with the values of what is placed at every mark.
        ranks: Processes that trained in it.
        placed: Paths, without a rank, of arrays of which some run has parts: of these the elements are compared.

    Numerics: Elements are compared as they are copied: narrow floats as float32, which holds each of them exactly.
    """
    marks, own = [], set()
    first: dict[str, dict[int, Leaf]] = {}
    last: set[str] = set()
    for mark in trace.marks:
        leaves: dict[str, Leaf] = {}
        values: dict[str, Any] = {}
        for base, held in _by_path(mark.snapshot).items():
            found = _whole(held) if base in placed else _alike(held, ranks)
            if found is None:
                own.add(base)
                if mark is trace.marks[-1]:
                    last.add(base)
                if mark is trace.marks[0]:
                    first[base] = {one.rank: one.leaf for one in held}
                continue
            leaves[WHOLE + base] = found[0]
            if found[1] is not None:
                values[WHOLE + base] = found[1]
        dead = frozenset(WHOLE + base_of(path) for path in mark.snapshot.dead)
        snapshot = replace(mark.snapshot, leaves=leaves, values=values, dead=dead)
        marks.append(Mark(mark.step, snapshot, mark.saved, mark.gone, mark.read))
    return GatheredRun(
        trace=replace(trace, marks=marks, final=None, entry=None),
        own=frozenset(own),
        first=first,
        last=frozenset(last),
    )


def _by_path(snapshot: StateSnapshot) -> Mapping[str, list[_OfRank]]:
    found: defaultdict[str, list[_OfRank]] = defaultdict(list)
    for path, leaf in snapshot.leaves.items():
        named = _RANK.fullmatch(path)
        rank, base = (int(named[1]), named[2]) if named else (0, path)
        if leaf.role == "alias":
            leaf = replace(leaf, digest=base_of(leaf.digest))
        if leaf.component.endswith(f":{base}") and _RANK.fullmatch(leaf.component):
            leaf = replace(leaf, component=base)
        found[base].append(_OfRank(rank, leaf, snapshot.values.get(path)))
    return found


def _alike(held: Sequence[_OfRank], ranks: int) -> tuple[Leaf, Any] | None:
    """Return what every rank holds; None where one holds something else, or nothing."""
    leaf = held[0].leaf
    if len(held) < ranks or not all(one.leaf.same(leaf) for one in held):
        return None
    if leaf.role == "alias":
        leaf = replace(leaf, digest=WHOLE + leaf.digest)
    return leaf, held[0].value


def _whole(held: Sequence[_OfRank]) -> tuple[Leaf, Any] | None:
    """Return an array of which ranks have parts, or all of it; None where what one has is neither.

    The digest is that of the elements in C order, wherever each of them was. Where elements are missing, or are
    another in one process than in another, it says that instead, and equals nothing.
    """
    leaf = next((one.leaf for one in held if one.leaf.extent is not None), held[0].leaf)
    shape = leaf.extent.shape if leaf.extent is not None else np.shape(held[0].value)
    if any(not isinstance(one.value, np.ndarray) for one in held):
        return None
    kind = leaf.kind.partition("[")[0]
    whole, seen = np.zeros(shape, held[0].value.dtype), np.zeros(shape, bool)
    apart = ""
    for one in held:
        boxes = one.leaf.extent.boxes if one.leaf.extent is not None else (tuple((0, size) for size in shape),)
        sizes = [tuple(high - low for low, high in box) for box in boxes]
        if one.leaf.extent is None and one.value.shape != shape:
            return None
        if one.value.size != sum(map(math.prod, sizes)) or one.value.dtype != whole.dtype:
            return None
        flat, at = one.value.reshape(-1), 0
        for box, size in zip(boxes, sizes, strict=True):
            where = tuple(slice(*ends) for ends in box)
            part = flat[at : at + math.prod(size)].reshape(size)
            at += part.size
            if seen[where].any() and _bits(whole[where][seen[where]]) != _bits(part[seen[where]]):
                apart = apart or f"rank {one.rank} holds other elements than one before it"
            whole[where], seen[where] = part, True
    if missing := seen.size - int(seen.sum()):
        apart = f"{missing} of {seen.size} elements in no process"
    digest = apart or digest_of(_bits(whole))
    text = f"{kind}[{'x'.join(map(str, shape))}]"
    return replace(leaf, kind=text, digest=digest, copy="", extent=None), None if apart else whole


def _bits(value: np.ndarray[Any, Any]) -> bytes:
    return np.ascontiguousarray(value).tobytes()

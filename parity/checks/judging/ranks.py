"""Ranks of one run: where they hold different values, of what a framework keeps alike and of anything else.

What is a copy by the framework's own word (`Leaf.copy`) has to agree, and counts; of the rest nothing says that it
should, so where ranks that held the same come to differ is observed.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence

from parity.capture import Leaf
from parity.checks.judging.evidence import Evidence
from parity.checks.running import Mark

__all__ = ["copies_apart", "ranks_apart"]

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


_RANK = re.compile(r"(rank\d+):(.+)", re.DOTALL)
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
            when = f"otherwise than on {there[0].replace('rank', 'rank ')}"
            found.setdefault(path, Evidence(here.component, path, mark.step, there[1].text, here.text, when))
    counted = [e for e in found.values() if e.component not in returned and lasting[e.path] >= _FOR_GOOD]
    return sorted(counted, key=lambda e: (e.step, _suspicion(e.component)))


def _apart(mark: Mark) -> dict[str, tuple[tuple[str, Leaf], Leaf]]:
    """Return the copies that differ at a mark, by the path of the later rank, with the rank that differs from it."""
    copies: defaultdict[tuple[str, str], list[tuple[str, Leaf]]] = defaultdict(list)
    for path, leaf in mark.snapshot.leaves.items():
        if leaf.copy and (of_rank := _RANK.fullmatch(path)):
            copies[of_rank[2], leaf.copy].append((of_rank[1], leaf))
    found = {}
    for (path, _), held in copies.items():
        for rank, leaf in held[1:]:
            if not leaf.same(held[0][1]):
                found[f"{rank}:{path}"] = (held[0], leaf)
    return found


def _suspicion(component: str) -> int:
    return next((at for at, word in enumerate(_CAUSES) if component.startswith(word)), len(_CAUSES))

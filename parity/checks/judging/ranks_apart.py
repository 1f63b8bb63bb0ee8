"""Ranks apart: state that moved alike on all processes of a run and then came to differ between them.

Weights that every process keeps whole have to stay equal; shards of one array, and generators of each rank's own,
never were. What moved alike and does not any more is worth a look; as it is one run, it is an observation.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from parity.checks.judging.evidence import Evidence
from parity.checks.running import Mark

__all__ = ["ranks_apart"]

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

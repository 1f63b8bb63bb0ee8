"""Ranks apart: state that all processes of a run began with alike and that came to differ between them.

Weights that every process keeps whole have to stay equal; shards of one array, and generators of each rank's own,
differ from the start. What was equal and is not any more is worth a look; as it is one run, it is an observation.
"""

from __future__ import annotations

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
    begun = marks[0].snapshot.leaves
    for mark in marks[1:]:
        leaves = mark.snapshot.leaves
        for path, leaf in leaves.items():
            rank = _OTHER.match(path)
            if rank is None or path in found or leaf.role not in ("state", "array"):
                continue
            on_first = f"rank0:{path[rank.end() :]}"
            alike = on_first in begun and path in begun and begun[path].same(begun[on_first])
            if alike and on_first in leaves and not leaf.same(leaves[on_first]):
                when = "otherwise than on rank 0"
                found[path] = Evidence(leaf.component, path, mark.step, leaves[on_first].text, leaf.text, when)
    return list(found.values())

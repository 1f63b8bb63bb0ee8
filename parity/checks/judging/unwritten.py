"""Whether a trainer may hold memory that nobody has written: what equal runs show of it is no evidence."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable

from parity.checks.judging.evidence import Evidence
from parity.checks.judging.syntax import source_tree
from parity.checks.running import Mark, called_name

__all__ = ["UNWRITTEN", "may_be_unwritten"]

UNWRITTEN = (
    "memory that nothing has written (numpy.empty, torch.empty and their like) holds zeros in the runs of this check"
)
"""What is said of a check in whose runs it was filled."""

_CALLS = frozenset(
    ("empty", "empty_like", "empty_strided", "empty_permuted", "masked_all", "masked_all_like", "new_empty",
     "new_empty_strided")
)  # fmt: skip
"""Functions and methods of NumPy and PyTorch that give memory as it is."""


def may_be_unwritten(parted: Evidence | None, marks: list[Mark], files: Iterable[str]) -> bool:
    """Return whether memory that nobody has written may be what makes two equal runs differ, or a resumed one.

    Args:
        parted: Where two equal runs differ; None where they do not.
        marks: Marks of the first.
        files: Source files of the trainer.
    """
    if any(map(_asks_for_memory, files)):
        return True
    if parted is None or parted.step != marks[0].step:
        return False
    leaf = marks[0].snapshot.leaves.get(parted.path)  # a buffer that a library makes is there before the first step
    return leaf is not None and leaf.role in ("array", "state")


@functools.lru_cache(maxsize=64)
def _asks_for_memory(file: str) -> bool:
    """Return whether a file calls what gives memory as it is; `queue.empty()` gives none."""
    return any(
        isinstance(node, ast.Call) and called_name(node) in _CALLS and bool(node.args or node.keywords)
        for node in ast.walk(source_tree(file))
    )

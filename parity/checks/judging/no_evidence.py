"""What makes runs of a trainer no evidence: numbers that are not finite, and memory that nobody has written.

Once NaN is in what is trained, two runs that differ compare equal; what is in memory that nobody has written makes
two runs differ that are equal.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterable

from parity.capture import TRAINED, StateSnapshot
from parity.checks.judging.evidence import Evidence
from parity.checks.judging.syntax import source_tree
from parity.checks.running import Mark, Trace, called_name

__all__ = ["UNWRITTEN", "may_be_unwritten", "not_finite"]

MOST = 3
"""Most paths that a note names."""


def not_finite(trace: Trace, changing: Collection[str]) -> str:
    """Return why the end of a run proves nothing; empty where its numbers are finite.

    Args:
        trace: The uninterrupted run.
        changing: Paths whose value changes while it goes: a mask of minus infinity that never changes is none.
    """
    last = trace.marks[-1].snapshot
    found = {**_in_training(last, changing), **(_in_training(trace.final, changing) if trace.final else {})}
    if not found:
        scalar = any(_became_nan(last, path) for path in last.leaves if path in changing)
        return "values are NaN in the uninterrupted run: after that every difference is hidden" if scalar else ""
    shown = ", ".join(f"{path} ({what})" for path, what in sorted(found.items())[:MOST])
    more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return (
        f"numbers are not finite in what is trained, at the end of the uninterrupted run: {shown}{more}; two such "
        "runs compare equal whatever was lost"
    )


def _became_nan(snapshot: StateSnapshot, path: str) -> bool:
    """Return whether a number that was one before is none now, and is read again: one that never was is a blank."""
    leaf = snapshot.leaves[path]
    return "float" in leaf.kind and leaf.digest == "nan" and not snapshot.is_dead(path)


def _in_training(snapshot: StateSnapshot, changing: Collection[str]) -> dict[str, str]:
    """Return the paths with NaN or infinity in what is trained.

    Of parameters, NaN counts also where nothing changed; an array of unknown purpose only where it holds no finite
    number: a table that is filled while the run goes often begins as NaN.
    """
    found = {}
    for path, what in snapshot.not_finite.items():
        leaf = snapshot.leaves[path]
        stuck = "nan" in what and leaf.component.startswith("model.params")
        by_class = leaf.role == "state" and leaf.component.startswith(TRAINED)
        trained = by_class or (what.startswith("only") and leaf.role != "gradient")
        if (stuck or (trained and path in changing)) and not snapshot.is_dead(path):
            found[path] = what
    return found


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

"""Numbers that are not finite: once they are in what is trained, two runs that differ compare equal."""

from __future__ import annotations

from collections.abc import Collection

from parity.capture import TRAINED, StateSnapshot
from parity.checks.running import Trace

__all__ = ["not_finite"]

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

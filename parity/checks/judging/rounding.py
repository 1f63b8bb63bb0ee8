"""Rounding: whether two equal runs differ by it alone, and which values it moves; all others are judged by bits."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence

from parity.capture import HARD, Leaf
from parity.checks.judging.evidence import Evidence, both_runs
from parity.checks.running import Mark

__all__ = ["bytes_of", "is_floating", "is_trained_number", "moved_by_rounding", "why_not_rounding"]

DISCRETE = (
    "optimizer.step", "optimizer.hyperparameters", "optimizer.param_", "optimizer.identity", "schedule", "scaler",
    "counters", "data", "rng", "settings", "model.mode", "model.requires_grad", "model.hyperparameters",
)  # fmt: skip
"""Components that rounding does not move: where equal runs agree in them, a resumed run must agree bit by bit."""

_ARRAY = re.compile(r"(?:b?float|complex)(\d+)\w*\[([\dx]*)\]")


def is_floating(leaf: Leaf) -> bool:
    """Return whether a leaf holds floating numbers that rounding can move."""
    return "float" in leaf.kind and not leaf.component.startswith(DISCRETE)


def bytes_of(leaf: Leaf) -> int:
    """Return the size of a leaf's values.

    Example:
        >>> bytes_of(Leaf("state", "model.params", "float32[3x4]", ""))
        48
    """
    found = _ARRAY.match(leaf.kind)
    if found is None:
        return 8
    return int(found[1]) // 8 * math.prod(int(size) for size in found[2].split("x") if size)


def moved_by_rounding(marks: Sequence[Mark], noise: Collection[str], changing: Collection[str]) -> frozenset[str]:
    """Return the paths of a run whose numbers rounding moves, also where it happened to leave them equal.

    Args:
        marks: The uninterrupted run.
        noise: Paths that differ between equal runs.
        changing: Paths whose value changes while the run goes.
    """
    found = set()
    for mark in marks:
        for path, leaf in mark.snapshot.leaves.items():
            scalar_noise = leaf.role == "scalar" and path in noise  # a clock, a loss: no evidence even at the resume
            if path in changing and is_floating(leaf) and not scalar_noise:
                found.add(path)
    return frozenset(found)


def why_not_rounding(
    marks: Sequence[Mark], others: Iterable[Sequence[Mark]], parted: Evidence, changing: Collection[str]
) -> str:
    """Return what equal runs differ in that rounding does not explain; empty if it may be rounding.

    Args:
        marks: The uninterrupted run.
        others: Equal runs.
        parted: Where the first of them parts.
        changing: Paths whose value changes while the run goes.
    """
    if parted.step == marks[0].step:
        return "before the first step"
    if parted.component.startswith(DISCRETE):
        return parted.path
    for again in others:
        for both in both_runs(marks, again):
            for path in both.differing():
                leaf = both.leaf(path)
                trained = leaf.role in HARD and not leaf.component.startswith("rng") and path in changing
                if trained and not both.left.is_dead(path) and not is_floating(leaf):
                    return path
    return ""


def is_trained_number(path: str, marks: Sequence[Mark]) -> bool:
    """Return whether a path is, at the last mark, an array that training continues from.

    Args:
        path: The path.
        marks: The uninterrupted run, at least one mark.
    """
    last = marks[-1].snapshot
    leaf = last.leaves.get(path)
    return leaf is not None and leaf.role in ("state", "array") and not last.is_dead(path)

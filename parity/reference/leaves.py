"""Leaves that differ, as a record shows them: what differs, in how many elements, and by how much."""

from __future__ import annotations

from parity.results import LeafChange
from parity.state import Difference, LeafSize

__all__ = ["MOST_LEAVES", "describe_leaf"]

MOST_LEAVES = 100
"""Leaves that one record lists; its notes say how many there are."""


def describe_leaf(difference: Difference, size: LeafSize | None, where: str) -> LeafChange:
    """Return a leaf that differs for a record.

    Args:
        difference: The leaf, and in what it differs.
        size: By how much; None where the values are not known.
        where: Which two states were compared, in words.
    """
    return LeafChange(
        where=where,
        leaf=difference.leaf,
        kind=difference.kind,
        detail=difference.detail,
        **({} if size is None else size._asdict()),
    )

"""What a record of the twins' checks names: components that a difference points to, and leaves that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parity.results import LeafChange
from parity.state import Difference, LeafSize

__all__ = ["MOST_LEAVES", "SUSPECTS", "describe_leaf", "name_lost"]

MOST_LEAVES = 100
"""Leaves that one record lists; its notes say how many there are."""

SUSPECTS: Mapping[str, tuple[str, ...]] = {
    "batch": ("data.position",),
    "epoch": ("data.position",),
    "samples": ("data.position",),
    "lr": ("schedule.step",),
    "loss_scale": ("scaler.scale", "scaler.growth_tracker"),
    "skipped": ("scaler.scale",),
    "missing": ("counters.step",),
    "validation": ("model.buffers",),
}
"""Quantity to components, the likeliest first.

A lost growth tracker shows as a scale that grows at another step, so a loss scale that differs points to both fields
of the scaler.
"""


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


def name_lost(lost: Sequence[Difference], where: str) -> dict[str, Any]:
    """Return the fields of a record that name what a state lost: `suspects` and `leaves`.

    Args:
        lost: Leaves in which the state after is not the state before.
        where: When that was seen, in words.
    """
    return {
        "suspects": tuple(dict.fromkeys(one.component for one in lost)),
        "leaves": tuple(describe_leaf(one, one.size, where) for one in lost[:MOST_LEAVES]),
    }

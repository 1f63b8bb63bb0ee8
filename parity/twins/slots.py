"""What the optimizer of a run keeps: its parameter groups, and the rows of its slots beside those of the parameters.

Both sides build their optimizer from the rules here, and translate its state by the rows, so the table of optimizers
(`parity.state.OPTIMIZERS`) decides alone what crosses and under which name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from parity.errors import StateError
from parity.spec import LATER, OptimizerSpec, RunSpec
from parity.state import GroupRule, OptimizerKind, Slot, optimizer_kind, slot_shape
from parity.twins.table import Row

__all__ = ["SlotRows", "group_rates", "group_rules", "is_former", "kind_of", "one_count", "own_count", "slot_rows"]

OTHERS = {"Muon": "AdamW"}
"""Optimizer for matrices alone to the one of every other parameter."""

WHOLE = "whole"
"""Logical axis that is never split."""

FORMER = ("adam", "adamw", "sgd")
"""Kinds that specs had before `parity.state.OPTIMIZERS`."""


@dataclass(frozen=True, kw_only=True)
class SlotRows:
    """One slot of a run's optimizer."""

    slot: Slot
    rows: tuple[Row, ...]
    """Rows of the parameters that have it, in the shapes of the slot."""
    dtype: str
    """`float64` or `float32`; counts and what PyTorch keeps as a scalar are float32 in every precision."""
    start: float
    """Its value before the first update."""

    def before(self, row: Row) -> NDArray[np.generic]:
        """Return the value before the first update."""
        return np.full(row.shape, self.start, self.dtype)


def is_former(spec: RunSpec) -> bool:
    """Return whether a run could be described before there were other optimizers, arguments and groups.

    Such a run keeps its bits and its files: the JAX side trains it by a chain of Optax's transformations, and neither
    side has `optimizer.step` in the state of SGD.
    """
    optimizer = spec.optimizer
    later = [f for f in fields(optimizer) if f.metadata == LATER]  # type: ignore[arg-type]
    return (
        optimizer.kind in FORMER
        and spec.schedule.kind != "rule"
        and all(getattr(optimizer, f.name) == f.default for f in later)
    )


def kind_of(optimizer: OptimizerSpec, ndim: int) -> OptimizerKind:
    """Return the row of the optimizer that a parameter of so many dimensions takes."""
    row = optimizer.row
    return optimizer_kind(OTHERS[row.name]) if row.name in OTHERS and ndim != 2 else row


def group_rules(optimizer: OptimizerSpec, shapes: Mapping[str, Sequence[int]]) -> tuple[GroupRule, ...]:
    """Return the rules of the parameter groups, in PyTorch's order.

    Args:
        optimizer: The optimizer.
        shapes: Parameter name to shape.

    Returns:
        One rule at least, each of which takes a parameter.
    """
    if optimizer.groups:
        return _own_groups(optimizer, shapes)
    if optimizer.decay == "all":
        return (GroupRule(label="all"),)
    matrices = tuple(sorted({len(shape) for shape in shapes.values() if len(shape) >= 2}))
    rules = (GroupRule(label="matrices", ndim=matrices),) if matrices else ()
    others = GroupRule(label="others", arguments={"weight_decay": 0.0})
    return (*rules, others) if any(len(shape) < 2 for shape in shapes.values()) else rules


def _own_groups(optimizer: OptimizerSpec, shapes: Mapping[str, Sequence[int]]) -> tuple[GroupRule, ...]:
    rules = []
    for number, group in enumerate(optimizer.groups):
        own = {"lr": group.lr, "weight_decay": group.weight_decay}
        given = {name: value for name, value in own.items() if value >= 0}
        rules.append(GroupRule(label=f"group {number}", names=group.names, ndim=group.ndim, arguments=given))
    taken = {name for name, shape in shapes.items() if any(rule.matches(name, shape, None) for rule in rules)}
    return (*rules, GroupRule(label="others")) if len(taken) < len(shapes) else tuple(rules)


def group_rates(optimizer: OptimizerSpec, rules: Sequence[GroupRule]) -> list[float]:
    """Return the peak rate of each group.

    Args:
        optimizer: The optimizer.
        rules: What `group_rules` returned.
    """
    return [rule.arguments.get("lr", optimizer.lr) for rule in rules]


def slot_rows(spec: RunSpec, params: Sequence[Row]) -> tuple[SlotRows, ...]:
    """Return the slots of a run's optimizer, in the order of the table.

    Args:
        spec: The run.
        params: Rows of its parameters.
    """
    arguments = spec.optimizer.arguments()
    dtype = "float64" if spec.precision == "float64" else "float32"
    kept: dict[Slot, list[Row]] = {}
    for one in params:
        kind = kind_of(spec.optimizer, len(one.shape))
        for slot in kind.kept({**kind.arguments, **arguments}, len(one.shape)):
            transforms = () if slot.form == "scalar" else one.transforms
            shape = slot_shape(slot, one.shape)
            kept.setdefault(slot, []).append(replace(one, shape=shape, transforms=transforms, axes=_axes(one, shape)))
    return tuple(
        SlotRows(
            slot=slot,
            rows=tuple(rows),
            dtype="float32" if slot.form == "scalar" else dtype,
            start=float(arguments[slot.start]) if isinstance(slot.start, str) else slot.start,
        )
        for slot, rows in kept.items()
    )


def _axes(parameter: Row, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the logical axes of a slot: those of its parameter, but for one that the slot has a single value for."""
    if not shape or not parameter.axes:
        return ()
    sizes = zip(parameter.axes, parameter.shape, shape, strict=True)
    return tuple(name if own == size else WHOLE for name, size, own in sizes)


def one_count(optimizer: OptimizerSpec, params: Sequence[Row], counts: Mapping[str, int]) -> int:
    """Return the updates that every parameter has had.

    Args:
        optimizer: The optimizer.
        params: Rows of the parameters.
        counts: Name to updates; where PyTorch counts none, 1 after the first.

    Raises:
        StateError: They differ; one count cannot stand for them.
    """
    most = max(counts.values())
    if any(counts[row.name] != own_count(optimizer, row, most) for row in params):
        raise StateError("optimizer.step", f"differs between parameters: {dict(counts)}")
    return most


def own_count(optimizer: OptimizerSpec, row: Row, updates: int) -> int:
    """Return what a parameter counts after so many updates; the inverse of `one_count`."""
    return updates if kind_of(optimizer, len(row.shape)).counts else min(updates, 1)

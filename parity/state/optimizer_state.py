"""The neutral form of an optimizer's state, between a `state_dict` of torch.optim and a state of `jax_side.optim`.

| leaf | what |
|---|---|
| `optimizer.<slot>.<parameter>` | array, in PyTorch's layout; absent before the first update of the parameter |
| `optimizer.step.<parameter>` | updates of the parameter, a scalar of the dtype that torch counts in |
| `optimizer.name` | class of torch.optim |
| `optimizer.groups` | for each group its `params` (names) and every other key of torch's, as JSON |
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import StateError
from parity.state.optimizer_kinds import FLAGS, OptimizerKind, Slot
from parity.state.optimizers import optimizer_kind
from parity.state.training_state import TrainingState

__all__ = ["NeutralGroup", "NeutralOptimizer", "slot_shape"]

PREFIX = "optimizer."


@dataclass(frozen=True, kw_only=True)
class NeutralGroup:
    """One parameter group."""

    params: tuple[str, ...]
    """Neutral names."""
    arguments: Mapping[str, Any]
    """Every key of torch's group but `params` and `param_names`: arguments, flags, what schedulers add."""

    @classmethod
    def of(cls, kind: OptimizerKind, params: Sequence[str], arguments: Mapping[str, Any]) -> NeutralGroup:
        """Return a group with the keys that torch's class has, flags left out being torch's defaults.

        Args:
            kind: The optimizer.
            params: Neutral names of its parameters.
            arguments: Every argument of the class, and flags.
        """
        extra = {"decoupled_weight_decay": True} if kind.name == "AdamW" else {}
        flags = {name: FLAGS[name] for name in kind.flags}
        return cls(params=tuple(params), arguments={**extra, **flags, **arguments})

    def own(self, kind: OptimizerKind) -> dict[str, Any]:
        """Return the arguments and flags of the class, without what schedulers add."""
        known = {*kind.arguments, *kind.flags}
        return {name: value for name, value in self.arguments.items() if name in known}


@dataclass(frozen=True, kw_only=True)
class NeutralOptimizer:
    """An optimizer's state, taken apart: what `pack` puts into a TrainingState and `unpack` reads back, checked."""

    kind: OptimizerKind
    groups: tuple[NeutralGroup, ...]
    slots: Mapping[str, Mapping[str, NDArray[np.generic]]]
    """Parameter to slot to value; `step` among the slots where torch counts; no entry before the first update."""

    def pack(self) -> TrainingState:
        """Return the neutral form.

        Raises:
            StateError: An argument of a group is no value that JSON keeps, such as a learning rate that is a tensor.
        """
        arrays = {
            f"{PREFIX}{slot}.{name}": np.asarray(value)
            for name, values in self.slots.items()
            for slot, value in values.items()
        }
        groups = [{"params": list(group.params), **_as_json(group.arguments)} for group in self.groups]
        return TrainingState(arrays=arrays, scalars={f"{PREFIX}name": self.kind.name, f"{PREFIX}groups": groups})

    @classmethod
    def unpack(cls, state: TrainingState, shapes: Mapping[str, tuple[int, ...]]) -> NeutralOptimizer:
        """Read the neutral form and check it: every leaf is known, of its shape, and none is missing.

        Args:
            state: A state; groups other than `optimizer` are ignored.
            shapes: Neutral name to shape of every parameter, in PyTorch's layout.

        Raises:
            StateError: A leaf that is missing, unexpected or of another shape; groups that are not those of the
                parameters; an argument that the class does not take.
            SpecError: An argument outside of its range, or an optimizer without a counterpart.
            UnknownNameError: There is no such optimizer.
        """
        scalars = state.scalars
        if not isinstance(scalars.get(f"{PREFIX}name"), str) or not isinstance(scalars.get(f"{PREFIX}groups"), list):
            raise StateError("optimizer.name", "is missing, or optimizer.groups is")
        kind = optimizer_kind(scalars[f"{PREFIX}name"])
        groups = tuple(_read_group(kind, at, one) for at, one in enumerate(scalars[f"{PREFIX}groups"]))
        owner = _owners(groups, shapes)
        found = {leaf: value for leaf, value in state.arrays.items() if leaf.startswith(PREFIX)}
        slots = {name: dict(_slots_of(kind, owner[name], name, shapes[name], found)) for name in shapes}
        for leaf in found:
            raise StateError(leaf, f"unexpected leaf: {kind.name} keeps no such value for a parameter")
        return cls(kind=kind, groups=groups, slots={name: own for name, own in slots.items() if own})


def slot_shape(slot: Slot, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a slot of a parameter, both in PyTorch's layout.

    Args:
        slot: The slot.
        shape: Shape of the parameter; of two axes and more for the forms `rows` and `columns`.

    Example:
        >>> rows = Slot(name="row_variance", key="row_var", form="rows")
        >>> slot_shape(rows, (3, 4)), slot_shape(Slot(name="first_moment", key="exp_avg"), (3, 4))
        ((3, 1), (3, 4))
    """
    if slot.form == "scalar":
        return ()
    if slot.form == "rows":
        return (*shape[:-1], 1)
    return (*shape[:-2], 1, shape[-1]) if slot.form == "columns" else shape


def _as_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as JSON has them: lists for tuples.

    Raises:
        StateError: A value that JSON does not keep, such as a learning rate that is a tensor.
    """
    out = {}
    for name, value in arguments.items():
        plain = list(value) if isinstance(value, tuple | list) else value
        for one in plain if isinstance(plain, list) else [plain]:
            if not isinstance(one, bool | int | float | str | None):
                raise StateError(
                    f"optimizer.groups.{name}", f"cannot be carried: {type(one).__name__}; give a number"
                )
        out[name] = plain
    return out


def _read_group(kind: OptimizerKind, at: int, one: Any) -> NeutralGroup:
    where = f"optimizer.groups.{at}"
    if not isinstance(one, dict) or not isinstance(one.get("params"), list):
        raise StateError(where, "expected an object with a list `params`")
    if any(not isinstance(name, str) for name in one["params"]):
        raise StateError(f"{where}.params", "expected names")
    arguments = {name: value for name, value in one.items() if name != "params"}
    for name, default in kind.arguments.items():
        if name not in arguments:
            raise StateError(f"{where}.{name}", f"is missing: {kind.name} has it in every group")
        if isinstance(default, tuple) and isinstance(arguments[name], list):
            arguments[name] = tuple(arguments[name])
    for name in FLAGS:
        if name in arguments and name not in kind.flags:
            raise StateError(f"{where}.{name}", f"unexpected: {kind.name} takes no such argument")
    kind.resolve({name: arguments[name] for name in kind.arguments})
    return NeutralGroup(params=tuple(one["params"]), arguments=arguments)


def _owners(groups: Sequence[NeutralGroup], shapes: Mapping[str, Any]) -> dict[str, NeutralGroup]:
    """Return the group of each parameter."""
    owner: dict[str, NeutralGroup] = {}
    for at, group in enumerate(groups):
        for name in group.params:
            if name in owner or name not in shapes:
                problem = "is in two groups" if name in owner else "is no parameter here"
                raise StateError(f"optimizer.groups.{at}.params", f"{name} {problem}")
            owner[name] = group
    for name in shapes:
        if name not in owner:
            raise StateError(f"optimizer.groups: {name}", "is in no group")
    return owner


def _slots_of(
    kind: OptimizerKind, group: NeutralGroup, name: str, shape: tuple[int, ...], found: dict[str, NDArray[np.generic]]
) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """Yield the slots of a parameter, all of them or none, and take them out of what was found."""
    wanted = {slot.name: slot_shape(slot, shape) for slot in kind.kept(group.arguments, len(shape))}
    wanted = {"step": (), **wanted} if kind.counts else wanted
    there = [slot for slot in wanted if f"{PREFIX}{slot}.{name}" in found]
    for slot in wanted if there or kind.eager else ():
        leaf = f"{PREFIX}{slot}.{name}"
        if leaf not in found:
            raise StateError(leaf, "is missing, while other values of this parameter are there")
        value = found.pop(leaf)
        if value.shape != wanted[slot]:
            raise StateError(leaf, f"expected shape {wanted[slot]}, got {value.shape}")
        if slot == "step" and not (math.isfinite(float(value)) and float(value) >= 0 and float(value).is_integer()):
            raise StateError(leaf, f"expected a count of at least 0, got {value!r}")
        yield slot, value

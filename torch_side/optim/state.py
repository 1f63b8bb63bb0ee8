"""State of torch.optim's optimizers in the neutral form and back, bit for bit, every key of `state_dict`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor, nn

from parity.errors import StateError
from parity.state import NeutralGroup, NeutralOptimizer, OptimizerKind, TrainingState, optimizer_kind

__all__ = ["from_neutral", "kind_of", "to_neutral"]

NamedParameters = Iterable[tuple[str, nn.Parameter]]


def kind_of(optimizer: torch.optim.Optimizer) -> OptimizerKind:
    """Return the kind of an optimizer.

    Raises:
        StateError: A subclass, or a class of another package, whose steps nobody has compared.
        SpecError: A class without counterpart; says why.
        UnknownNameError: A class of torch.optim that is not known here.
    """
    cls = type(optimizer)
    if getattr(torch.optim, cls.__name__, None) is not cls:
        bases = [base.__name__ for base in cls.__mro__[1:] if getattr(torch.optim, base.__name__, None) is base]
        base = f", a subclass of {bases[0]}, may take other steps" if bases else " is not one of torch.optim"
        raise StateError("optimizer.name", f"{cls.__module__}.{cls.__qualname__}{base}; use the class itself")
    return optimizer_kind(cls.__name__)


def to_neutral(optimizer: torch.optim.Optimizer, named: NamedParameters) -> TrainingState:
    """Return the neutral form of an optimizer's state.

    Args:
        optimizer: One of torch.optim, the class itself.
        named: Names and parameters, as `model.named_parameters()`; every parameter of the optimizer is among them.

    Raises:
        StateError: As of `kind_of`; or a parameter without a name, a complex one, a value that the class does not
            keep, or an argument that cannot be carried, such as a learning rate that is a tensor.
        SpecError: As of `kind_of`, or an argument outside of its range.
        UnknownNameError: As of `kind_of`.

    Numerics: bit for bit, in the dtype that torch keeps.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        >>> model(torch.ones(2)).backward()
        >>> optimizer.step()
        >>> state = to_neutral(optimizer, model.named_parameters())
        >>> sorted(state.arrays), state.scalars["optimizer.groups"][0]["lr"]
        (['optimizer.momentum.bias', 'optimizer.momentum.weight'], 0.5)
    """
    kind = kind_of(optimizer)
    members = _members(optimizer, named)
    found = optimizer.state_dict()
    keys = {slot.key: slot.name for slot in kind.slots}
    keys = {"step": "step", **keys} if kind.counts else keys
    slots: dict[str, dict[str, Any]] = {}
    groups = []
    for own, group in zip(members, found["param_groups"], strict=True):
        for at, (name, _) in zip(group["params"], own, strict=True):
            entry = {key: value for key, value in found["state"].get(at, {}).items() if value is not None}
            for key in entry:
                if key not in keys:
                    raise StateError(f"optimizer: {name}", f"unexpected {key!r}; {kind.name} keeps {', '.join(keys)}")
            if entry:
                slots[name] = {keys[key]: _numpy(value) for key, value in entry.items()}
        arguments = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        groups.append(NeutralGroup(params=tuple(name for name, _ in own), arguments=arguments))
    state = NeutralOptimizer(kind=kind, groups=tuple(groups), slots=slots).pack()
    NeutralOptimizer.unpack(state, _shapes(members))  # checks it
    return state


def from_neutral(state: TrainingState, optimizer: torch.optim.Optimizer, named: NamedParameters) -> None:
    """Load a neutral state into an optimizer that has the same parameters in the same groups.

    Args:
        state: A neutral state, as either side gives it.
        optimizer: One of torch.optim, the class itself; its arguments are replaced by those of the state.
        named: Names and parameters, as `model.named_parameters()`.

    Raises:
        StateError: As of `kind_of`; or the state is of another class, of other groups, of another dtype, or not
            whole.
        SpecError: As of `kind_of`, or an argument outside of its range.
        UnknownNameError: As of `kind_of`, or the state is of no known optimizer.

    Numerics: bit for bit.
    """
    kind = kind_of(optimizer)
    members = _members(optimizer, named)
    found = NeutralOptimizer.unpack(state, _shapes(members))
    if found.kind.name != kind.name:
        raise StateError("optimizer.name", f"expected {kind.name}, got {found.kind.name}")
    slot_keys = {"step": "step", **{slot.name: slot.key for slot in kind.slots}}
    scalars = {"step", *(slot.name for slot in kind.slots if slot.form == "scalar")}
    now = optimizer.state_dict()["param_groups"]
    entries: dict[int, dict[str, Tensor]] = {}
    groups: list[dict[str, Any]] = []
    for own, group in zip(members, now, strict=True):
        names = [name for name, _ in own]
        match = [one for one in found.groups if set(one.params) == set(names)]
        if len(match) != 1:
            raise StateError("optimizer.groups", f"no group has exactly the parameters {', '.join(names[:8])}")
        kept = {key: group[key] for key in ("params", "param_names") if key in group}
        groups.append({**dict(match[0].arguments), **kept})
        for at, (name, parameter) in zip(group["params"], own, strict=True):
            values = found.slots.get(name, {})
            expected = str(parameter.dtype).removeprefix("torch.")
            for slot, value in values.items():
                if slot not in scalars and str(value.dtype) != expected:
                    raise StateError(f"optimizer.{slot}.{name}", f"expected {expected}, got {value.dtype}")
            if values:
                entries[at] = {slot_keys[slot]: _tensor(value) for slot, value in values.items()}
    optimizer.load_state_dict({"state": entries, "param_groups": groups})
    # Scalars in their own dtype: `load_state_dict` casts all but `step` to that of the parameter.
    for name, parameter in chain.from_iterable(members):
        values = found.slots.get(name, {})
        for slot in scalars & values.keys():
            entry, key = optimizer.state[parameter], slot_keys[slot]
            entry[key] = _tensor(values[slot]).to(entry[key].device)


def _members(optimizer: torch.optim.Optimizer, named: NamedParameters) -> list[list[tuple[str, nn.Parameter]]]:
    """Return the parameters of each group with their names."""
    by_id = {id(p): name for name, p in named}
    out = []
    for at, group in enumerate(optimizer.param_groups):
        for p in group["params"]:
            if id(p) not in by_id:
                shape = tuple(p.shape)
                raise StateError(f"optimizer.groups.{at}", f"a parameter of shape {shape} has no name")
            if p.is_complex():
                raise StateError(by_id[id(p)], "is complex; split it in two real parameters")
        out.append([(by_id[id(p)], p) for p in group["params"]])
    return out


def _shapes(members: list[list[tuple[str, nn.Parameter]]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in chain.from_iterable(members)}


def _numpy(value: Any) -> np.ndarray[Any, Any]:
    """Return a tensor as an array of its own; numbers of old files as the count that torch makes of them."""
    if not isinstance(value, Tensor):
        return np.asarray(value, np.float32)
    host = value.detach().cpu().contiguous()
    if host.dtype != torch.bfloat16:
        return np.array(host.numpy(), copy=True)
    return np.array(host.view(torch.int16).numpy().view(ml_dtypes.bfloat16), copy=True)


def _tensor(value: np.ndarray[Any, Any]) -> Tensor:
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(np.array(value.view(np.int16), copy=True)).view(torch.bfloat16)
    return torch.from_numpy(np.array(value, copy=True))

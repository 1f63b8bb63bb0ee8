"""What one optimizer of torch.optim takes and keeps: arguments with their ranges, and the slots of its state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from parity.errors import SpecError, UnknownNameError

__all__ = ["FLAGS", "OptimizerKind", "Slot", "has_effect"]

FLAGS = {"foreach": None, "fused": None, "capturable": False, "differentiable": False}
"""Arguments that choose a kernel, with torch's defaults; they are carried in the groups. They have no meaning for the
result, up to the rounding of a kernel; where one has, it is in `OptimizerKind.inexact`."""

SlotForm = Literal["same", "scalar", "rows", "columns", "unfactored"]


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One value that an optimizer keeps for each parameter."""

    name: str
    """Neutral name: the leaf is `optimizer.<name>.<parameter>`."""
    key: str
    """Key in the state of torch.optim."""
    form: SlotForm = "same"
    """Shape: the parameter's; none; of a tensor of two dimensions and more, with its last dimension 1 (`rows`) or its
    last but one (`columns`); the parameter's, if it has fewer than two (`unfactored`)."""
    when: str = ""
    """Argument that must not be zero for the slot to be there; empty if it always is."""
    start: float | str = 0.0
    """Value before the first update; a text names the argument that gives it."""

    def is_kept(self, arguments: Mapping[str, Any], ndim: int) -> bool:
        """Return whether a parameter has this slot.

        Args:
            arguments: Those of its group.
            ndim: Number of its dimensions.
        """
        if self.form in ("rows", "columns") or self.form == "unfactored":
            return (ndim > 1) == (self.form != "unfactored")
        return not self.when or has_effect(arguments[self.when])


def has_effect(value: Any) -> bool:
    """Return whether an argument may have an effect: the number 0 has none, and an array may hold another one later.

    Args:
        value: An argument: a number, a flag, or a scalar array of a framework.

    Example:
        >>> has_effect(0.0), has_effect(0.1)
        (False, True)
    """
    return bool(value) if isinstance(value, bool | int | float) else True


Check = tuple[str, Callable[[Any], bool]]
"""What a value must be, in words, and whether it is."""


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _not_negative(value: Any) -> bool:
    return _number(value) and value >= 0


def _numbers(value: Any, count: int) -> bool:
    return isinstance(value, tuple) and len(value) == count and all(map(_number, value))


_NOT_NEGATIVE: Check = ("must be a finite number of at least 0", _not_negative)
_NUMBER: Check = ("must be a finite number", _number)
_FLAG: Check = ("must be True or False", lambda v: isinstance(v, bool))
_RANGES: dict[str, Check] = {
    "adjust_lr_fn": (
        "must be None, 'original' or 'match_rms_adamw'",
        lambda v: v in (None, "original", "match_rms_adamw"),
    ),
    "beta2_decay": ("must be a number of at most 0", lambda v: _number(v) and v <= 0),
    "betas": ("must be two numbers in [0, 1)", lambda v: _numbers(v, 2) and all(0 <= one < 1 for one in v)),
    "d": ("must be a number of at least 1", lambda v: _number(v) and v >= 1),
    "etas": ("must be two numbers, 0 < first < 1 < second", lambda v: _numbers(v, 2) and 0 < v[0] < 1 < v[1]),
    "ns_coefficients": ("must be three numbers", lambda v: _numbers(v, 3)),
    "ns_steps": ("must be an integer from 0 to 99", lambda v: type(v) is int and 0 <= v < 100),
    "rho": ("must be a number in [0, 1]", lambda v: _number(v) and 0 <= v <= 1),
    "step_sizes": ("must be two numbers, the smaller one first", lambda v: _numbers(v, 2) and v[0] <= v[1]),
    **dict.fromkeys(("alpha", "dampening", "lambd", "t0"), _NUMBER),
    **dict.fromkeys(
        ("amsgrad", "centered", "decoupled_weight_decay", "maximize", "nesterov"),
        _FLAG,
    ),
}
"""Argument to its range; every other one must be a number of at least 0."""

_PAIR_OF_EPS: Check = (
    "must be two numbers of at least 0, the first one may be None",
    lambda v: isinstance(v, tuple) and len(v) == 2 and all(map(_not_negative, (v[0] or 0.0, v[1]))),
)


@dataclass(frozen=True, kw_only=True)
class OptimizerKind:
    """One optimizer: what it takes and what it keeps."""

    name: str
    """Class in torch.optim; `jax_side.optim` has it in lower case."""
    arguments: Mapping[str, Any]
    """Arguments that have a meaning for the result, with torch's defaults, in its order."""
    slots: tuple[Slot, ...]
    flags: tuple[str, ...] = ("foreach", "capturable", "differentiable")
    """Which of `FLAGS` the class takes."""
    counts: bool = True
    """Whether torch keeps a `step` for each parameter."""
    eager: bool = False
    """Whether torch has the state of each parameter before its first update."""
    in_torch: bool = True
    elementwise: bool = True
    """Whether the update of an element follows from that element alone; otherwise a part of a matrix does not do."""
    inexact: Mapping[str, str] = field(default_factory=dict)
    """Flag that changes what torch computes to what it does; the exact call takes it, and does not follow it."""

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments: those given, torch's defaults for the others, flags only where given.

        Raises:
            UnknownNameError: An argument that this optimizer does not take; lists those it does.
            SpecError: A value outside of its range.

        Example:
            >>> from parity.state import OPTIMIZERS
            >>> OPTIMIZERS["Rprop"].resolve({"lr": 0.1})
            {'lr': 0.1, 'etas': (0.5, 1.2), 'step_sizes': (1e-06, 50), 'maximize': False}
        """
        for name in given:
            if name not in self.arguments and name not in self.flags:
                raise UnknownNameError(f"argument of {self.name}", name, [*self.arguments, *self.flags])
        full = {**self.arguments, **given}
        full = {name: tuple(value) if isinstance(value, list) else value for name, value in full.items()}
        for name in self.arguments:
            if not (name == "lr" and callable(full["lr"])):
                self._check(name, full[name])
        for name in self.flags:
            if full.get(name) not in (None, True, False):
                raise SpecError(f"{self.name}.{name}", f"must be True, False or None, got {full[name]!r}")
        if full.get("nesterov") and "dampening" in full and (full["momentum"] <= 0 or full["dampening"] != 0):
            raise SpecError(f"{self.name}.nesterov", "needs momentum above 0 and dampening 0")
        return full

    def _check(self, name: str, value: Any) -> None:
        pair_of_eps = name == "eps" and isinstance(self.arguments["eps"], tuple)
        words, holds = _PAIR_OF_EPS if pair_of_eps else _RANGES.get(name, _NOT_NEGATIVE)
        if not holds(value):
            raise SpecError(f"{self.name}.{name}", f"{words}, got {value!r}")

    def kept(self, arguments: Mapping[str, Any], ndim: int) -> tuple[Slot, ...]:
        """Return the slots that a parameter has.

        Args:
            arguments: Those of its group.
            ndim: Number of its dimensions.

        Example:
            >>> from parity.state import OPTIMIZERS
            >>> sgd = OPTIMIZERS["SGD"]
            >>> [slot.name for slot in sgd.kept({"momentum": 0.9}, 2)], sgd.kept({"momentum": 0}, 2)
            (['momentum'], ())
        """
        return tuple(slot for slot in self.slots if slot.is_kept(arguments, ndim))

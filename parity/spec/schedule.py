"""Specifications of the learning-rate schedule of a run: shapes with a warm-up, or any rule of `parity.schedules`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

from parity.errors import ParityError, SpecError, UnknownNameError
from parity.schedules import RULES, AnyRule, Constant, ScheduleRule, decode_rule, encode_rule
from parity.spec.values import require, require_at_least_zero, require_numbers

__all__ = ["AnyScheduleSpec", "RuleSpec", "ScheduleSpec", "read_rule"]


@dataclass(frozen=True, kw_only=True)
class ScheduleSpec:
    """The learning-rate factor as a function of completed steps: a linear warm-up, then the shape of `kind`.

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    kind: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: int = 0
    """Steps of the linear warm-up; its step w, counted from 0, uses (w + 1) / (warmup + 1) of the peak."""
    horizon: int = 1000
    """Step at which `linear` and `cosine` reach `final`; later steps stay there. It does not stop training."""
    final: float = 0.0
    """Factor at the horizon, in [0, 1]."""

    def __post_init__(self) -> None:
        require_numbers(self, "schedule")
        require_at_least_zero(self, "schedule", "warmup")
        require(0 <= self.final <= 1, "schedule.final", "must be in [0, 1]")
        require(
            self.horizon > self.warmup,
            "schedule.horizon",
            f"must lie after the warm-up of {self.warmup} steps, got {self.horizon}",
        )


@dataclass(frozen=True, kw_only=True)
class RuleSpec:
    """A schedule of `parity.schedules`, which is one of PyTorch's with its arguments.

    Raises:
        SpecError: The rule is none; names the field.
    """

    kind: Literal["rule"] = "rule"
    rule: AnyRule = field(default_factory=lambda: Constant(factor=1.0, total_iters=1))
    """In a file a table: `kind`, a name in `parity.schedules.RULES`, and the rule's constants; `one_cycle` and
    `cyclic` also by the arguments of PyTorch's classes. `plateau` moves by the metric of each validation."""

    def __post_init__(self) -> None:
        require(isinstance(self.rule, ScheduleRule), "schedule.rule", f"must be a rule, got {self.rule!r}"[:200])


AnyScheduleSpec = ScheduleSpec | RuleSpec


def read_rule(value: Any, where: str) -> AnyRule:
    """Return the rule of a table.

    Args:
        value: The kind and the constants of a rule.
        where: Dotted name of the table, for messages.

    Raises:
        SpecError: It is no rule, or a constant is refused.
        UnknownNameError: There is no rule of its kind.

    Example:
        >>> read_rule({"kind": "one_cycle", "max_lr": 0.1, "total_steps": 10}, "schedule.rule").min_lr
        4e-07
    """
    try:
        return decode_rule(_written_out(value), where)
    except UnknownNameError:
        raise
    except ParityError as error:
        raise SpecError(where, str(error).removeprefix(f"{where}: ")) from error
    except TypeError as error:  # an argument that the class does not take
        raise SpecError(where, str(error)) from error


def _written_out(value: Any) -> Any:
    """Return a table whose rules have their own constants, where it gives the arguments of PyTorch's classes."""
    if not isinstance(value, Mapping):
        return value
    table = {
        name: [*map(_written_out, one)] if name == "rules" and isinstance(one, list) else one
        for name, one in value.items()
    }
    cls: Any = RULES.get(str(table.get("kind")))
    if not hasattr(cls, "of") or {f.name for f in fields(cls) if f.default is MISSING} <= table.keys():
        return table
    given = {name: tuple(one) if isinstance(one, list) else one for name, one in table.items() if name != "kind"}
    return encode_rule(cls.of(**given))

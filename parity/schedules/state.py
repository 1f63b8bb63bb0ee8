"""The JSON of rules, positions and groups, and its strict reader: what is read may be anyone's."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from parity.errors import ScheduleError, StateError, UnknownNameError
from parity.schedules.cosines import Cosine, CosineRestarts
from parity.schedules.cyclic import Cyclic
from parity.schedules.decays import Constant, Exponential, Linear, MultiStep, Polynomial, Step
from parity.schedules.one_cycle import OneCycle
from parity.schedules.plateau import Plateau
from parity.schedules.rule import AnyRule
from parity.schedules.tables import Lambda, Multiplicative
from parity.schedules.trees import Beside, Chained, Sequential
from parity.schedules.values import Groups, Values, is_finite, shown

__all__ = ["RULES", "decode_groups", "decode_position", "decode_rule", "encode_rule", "members"]

RULES: Mapping[str, type[AnyRule]] = {
    rule.kind: rule
    for rule in (
        Constant,
        Linear,
        Polynomial,
        Exponential,
        Step,
        MultiStep,
        Cosine,
        CosineRestarts,
        Cyclic,
        OneCycle,
        Lambda,
        Multiplicative,
        Plateau,
        Sequential,
        Chained,
        Beside,
    )
}
"""Kind to rule."""

DEEPEST = 16
"""Most rules inside of each other that are read."""

WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def encode_rule(rule: AnyRule) -> dict[str, Any]:
    """Return the kind and constants of a rule, for JSON; constants at their defaults are written too."""
    values = {field.name: getattr(rule, field.name) for field in fields(rule)}
    if "rules" in values:
        values["rules"] = [encode_rule(child) for child in values["rules"]]
    return {"kind": rule.kind, **values}


def members(value: object, names: set[str], where: str) -> dict[str, Any]:
    """Return an object of JSON that has exactly these names.

    Args:
        value: What JSON holds.
        names: The names that it must have, all of them and no others.
        where: Name of the value in messages.

    Raises:
        StateError: It is no object, or has other names.
    """
    if not isinstance(value, dict) or set(value) != names:
        got = shown(sorted(map(str, value))) if isinstance(value, dict) else type(value).__name__
        raise StateError(where, f"expected an object with {', '.join(sorted(names))}; got {got}")
    return value


def decode_rule(value: object, where: str = "schedule.rule", depth: int = 0) -> AnyRule:
    """Return the rule that was written.

    Args:
        value: What JSON holds.
        where: Name of the value in messages.
        depth: Number of rules around it.

    Raises:
        StateError: It is no object with a kind, has other constants than its kind has, or one that the kind refuses;
            or it lies inside of more than `DEEPEST` rules.
        UnknownNameError: There is no rule of that kind.
    """
    if depth > DEEPEST:
        raise StateError(where, f"rules are at most {DEEPEST} deep inside of each other")
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        raise StateError(where, "expected an object with the kind of a rule and its constants")
    if kind not in RULES:
        raise UnknownNameError("rule", kind[:80], RULES)
    rule = RULES[kind]
    known = {field.name for field in fields(rule)}
    needed = {field.name for field in fields(rule) if field.default is MISSING}
    given = {name: _tuples(one) for name, one in value.items() if name not in ("kind", "rules")}
    names = set(value) - {"kind"}
    members(dict.fromkeys(names), (names & known) | needed, where)
    if "rules" in needed:
        children = value["rules"] if isinstance(value["rules"], list) else []
        pairs = enumerate(children)
        given["rules"] = tuple(decode_rule(child, f"{where}.rules[{n}]", depth + 1) for n, child in pairs)
    try:
        return rule(**given)
    except (ScheduleError, TypeError) as error:
        raise StateError(where, str(error)) from error


def decode_position(rule: AnyRule, value: object, count: int, where: str = "schedule.position") -> Any:
    """Return the position of a rule that was written.

    Args:
        rule: The rule that it belongs to.
        value: What JSON holds.
        count: Number of parameter groups.
        where: Name of the value in messages.

    Raises:
        StateError: It is not a position of this rule, or one for another number of groups.
    """
    hints = typing.get_type_hints(rule.position)
    given = dict(members(value, set(hints), where))
    for name, hint in hints.items():
        if name == "children":
            rules = getattr(rule, "rules", ())
            children = given[name]
            if not isinstance(children, list) or len(children) != len(rules):
                raise StateError(f"{where}.children", f"expected the positions of {len(rules)} rules")
            pairs = enumerate(zip(rules, children, strict=True))
            given[name] = tuple(decode_position(r, c, count, f"{where}.children[{n}]") for n, (r, c) in pairs)
        elif hint == Values:
            given[name] = _values(given[name], count, f"{where}.{name}")
        elif hint is int:
            given[name] = _integer(given[name], f"{where}.{name}")
        else:
            given[name] = _number(given[name], f"{where}.{name}", keep=hint is not float)
    return rule.position(**given)


def decode_groups(rule: AnyRule, value: object) -> Groups:
    """Return the values of the parameter groups that were written.

    Args:
        rule: The rule that moves them.
        value: What JSON holds; the number of groups is that of its rates.

    Raises:
        StateError: They are no values of groups, or do not fit the rule.
    """
    given = members(value, set(Groups._fields), "schedule.groups")
    rates = given["rates"]
    count = len(rates) if isinstance(rates, list) else 0
    if not count:
        raise StateError("schedule.groups.rates", "expected the rate of at least one parameter group")
    read = {
        name: None if one is None and name != "rates" else _values(one, count, f"schedule.groups.{name}")
        for name, one in given.items()
    }
    if rule.momentum and read["momenta"] is None:
        raise StateError(
            "schedule.groups.momenta", f"a rule of kind {rule.kind} moves the momentum, and there is none"
        )
    try:
        rule.fit(count)
    except ScheduleError as error:
        raise StateError("schedule.groups", str(error)) from error
    return Groups(**read)  # type: ignore[arg-type]


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _values(value: object, count: int, where: str) -> Values:
    if not isinstance(value, list) or len(value) != count:
        raise StateError(where, f"expected one number for each of {count} parameter groups")
    return tuple(_number(item, f"{where}[{n}]") for n, item in enumerate(value))


def _integer(value: object, where: str) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise StateError(where, f"expected an integer of 64 bits, got {shown(value)}")
    return value


def _number(value: Any, where: str, *, keep: bool = False) -> float:
    """Return a number; integers become float unless they are to be kept as they are."""
    if isinstance(value, str) and value in WORDS and not keep:
        return WORDS[value]
    if not is_finite(value):
        raise StateError(where, f"expected a number, got {shown(value)}")
    return value if keep else float(value)

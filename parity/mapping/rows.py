"""RULES.toml: rows that are read strictly, each field checked, and written as they are read."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import tomli_w

from parity.errors import CheckpointError, UnknownNameError
from parity.mapping.row import ConversionRule, row_of
from parity.mapping.rule import LeafRule
from parity.mapping.rule_set import ConversionRules
from parity.mapping.values import require_dtype
from parity.storage import read_given

__all__ = ["parse_rules", "read_rules", "rules_text"]

MOST_BYTES = 4 << 20


def read_rules(path: Path) -> ConversionRules:
    """Read RULES.toml.

    Raises:
        CheckpointError: It cannot be read, holds no row or something else, or a row has a value that no rule has, or
            fields that exclude each other; names the row.
        UnknownNameError: A row has a field that no rule has.
    """
    try:
        document = tomllib.loads(read_given(path, MOST_BYTES).decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    rows = document.pop("rule", [])
    if document or not isinstance(rows, list) or not rows:
        more = f", and nothing else: {', '.join(document)}" if document else ""
        raise CheckpointError(f"{path}: expected at least one [[rule]]{more}")
    return ConversionRules(parse_rules(str(path), rows))


def parse_rules(where: str, rows: Sequence[Any]) -> list[ConversionRule]:
    """Return the rules that rows describe.

    Args:
        where: The file, for messages.
        rows: Tables of RULES.toml.

    Raises:
        CheckpointError: A row has a value that no rule has, lacks `torch` or `jax`, or has fields that exclude each
            other.
        UnknownNameError: A row has a field that no rule has.

    Example:
        >>> [rule] = parse_rules("RULES.toml", [{"torch": "fc.weight", "jax": "fc.kernel", "transpose": True}])
        >>> rule.how, rule.rule_class
        ('transposed', 'equivariant')
    """
    return [_rule(f"{where}: rule {at + 1}", row) for at, row in enumerate(rows)]


def rules_text(rules: Sequence[LeafRule]) -> str:
    """Return RULES.toml for rules; `read_rules` gives the same ones.

    Args:
        rules: From PyTorch to JAX, at least one.

    Raises:
        CheckpointError: No row says one of them, or a row of it would be refused.

    Example:
        >>> from parity.mapping import Transpose
        >>> print(rules_text([LeafRule(("fc.weight",), ("fc.kernel",), (Transpose(),))]), end="")
        [[rule]]
        torch = "fc.weight"
        jax = "fc.kernel"
        transpose = true
    """
    rows = [_one_name_bare(row_of(rule)) for rule in rules]
    parse_rules("RULES.toml", rows)
    return "\n".join(f"[[rule]]\n{tomli_w.dumps(row)}" for row in rows)


def _one_name_bare(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[0] if name in ("torch", "jax") and len(value) == 1 else value for name, value in row.items()}


def _rule(where: str, row: Any) -> ConversionRule:
    known = {field.name: field for field in fields(ConversionRule)}
    if not isinstance(row, dict):
        raise CheckpointError(f"{where} is no table")
    for name in row:
        if name not in known:
            raise UnknownNameError(f"field of a rule ({where})", name, list(known))
    values: dict[str, Any] = {}
    for name, value in row.items():
        check, expected = _CHECKS[name]
        value = [value] if name in ("torch", "jax") and isinstance(value, str) else value
        if not check(value):
            raise CheckpointError(f"{where}: {name} must be {expected}, got {value!r}")
        values[name] = tuple(value) if isinstance(value, list) else value
    for name in ("torch", "jax"):
        if name not in values:
            raise CheckpointError(f"{where} has no {name}")
    rule = ConversionRule(**values)
    _check_row(where, rule)
    return rule


def _check_row(where: str, rule: ConversionRule) -> None:
    """Check that the fields of a row fit each other."""
    ways = [rule.join is not None, rule.stack is not None, rule.add, rule.tie]
    if sum(ways) > 1:
        raise CheckpointError(f"{where}: join, stack, add and tie exclude each other")
    if rule.permute and rule.transpose:
        raise CheckpointError(f"{where}: permute and transpose exclude each other")
    several = rule.join is not None or rule.add or rule.tie
    if (len(rule.torch) > 1) != several:
        problem = (
            "several torch names need join, add or tie"
            if not several
            else "join, add and tie need several torch names"
        )
        raise CheckpointError(f"{where}: {problem}")
    if (len(rule.jax) > 1 or rule.split) and len(rule.jax) != len(rule.split):
        raise CheckpointError(
            f"{where}: {len(rule.jax)} jax paths need as many extents in split, got {len(rule.split)}"
        )
    stars = {pattern.split(".").count("*") for pattern in rule.torch}
    others = {path.split(".").count("*") + (rule.stack is not None) for path in rule.jax}
    if stars != others or len(stars) != 1:
        one = " and one less in jax where layers are stacked" if rule.stack is not None else ""
        raise CheckpointError(f"{where}: every name needs as many *{one}")
    if rule.stack is not None and stars == {0}:
        raise CheckpointError(f"{where}: stack needs a * in torch, for the layers")
    if rule.cast:
        require_dtype(rule.cast)


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


def _list_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and bool(value) and all(type(one) is kind for one in value)


_NAMES = (_list_of(str), "a name, or several")
_AXIS = (lambda v: type(v) is int and 0 <= v < 32, "an axis, counted from 0")
_FLAG = (_is(bool), "true or false")
_CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **{"torch": _NAMES, "jax": _NAMES, "join": _AXIS, "stack": _AXIS, "axis": _AXIS},
    **{"add": _FLAG, "tie": _FLAG, "transpose": _FLAG},
    "permute": (lambda v: _list_of(int)(v) and sorted(v) == list(range(len(v))), "the axes in another order"),
    "reshape": (lambda v: _list_of(int)(v) and min(v) >= 0, "extents"),
    "split": (lambda v: _list_of(int)(v) and min(v) >= 0, "extents"),
    "scale": (lambda v: type(v) in (int, float) and v != 0 and abs(v) < float("inf"), "a finite number other than 0"),
    "cast": (_is(str), "the name of a dtype"),
    "collection": (lambda v: type(v) is str and bool(v) and "." not in v, "a key without dots"),
}

"""RULES.toml: rows that are read strictly, each field checked, and written as they are read."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from parity.errors import CheckpointError, UnknownNameError
from parity.mapping.row import ConversionRule, row_of
from parity.mapping.rule import LeafRule
from parity.mapping.rule_set import ConversionRules
from parity.mapping.values import require_dtype
from parity.storage import Decoder, FieldReader, Misfit, MissingField, UnknownField, read_given, shown

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
    try:
        rule = _DECODER.decode(ConversionRule, row, "")
    except UnknownField as error:
        raise UnknownNameError(f"field of a rule ({where})", error.name, error.known) from error
    except MissingField as error:
        raise CheckpointError(f"{where} has no {error.name}") from error
    except Misfit as error:
        if not error.where:
            raise CheckpointError(f"{where} is no table") from error
        problem = f"{error.where} must be {error.expected}, got {shown(error.got)}"
        raise CheckpointError(f"{where}: {problem}") from error
    _check_row(where, rule)
    return rule


def _check_row(where: str, rule: ConversionRule) -> None:
    """Check that the fields of a row fit each other."""
    ways = [rule.join is not None or rule.stack is not None, rule.add, rule.tie]
    if sum(ways) > 1:
        raise CheckpointError(f"{where}: join, stack, add and tie exclude each other, but for join with stack")
    if rule.view and not (rule.permute or rule.transpose):
        raise CheckpointError(f"{where}: view is the shape before permute or transpose, and there is neither")
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


def _such(fits: Callable[[Any], bool], expected: str) -> FieldReader:
    """Return a reader of what fits."""

    def read(value: Any, where: str) -> Any:
        if not fits(value):
            raise Misfit(where, expected, value)
        return tuple(value) if isinstance(value, list) else value

    return read


def _names(value: Any, where: str) -> Any:
    several = [value] if isinstance(value, str) else value
    return _such(lambda v: _is_list_of(str, v), "a name, or several")(several, where)


def _is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is kind for one in value)


_AXIS = _such(lambda v: type(v) is int and 0 <= v < 32, "an axis, counted from 0")
_FLAG = _such(lambda v: type(v) is bool, "true or false")
_EXTENTS = _such(lambda v: _is_list_of(int, v) and min(v) >= 0, "extents")
_DECODER = Decoder(
    mapping="a table",
    by_name={
        **{"torch": _names, "jax": _names, "join": _AXIS, "stack": _AXIS, "axis": _AXIS},
        **{"add": _FLAG, "tie": _FLAG, "transpose": _FLAG, "reshape": _EXTENTS, "split": _EXTENTS, "view": _EXTENTS},
        "permute": _such(
            lambda v: _is_list_of(int, v) and sorted(v) == list(range(len(v))), "the axes in another order"
        ),
        "scale": _such(
            lambda v: type(v) in (int, float) and v != 0 and abs(v) < float("inf"), "a finite number other than 0"
        ),
        "cast": _such(lambda v: type(v) is str, "the name of a dtype"),
        "collection": _such(lambda v: type(v) is str and bool(v) and "." not in v, "a key without dots"),
    },
)

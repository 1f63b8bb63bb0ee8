"""A RunSpec from nested tables, as TOML or JSON gives them: every name and type is checked, nothing is cast."""

from __future__ import annotations

import reprlib
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from parity.errors import SpecError, UnknownNameError
from parity.schedules import ScheduleRule, encode_rule
from parity.spec.epochs import is_epochs
from parity.spec.optimizer import LATER
from parity.spec.run import RunSpec
from parity.spec.schedule import read_rule
from parity.spec.values import require, shown

__all__ = ["cut", "from_dict", "pick", "to_dict"]

MOST_SHOWN = 100
"""Largest number of characters of a value in a message."""


def from_dict(data: Mapping[str, Any]) -> RunSpec:
    """Return the spec of nested tables, as TOML or JSON gives them; every name and type is checked.

    Raises:
        SpecError: A value has the wrong type or is out of range, or `name` or `model` is missing.
        UnknownNameError: A field does not exist; the message lists those that do.

    Example:
        >>> from_dict({"name": "small", "model": {"kind": "mlp", "hidden": [16]}}).model.hidden
        (16,)
    """
    return _build(RunSpec, data, "")


def to_dict(spec: Any, *, whole: bool = False) -> dict[str, Any]:
    """Return the nested tables of a spec, or of a part of one; `from_dict` takes them back.

    Args:
        spec: A dataclass of a spec.
        whole: Whether fields that are `LATER` than files are there where they have their defaults, too.
    """
    tables = {}
    for one in fields(spec):
        value = getattr(spec, one.name)
        if not whole and one.metadata == LATER and value == one.default:
            continue
        tables[one.name] = _table(value, whole)
    return tables


def _table(value: Any, whole: bool) -> Any:
    if isinstance(value, ScheduleRule):
        return encode_rule(value)
    if isinstance(value, tuple):
        return tuple(_table(item, whole) for item in value)
    return to_dict(value, whole=whole) if is_dataclass(value) else value


def pick(hint: Any, data: Mapping[str, Any], where: str) -> Any:
    """Return the dataclass of a union whose `kind` is that of the data.

    Args:
        hint: Type of a field: a union of dataclasses, or one of them.
        data: The table that is to become one of them.
        where: Dotted name of the table, for messages.

    Returns:
        The dataclass; the hint itself where no member of it has a `kind`.

    Raises:
        UnknownNameError: The data have no `kind`, or one that no member has; the message names known ones.
    """
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    by_kind = {kind: cls for cls in options for kind in get_args(get_type_hints(cls).get("kind"))}
    if not by_kind:
        return hint
    if not isinstance(data.get("kind"), str) or data["kind"] not in by_kind:
        raise UnknownNameError(f"{where}.kind", _word(data.get("kind")), by_kind)
    return by_kind[data["kind"]]


def _build(hint: Any, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise SpecError(where, f"must be a table, got {_shown(data)}")
    cls = pick(hint, data, where)
    hints = get_type_hints(cls)
    prefix = f"{where}." if where else ""
    for name in data:
        if name not in hints:
            raise UnknownNameError("field", prefix + cut(name), [prefix + n for n in hints])
    given = {name: _convert(hints[name], value, prefix + name) for name, value in data.items()}
    missing = [n for n in ("name", "model") if cls is RunSpec and n not in given]
    if missing:
        raise SpecError(missing[0], "is required")
    return cls(**given)


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin is ScheduleRule:
        return read_rule(value, where)
    if is_dataclass(hint) or origin in (Union, types.UnionType):
        return _build(hint, value, where)
    if origin is Literal:
        if value not in get_args(hint):
            raise UnknownNameError(where, _word(value), [str(v) for v in get_args(hint)])
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise SpecError(where, f"must be a list, got {_shown(value)}")
        return tuple(_convert(get_args(hint)[0], item, where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        # the conversion of a larger integer to float would raise OverflowError
        require(abs(value) < 2**128, where, f"must be below 2**128, got {shown(value)}")
        return float(value)
    if hint is int and is_epochs(value):
        raise SpecError(where, f"{value!r}: only steps, save.every and validate_every of a new run may be in epochs")
    if type(value) is not hint:
        raise SpecError(where, f"must be of type {hint.__name__}, got {_shown(value)}")
    return value


def cut(text: str) -> str:
    """Return a text of bounded length, for a message."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _shown(value: object) -> str:
    """Return a value as text of bounded length, for a message; it may be nested deeply or a very long integer."""
    return _Short().repr(value)


def _word(value: object) -> str:
    """Return, for a message, a value that should be one of a few words."""
    return cut(value) if isinstance(value, str) else _shown(value)


class _Short(reprlib.Repr):
    """`repr` of bounded length and depth."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = MOST_SHOWN
        self.maxlevel, self.maxdict = 2, 3

    def repr_int(self, x: int, level: int) -> str:
        """Return a short integer in digits, a long one by its length in bits."""
        del level
        return shown(x)

"""A RunSpec from nested tables, as TOML or JSON gives them: every name and type is checked, nothing is cast."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

from parity.errors import SpecError, UnknownNameError
from parity.schedules import ScheduleRule, encode_rule
from parity.spec.epochs import is_epochs
from parity.spec.optimizer import LATER
from parity.spec.run import RunSpec
from parity.spec.schedule import read_rule
from parity.storage import Decoder, FieldReader, Misfit, MissingField, UnknownField, UnknownWord, pick_class, shown

__all__ = ["cut", "from_dict", "pick", "to_dict"]

MOST_SHOWN = 100
"""Largest number of characters of a name in a message."""


def from_dict(data: Mapping[str, Any]) -> RunSpec:
    """Return the spec of nested tables, as TOML or JSON gives them; every name and type is checked.

    Raises:
        SpecError: A value has the wrong type or is out of range, or `name` or `model` is missing.
        UnknownNameError: A field does not exist; the message lists those that do.

    Example:
        >>> from_dict({"name": "small", "model": {"kind": "mlp", "hidden": [16]}}).model.hidden
        (16,)
    """
    with _as_spec_errors():
        return _DECODER.decode(RunSpec, data, "")


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
        The dataclass; the hint itself if it is no union.

    Raises:
        UnknownNameError: The data have no `kind`, or one that no member has; the message names known ones.
    """
    with _as_spec_errors():
        return pick_class(hint, data, where)


@contextmanager
def _as_spec_errors() -> Iterator[None]:
    """Raise what does not fit as the errors of specs, which name a field as `--set` takes it: without an index."""
    try:
        yield
    except UnknownField as error:
        prefix = f"{_field(error.where)}." if error.where else ""
        raise UnknownNameError("field", prefix + cut(error.name), [prefix + one for one in error.known]) from error
    except UnknownWord as error:
        word = cut(error.got) if isinstance(error.got, str) else shown(error.got)
        raise UnknownNameError(_field(error.where), word, error.known) from error
    except MissingField as error:
        raise SpecError(_field(f"{error.where}.{error.name}".lstrip(".")), "is required") from error
    except Misfit as error:
        raise SpecError(_field(error.where), f"must be {error.expected}, got {shown(error.got)}") from error


def _field(where: str) -> str:
    return re.sub(r"\[\d+\]", "", where)


def _exactly(kind: type) -> FieldReader:
    def read(value: Any, where: str) -> Any:
        if type(value) is not kind:
            raise Misfit(where, f"of type {kind.__name__}", value)
        return value

    return read


def _integer(value: Any, where: str) -> Any:
    if is_epochs(value):
        problem = "only steps, save.every and validate_every of a new run may be in epochs"
        raise SpecError(_field(where), f"{value!r}: {problem}")
    return _exactly(int)(value, where)


def _float(value: Any, where: str) -> Any:
    if type(value) is not int:
        return _exactly(float)(value, where)
    if abs(value) >= 2**128:  # the conversion of a larger integer to float would raise OverflowError
        raise Misfit(where, "below 2**128", value)
    return float(value)


_DECODER = Decoder(
    mapping="a table",
    readers={
        **{int: _integer, float: _float, str: _exactly(str), bool: _exactly(bool)},
        ScheduleRule: read_rule,
    },
)
"""Ranges are checked by the specs themselves, for those that are made in Python too."""


def cut(text: str) -> str:
    """Return a text of bounded length, for a message."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."

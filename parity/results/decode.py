"""A strict decoder: JSON that anyone may have written becomes dataclasses, or one error that names the value.

It takes nothing on trust: sizes are bounded, every field has exactly its type, and nothing is cast.
"""

from __future__ import annotations

import codecs
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from parity.errors import ResultError
from parity.storage import parse_json, read_bytes

__all__ = ["Decoder", "Misfit", "read_document", "shown"]

Decoded = TypeVar("Decoded")


class Misfit(ValueError):
    """A value that does not fit its field: where it is, what was expected, what was found."""

    def __init__(self, where: str, expected: str, got: object) -> None:
        super().__init__(f"{where}: expected {expected}, got {shown(got)}")


def read_document(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of results.

    Raises:
        ResultError: The file is empty, truncated, too large, no regular file, or holds anything but one JSON object.
    """
    data = read_bytes(path, failure=ResultError).removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise ResultError(f"{path} is empty: the run that was to write it did not finish; run it again")
    try:
        return parse_json(data, path, ResultError)
    except ResultError as error:
        hint = "a truncated file comes from a run that broke off: run it again"
        raise ResultError(f"{error}; expected the JSON of a result ({hint})") from error


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """The bounds within which JSON values become dataclasses.

    Example:
        >>> @dataclass
        ... class Point:
        ...     x: float
        ...     names: tuple[str, ...] = ()
        >>> decoder = Decoder(most_items=10, most_text=100)
        >>> decoder.decode(Point, {"x": 1, "names": ["a"]}, "point")
        Point(x=1.0, names=('a',))
        >>> decoder.decode(Point, {"x": "1"}, "point")
        Traceback (most recent call last):
        parity.results.decode.Misfit: point.x: expected a number, or one of inf, -inf, nan, got '1'
    """

    most_items: int
    """Most items of one list, and names of one mapping."""
    most_text: int
    """Most characters of one text."""
    finite: bool = False
    """Whether the strings `inf`, `-inf` and `nan` are refused, which a float may be otherwise."""
    extra: bool = False
    """Whether names that are no field are ignored; otherwise they are refused."""

    def decode(self, cls: type[Decoded], value: Any, where: str) -> Decoded:
        """Return a JSON object as a dataclass.

        Args:
            cls: The dataclass. Its fields are text, integers of 64 bits, floats, booleans, literals, tuples,
                mappings, other dataclasses, any of these or None (the type first), `Any` for one plain value, or
                `object` for a value of any form.
            value: What `json` read.
            where: Name of the value in messages; empty for a whole file.

        Raises:
            Misfit: A value has another type or exceeds a bound, or a field is unknown or missing.
        """
        if not isinstance(value, dict):
            raise Misfit(where, "an object", value)
        hints, known = typing.get_type_hints(cls), {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
        for name in () if self.extra else value:
            if name not in known:
                raise Misfit(where, f"the fields {', '.join(known)}", name)
        for name, field in known.items():
            if name not in value and field.default is MISSING and field.default_factory is MISSING:
                raise Misfit(where, f"a field {name}", sorted(value))
        given = {name: value[name] for name in known if name in value}
        prefix = f"{where}." if where else ""
        return cls(**{name: self._convert(hints[name], one, prefix + name) for name, one in given.items()})

    def _convert(self, hint: Any, value: Any, where: str) -> Any:
        origin, of = typing.get_origin(hint), typing.get_args(hint)
        if hint is object or (hint is Any and not isinstance(value, dict | list)):
            return value
        if hint is Any:
            raise Misfit(where, "a plain value", value)
        if isinstance(hint, type) and is_dataclass(hint):
            return self.decode(hint, value, where)
        if origin is typing.Literal:
            if not isinstance(value, str) or value not in of:
                raise Misfit(where, f"one of {', '.join(of)}", value)
            return value
        if origin in (typing.Union, types.UnionType):
            return None if value is None else self._convert(of[0], value, where)
        if origin is tuple:
            return self._tuple(of, value, where)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            if not isinstance(value, dict) or len(value) > self.most_items:
                raise Misfit(where, f"an object of at most {self.most_items} names", value)
            keys = [self._convert(of[0], key, where) for key in value]
            return {key: self._convert(of[1], value[key], f"{where}.{shown(key)}") for key in keys}
        return self._float(value, where) if hint is float else self._plain(hint, value, where)

    def _tuple(self, of: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > self.most_items:
            raise Misfit(where, f"a list of at most {self.most_items} items", value)
        hints = of[:1] * len(value) if of[1:] == (...,) else of
        if len(hints) != len(value):
            raise Misfit(where, f"{len(hints)} items", value)
        pairs = zip(hints, value, strict=True)
        return tuple(self._convert(hint, item, f"{where}[{n}]") for n, (hint, item) in enumerate(pairs))

    def _float(self, value: Any, where: str) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number and (self.finite or value not in ("inf", "-inf", "nan")):
            raise Misfit(where, "a finite number" if self.finite else "a number, or one of inf, -inf, nan", value)
        try:
            return float(value)
        except OverflowError:
            raise Misfit(where, "a number that fits 64 bits", value) from None

    def _plain(self, hint: Any, value: Any, where: str) -> Any:
        if type(value) is not hint or (hint is int and not -(2**63) <= value < 2**63):
            name = {"str": "a text", "int": "an integer of 64 bits"}.get(hint.__name__, hint.__name__)
            raise Misfit(where, name, value)
        if hint is str and len(value) > self.most_text:
            raise Misfit(where, f"a text of at most {self.most_text} characters", value)
        return value


def shown(value: object) -> str:
    """Return a value for a message, at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

"""A strict decoder: JSON or TOML that anyone may have written becomes dataclasses, or one error that names the value.

It takes nothing on trust: sizes are bounded, every field has exactly its type, and nothing is cast. A misfit has its
place, what was expected and what was found as attributes: the caller says whether that is a spec that cannot be used,
or a damaged result.
"""

from __future__ import annotations

import reprlib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from parity.errors import similar

__all__ = ["Decoder", "FieldReader", "Misfit", "MissingField", "UnknownField", "UnknownWord", "pick_class", "shown"]

MOST_SHOWN = 80
"""Most characters of a value in a message."""

MOST_DIGITS = 30
"""Most digits of an integer in a message; Python refuses to print one of more than 4,300."""

Decoded = TypeVar("Decoded")

FieldReader = Callable[[Any, str], Any]
"""Takes a value and its name in messages, and returns what the field gets; raises Misfit."""


class Misfit(ValueError):
    """A value that does not fit its field.

    Attributes:
        where: Name of the value, such as `checks[0].seconds`.
        expected: What it should be, as a phrase.
        got: The value.
    """

    def __init__(self, where: str, expected: str, got: object, hint: str = "") -> None:
        self.where, self.expected, self.got = where, expected, got
        super().__init__(f"{where}: expected {expected}, got {shown(got)}{hint}")


class UnknownField(Misfit):
    """A name that is no field of an object.

    Attributes:
        name: The name.
        known: The fields.
    """

    def __init__(self, where: str, name: str, known: Sequence[str]) -> None:
        self.name, self.known = name, known
        close = similar(name[:MOST_SHOWN], list(known))  # a comparison takes as long as the name
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        super().__init__(where, f"the fields {', '.join(known)}", name, hint)


class MissingField(Misfit):
    """A field that an object lacks, and that has no default.

    Attributes:
        name: The field.
    """

    def __init__(self, where: str, name: str, value: Mapping[str, Any]) -> None:
        self.name = name
        super().__init__(where, f"a field {name}", sorted(value))


class UnknownWord(Misfit):
    """A value that is not one of a few words.

    Attributes:
        known: The words.
    """

    def __init__(self, where: str, value: object, known: Sequence[str]) -> None:
        self.known = known
        super().__init__(where, f"one of {', '.join(known)}", value)


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """The rules by which JSON or TOML values become dataclasses.

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
        parity.storage.decode.Misfit: point.x: expected a number, or one of inf, -inf, nan, got '1'
    """

    most_items: int | None = None
    """Most items of one list, and names of one mapping; None where the size of the file is bound enough."""
    most_text: int | None = None
    """Most characters of one text; None as above."""
    finite: bool = False
    """Whether the strings `inf`, `-inf` and `nan` are refused, which a float may be otherwise."""
    extra: bool = False
    """Whether names that are no field are ignored; otherwise they are refused."""
    mapping: str = "an object"
    """What messages call a mapping: JSON has objects, TOML tables."""
    readers: Mapping[Any, FieldReader] = field(default_factory=dict)
    """Type to what reads its values in place of the decoder's own rule."""
    by_name: Mapping[str, FieldReader] = field(default_factory=dict)
    """Name of a field of the outermost dataclass to what reads it, where its type does not say all."""

    def decode(self, cls: type[Decoded], value: Any, where: str) -> Decoded:
        """Return an object of JSON, or a table of TOML, as a dataclass.

        Args:
            cls: The dataclass. Its fields are text, integers of 64 bits, floats, booleans, literals, tuples,
                mappings, other dataclasses or several of them that differ by the literal `kind`, any of these or None
                (the type first), `Any` for one plain value, or `object` for a value of any form.
            value: What `json` or `tomllib` read.
            where: Name of the value in messages; empty for a whole file.

        Raises:
            Misfit: A value has another type or exceeds a bound, or a field is unknown or missing.
        """
        return typing.cast("Decoded", self._object(cls, value, where, self.by_name))

    def _object(self, hint: Any, value: Any, where: str, readers: Mapping[str, FieldReader]) -> Any:
        if not isinstance(value, Mapping):
            raise Misfit(where, self.mapping, value)
        cls = pick_class(hint, value, where)
        hints, known = typing.get_type_hints(cls), {one.name: one for one in fields(cls)}
        for name in () if self.extra else value:
            if name not in known:
                raise UnknownField(where, name, [*known])
        for name, one in known.items():
            if name not in value and one.default is MISSING and one.default_factory is MISSING:
                raise MissingField(where, name, value)
        prefix = f"{where}." if where else ""
        given = {
            name: readers[name](value[name], prefix + name)
            if name in readers
            else self._convert(hints[name], value[name], prefix + name)
            for name in value
            if name in known
        }
        return cls(**given)

    def _convert(self, hint: Any, value: Any, where: str) -> Any:
        origin, of = typing.get_origin(hint), typing.get_args(hint)
        if (reader := self.readers.get(origin or hint)) is not None:
            return reader(value, where)
        if hint is object or (hint is Any and not isinstance(value, dict | list)):
            return value
        if hint is Any:
            raise Misfit(where, "a plain value", value)
        if isinstance(hint, type) and is_dataclass(hint):
            return self._object(hint, value, where, {})
        if origin is typing.Literal:
            if not isinstance(value, str) or value not in of:
                raise UnknownWord(where, value, of)
            return value
        if origin in (typing.Union, types.UnionType):
            if types.NoneType in of:
                return None if value is None else self._convert(of[0], value, where)
            return self._object(hint, value, where, {})
        if origin is tuple:
            return self._tuple(of, value, where)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            if not isinstance(value, dict) or _exceeds(value, self.most_items):
                raise Misfit(where, f"{self.mapping}{_at_most(self.most_items, 'names')}", value)
            keys = [self._convert(of[0], key, where) for key in value]
            return {key: self._convert(of[1], value[key], f"{where}.{shown(key)}") for key in keys}
        return self._float(value, where) if hint is float else self._plain(hint, value, where)

    def _tuple(self, of: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or _exceeds(value, self.most_items):
            raise Misfit(where, f"a list{_at_most(self.most_items, 'items')}", value)
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
        if hint is str and _exceeds(value, self.most_text):
            raise Misfit(where, f"a text{_at_most(self.most_text, 'characters')}", value)
        return value


def _exceeds(value: Any, most: int | None) -> bool:
    return most is not None and len(value) > most


def _at_most(most: int | None, what: str) -> str:
    return "" if most is None else f" of at most {most} {what}"


def pick_class(hint: Any, value: Mapping[str, Any], where: str) -> Any:
    """Return the dataclass of a union whose literal `kind` is that of a mapping; the hint itself if it is no union.

    Args:
        hint: A dataclass, or a union of some.
        value: The mapping that is to become one of them.
        where: Name of the mapping in messages.

    Raises:
        UnknownWord: It has no `kind`, or one that no member has.
    """
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    options = typing.get_args(hint)
    by_kind = {kind: cls for cls in options for kind in typing.get_args(typing.get_type_hints(cls).get("kind"))}
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in by_kind:
        raise UnknownWord(f"{where}.kind", kind, [*by_kind])
    return by_kind[kind]


def shown(value: object) -> str:
    """Return a value for a message, at most 80 characters; it may be nested deeply, or a very long integer.

    Example:
        >>> shown("a" * 100)[-6:], shown(16**5000), shown([1, [2, [3, [4]]]])
        ('aaa...', 'an integer of 20001 bits', '[1, [2, [...]]]')
    """
    text = _SHORT.repr(value)
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


class _Short(reprlib.Repr):
    """`repr` of bounded length and depth."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 2 * MOST_SHOWN
        self.maxlevel, self.maxdict = 2, 3

    def repr_int(self, x: int, level: int) -> str:
        """Return a short integer in digits, a long one by its length in bits."""
        del level
        return str(x) if abs(x) < 10**MOST_DIGITS else f"an integer of {x.bit_length()} bits"


_SHORT = _Short()

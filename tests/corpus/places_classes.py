"""Places in classes: their attributes, slots, caches, descriptors, metaclasses, enumerations."""

from __future__ import annotations

import enum
import functools
from collections import namedtuple
from dataclasses import dataclass, replace
from typing import Any

from tests.corpus.place import Ways, table

__all__ = ["CLASSES"]


class Holder:
    shadow: Any = None


def class_attribute(first: Any) -> Ways:
    Holder.shadow = first

    def write(value: Any) -> None:
        Holder.shadow = value

    return lambda: Holder.shadow, write


class Base:
    inherited: Any = None


class Derived(Base):
    pass


def attribute_of_a_base_class(first: Any) -> Ways:
    Base.inherited = first
    one = Derived()

    def write(value: Any) -> None:
        Base.inherited = value

    return lambda: one.inherited, write


class Counted(type):
    summed: Any = None


class Made(metaclass=Counted):
    pass


def metaclass_attribute(first: Any) -> Ways:
    Counted.summed = first

    def write(value: Any) -> None:
        Counted.summed = value

    return lambda: Made.summed, write


class Slotted:
    __slots__ = ("smooth",)


def slots(first: Any) -> Ways:
    one = Slotted()
    one.smooth = first

    def write(value: Any) -> None:
        one.smooth = value

    return lambda: one.smooth, write


class Private:
    def __init__(self, value: Any) -> None:
        self.__tail = value

    def read(self) -> Any:
        return self.__tail

    def write(self, value: Any) -> None:
        self.__tail = value


def mangled_attribute_behind_bound_methods(first: Any) -> Ways:
    one = Private(first)
    return one.read, one.write


class Lazy:
    @functools.cached_property
    def box(self) -> list[Any]:
        return []


def cached_property(first: Any) -> Ways:
    one = Lazy()
    one.box.append(first)

    def write(value: Any) -> None:
        one.box[0] = value

    return lambda: one.box[0], write


class Stored:
    def __init__(self) -> None:
        self.values: dict[int, Any] = {}

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self.values[id(owner)]

    def __set__(self, owner: Any, value: Any) -> None:
        self.values[id(owner)] = value


class Described:
    polyak = Stored()


def descriptor(first: Any) -> Ways:
    one = Described()
    one.polyak = first

    def write(value: Any) -> None:
        one.polyak = value

    return lambda: one.polyak, write


class Proxy:
    def __init__(self, value: Any) -> None:
        object.__setattr__(self, "_inside", {"lagged": value})

    def __getattr__(self, name: str) -> Any:
        return self._inside[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._inside[name] = value


def custom_getattr(first: Any) -> Ways:
    one = Proxy(first)

    def write(value: Any) -> None:
        one.lagged = value

    return lambda: one.lagged, write


class Kind(enum.Enum):
    TEACHER = "teacher"


def enum_member(first: Any) -> Ways:
    Kind.TEACHER.payload = first  # type: ignore[attr-defined]

    def write(value: Any) -> None:
        Kind.TEACHER.payload = value  # type: ignore[attr-defined]

    return lambda: Kind.TEACHER.payload, write  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Frozen:
    mean: Any


def frozen_dataclass_replaced(first: Any) -> Ways:
    one = Frozen(first)

    def write(value: Any) -> None:
        nonlocal one
        one = replace(one, mean=value)

    return lambda: one.mean, write


Pair = namedtuple("Pair", "fast slow")


def namedtuple_replaced(first: Any) -> Ways:
    pair = Pair(0, first)

    def write(value: Any) -> None:
        nonlocal pair
        pair = pair._replace(slow=value)

    return lambda: pair.slow, write


class Noted(dict):  # type: ignore[type-arg]
    pass


def attribute_of_a_dict_subclass(first: Any) -> Ways:
    noted = Noted(a=1)
    noted.extra = first  # type: ignore[attr-defined]

    def write(value: Any) -> None:
        noted.extra = value  # type: ignore[attr-defined]

    return lambda: noted.extra, write  # type: ignore[attr-defined]


class Listed(list):  # type: ignore[type-arg]
    pass


def attribute_of_a_list_subclass(first: Any) -> Ways:
    listed = Listed([1])
    listed.extra = first  # type: ignore[attr-defined]

    def write(value: Any) -> None:
        listed.extra = value  # type: ignore[attr-defined]

    return lambda: listed.extra, write  # type: ignore[attr-defined]


class Failure(Exception):
    pass


def attribute_of_an_exception(first: Any) -> Ways:
    failure = Failure("none")
    failure.detail = first  # type: ignore[attr-defined]

    def write(value: Any) -> None:
        failure.detail = value  # type: ignore[attr-defined]

    return lambda: failure.detail, write  # type: ignore[attr-defined]


def context_of_an_exception(first: Any) -> Ways:
    outer = Failure("outer")
    outer.__context__ = ValueError(first)

    def write(value: Any) -> None:
        outer.__context__ = ValueError(value)

    return lambda: outer.__context__.args[0], write  # type: ignore[union-attr]


CLASSES = table(
    class_attribute="Holder shadow",
    attribute_of_a_base_class="Base inherited Derived",
    metaclass_attribute="Counted summed Made",
    slots="smooth",
    mangled_attribute_behind_bound_methods="tail",
    cached_property="box",
    descriptor="polyak values",
    custom_getattr="lagged _inside",
    enum_member="TEACHER payload",
    frozen_dataclass_replaced="mean",
    namedtuple_replaced="slow",
    attribute_of_a_dict_subclass="extra noted",
    attribute_of_a_list_subclass="extra listed",
    attribute_of_an_exception="detail failure",
    context_of_an_exception="outer context",
)(
    class_attribute,
    attribute_of_a_base_class,
    metaclass_attribute,
    slots,
    mangled_attribute_behind_bound_methods,
    cached_property,
    descriptor,
    custom_getattr,
    enum_member,
    frozen_dataclass_replaced,
    namedtuple_replaced,
    attribute_of_a_dict_subclass,
    attribute_of_a_list_subclass,
    attribute_of_an_exception,
    context_of_an_exception,
)

"""A module of a user that keeps averages in unusual places, for tests of what the capture reaches."""

import contextvars
import enum
import functools
import threading
import weakref
from collections import defaultdict
from typing import Any

import numpy as np

average = np.zeros(3)
weights_as_floats = [0.0, 0.0]
context: contextvars.ContextVar[Any] = contextvars.ContextVar("context")
local = threading.local()


class Meter:
    average = np.zeros(3)


class Registry(type):
    average = np.zeros(3)


class Registered(metaclass=Registry):
    pass


class Kind(enum.Enum):
    FAST = 1


class Averaged:
    """A descriptor that keeps what it gives by the object it is asked for."""

    def __init__(self) -> None:
        self.kept: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def __get__(self, owner: Any, cls: type) -> Any:
        return self.kept.setdefault(owner, np.zeros(3))


class Model:
    average = Averaged()


model = Model()


def by_default(value: float, average: Any = np.zeros(3)) -> None:  # noqa: B008 - that is the place
    average += value


def by_keyword(value: float, *, average: Any = np.zeros(3)) -> None:  # noqa: B008
    average += value


def with_attribute() -> None:
    """Has one."""


with_attribute.average = np.zeros(3)  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=4)
def bounded(key: int) -> Any:
    return np.zeros(3)


@functools.cache
def unbounded(key: int) -> Any:
    return np.zeros(3)


def _closure() -> Any:
    average = np.zeros(3)

    def update(value: float) -> None:
        nonlocal average
        average = average + value

    return update


update = _closure()


class Cached:
    @functools.cached_property
    def average(self) -> Any:
        return np.zeros(3)


cached = Cached()


class Guarded:
    """Whoever asks for an attribute is counted."""

    asked = 0

    def __init__(self) -> None:
        object.__setattr__(self, "average", np.zeros(3))

    def __getattribute__(self, name: str) -> Any:
        Guarded.asked += 1
        return object.__getattribute__(self, name)


guarded = Guarded()
made: defaultdict[str, Any] = defaultdict(functools.partial(np.copy, np.zeros(3)))


def add(place: str, value: float) -> None:
    """Move the average that is kept in one place."""
    if place == "default":
        by_default(value)
    elif place == "keyword":
        by_keyword(value)
    elif place == "closure":
        update(value)
    elif place == "context":
        context.set(context.get(0.0) + value)
    elif place == "local":
        local.average = getattr(local, "average", 0.0) + value
    elif place == "enum":
        Kind.FAST.average = getattr(Kind.FAST, "average", 0.0) + value
    elif place == "library":
        np.kept_by_a_test = getattr(np, "kept_by_a_test", 0.0) + value
    elif place == "class of a library":
        functools.partialmethod.kept = getattr(functools.partialmethod, "kept", 0.0) + value
    elif place == "floats":
        weights_as_floats[1] += value
    else:
        PLACES[place]()[:] += value


PLACES: dict[str, Any] = {
    "global": lambda: average,
    "class": lambda: Meter.average,
    "metaclass": lambda: Registry.average,
    "descriptor": lambda: model.average,
    "attribute": lambda: with_attribute.average,  # type: ignore[attr-defined]
    "bounded cache": lambda: bounded(3),
    "unbounded cache": lambda: unbounded(3),
    "cached property": lambda: cached.average,
    "own getattribute": lambda: object.__getattribute__(guarded, "average"),
    "default factory": lambda: made.default_factory.args[0],  # type: ignore[union-attr]
}
OTHERS = ("default", "keyword", "closure", "context", "local", "enum", "library", "class of a library", "floats")

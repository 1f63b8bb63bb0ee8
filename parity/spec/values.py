"""The checks that all specs use: a value that cannot be used raises a `SpecError` that names its field.

A spec is checked when it is created.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from parity.errors import SpecError
from parity.policy import INT32
from parity.storage import shown

__all__ = [
    "INT32",
    "require",
    "require_at_least_zero",
    "require_layers",
    "require_numbers",
    "require_positive",
]

FLOAT32 = float.fromhex("0x1.fffffep127")
"""Largest float in a spec: rates and scales are float32 on devices, in all precisions but float64."""

MOST_LAYERS = 10_000
"""Largest number of layers of a model; PyTorch takes a minute for one step through 10,000."""


def require(condition: bool, name: str, problem: str) -> None:
    """Raise a SpecError unless a condition holds.

    Args:
        condition: What must be true.
        name: Dotted name of the field, for the message.
        problem: What the value must be and what it is, for the message.

    Raises:
        SpecError: It does not hold; the message is the name and the problem.
    """
    if not condition:
        raise SpecError(name, problem)


def require_positive(spec: Any, table: str, *names: str) -> None:
    """Raise a SpecError unless every number in some fields of a spec is above 0; NaN is not.

    Args:
        spec: A dataclass of a spec.
        table: As of `require_numbers`.
        names: The fields, numbers or tuples of numbers, in the order in which they are checked.

    Raises:
        SpecError: One is not; names the field.
    """
    for name, number in _numbers(spec, table, names):
        require(number > 0, name, f"must be above 0, got {number}")


def require_at_least_zero(spec: Any, table: str, *names: str) -> None:
    """Raise a SpecError unless every number in some fields of a spec is 0 or above; NaN is neither.

    Args:
        spec: A dataclass of a spec.
        table: As of `require_numbers`.
        names: The fields, in the order in which they are checked.

    Raises:
        SpecError: One is below, or NaN; names the field.
    """
    for name, number in _numbers(spec, table, names):
        require(number >= 0, name, f"must be at least 0, got {number}")


def require_numbers(spec: Any, table: str = "", **most: int) -> None:
    """Raise a SpecError if a number in any field of a spec, or in a tuple there, does not fit into int32 or float32.

    Args:
        spec: A dataclass of a spec.
        table: Name of the field of RunSpec that holds it, such as `optimizer`; empty for RunSpec itself.
        most: Dotted name of a field to the largest integer allowed there, where that is not the one of int32.
    """
    for name, number in _numbers(spec, table, [field.name for field in fields(spec)]):
        if isinstance(number, float):
            require(math.isfinite(number), name, f"must be finite, got {number}")
            require(abs(number) <= FLOAT32, name, f"must be at most {FLOAT32:.8g}, got {number}")
        elif isinstance(number, int):
            limit = most.get(name, INT32)
            require(abs(number) <= limit, name, f"must be at most {limit}, got {shown(number)}")


def _numbers(spec: Any, table: str, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name of each field with its value, or with each item of a tuple or list."""
    for name in names:
        value = getattr(spec, name)
        for number in value if isinstance(value, list | tuple) else (value,):
            yield f"{table}.{name}".lstrip("."), number


def require_layers(layers: int, name: str) -> None:
    """Raise a SpecError unless a field asks for 1 to `MOST_LAYERS` layers.

    Args:
        layers: The number of layers.
        name: Dotted name of the field, for the message.

    Raises:
        SpecError: There are none, or more; names the field.
    """
    require(layers > 0, name, "needs at least one layer")
    require(layers <= MOST_LAYERS, name, f"must be at most {MOST_LAYERS} layers, got {layers}")

"""What rules read and write: the values of the parameter groups, and how numbers are checked, shown and spread."""

from __future__ import annotations

import sys
from typing import NamedTuple

__all__ = ["Each", "Groups", "Number", "Values", "is_finite", "shown", "spread"]

Number = int | float
Each = Number | tuple[Number, ...]
"""One value for all groups, or one for each."""

Values = tuple[float, ...]
"""One float64 for each parameter group."""


class Groups(NamedTuple):
    """The values of the parameter groups that rules read and write."""

    rates: Values
    """Learning rate of each group."""
    initial: Values | None = None
    """Learning rate from which rules that are built later start, as `initial_lr` of PyTorch's groups; None before
    a rule has set it."""
    momenta: Values | None = None
    """Momentum, or first beta, of each group; None if no rule moves it."""


def is_finite(value: object) -> bool:
    """Return whether a value is a number that float64 holds; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def shown(value: object) -> str:
    """Return a value for a message, at most 80 characters."""
    if isinstance(value, int) and value.bit_length() > 256:
        return "an integer beyond float64"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def spread(value: Number | tuple[Number, ...], count: int) -> Values:
    """Return a constant as one value for each group.

    Args:
        value: One for all groups, or a tuple with one for each.
        count: Number of groups.

    Example:
        >>> spread(0.1, 2), spread((0.1, 0.2), 2)
        ((0.1, 0.1), (0.1, 0.2))
    """
    return tuple(value) if isinstance(value, tuple) else (value,) * count

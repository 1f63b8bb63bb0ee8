"""Scales: where a value lies along an axis, and which values label it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Scale", "linear", "logarithmic", "power", "spanning", "symmetric"]

DECADES = 10
"""Most decades above the linear middle of a symmetric logarithmic scale."""

MOST = 1e290
"""Sizes beyond it lie past the end of every scale: its powers of ten would not be finite."""

LABELS = 4
"""About so many labels on an axis, or on each half of a symmetric one."""

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis."""

    kind: Literal["linear", "log", "symlog"]
    low: float
    high: float
    threshold: float = 1.0
    """Half-width of the linear middle of a symmetric logarithmic scale."""
    ticks: tuple[tuple[float, str], ...]
    """Values to write, and how."""

    def place(self, value: float) -> float:
        """Return where a value lies: 0 at the low end, 1 at the high one, beyond its end 0 or 1."""
        low, high, here = (self._unbent(x) for x in (self.low, self.high, min(max(value, self.low), self.high)))
        return (here - low) / (high - low)

    def _unbent(self, value: float) -> float:
        if self.kind == "linear":
            return value
        if self.kind == "log":
            return math.log10(value)
        size = abs(value) / self.threshold
        return math.copysign(size if size < 1 else 1 + math.log10(size), value)


def linear(values: Iterable[float | None], *, zero: bool = False, count: int = LABELS) -> Scale:
    """Return a linear scale around the finite values, ending on round ones.

    Args:
        values: What is to be shown.
        zero: Whether zero belongs to it.
        count: About so many steps between labels.
    """
    finite = [*_finite(values), *([0.0] if zero else [])] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a constant lies in the middle
        pad = abs(low) / 2 or 1.0
        low, high = low - pad, high + pad
    step = _round_step((high - low) / count)
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = tuple((n * step, _plain(n * step)) for n in range(first, last + 1))
    return Scale(kind="linear", low=first * step, high=last * step, ticks=ticks)


def logarithmic(values: Iterable[float | None]) -> Scale:
    """Return a logarithmic scale around the positive finite values, ending on powers of ten."""
    found = [x for x in _finite(values) if x > 0] or [1.0]
    first, last = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
    last = max(last, first + 1)
    every = math.ceil((last - first) / (LABELS + 1))
    ticks = tuple((10.0**n, power(n)) for n in range(first, last + 1, every))
    return Scale(kind="log", low=10.0**first, high=10.0**last, ticks=ticks)


def spanning(values: Iterable[float | None], span: float) -> Scale:
    """Return a logarithmic scale for positive values that span more than a factor, else a linear one.

    Args:
        values: What is to be shown; None, NaN and sizes of `MOST` and more are left out.
        span: The factor between the smallest and the largest.

    Example:
        >>> spanning([1.0, 100.0], 20.0).kind, spanning([0.0, 100.0], 20.0).kind
        ('log', 'linear')
    """
    finite = _finite(values)
    wide = bool(finite) and min(finite) > 0 and max(finite) / min(finite) > span
    return logarithmic(finite) if wide else linear(finite)


def symmetric(values: Iterable[float | None]) -> Scale:
    """Return a symmetric logarithmic scale: linear around zero, logarithmic on both sides of it."""
    sizes = [abs(x) for x in _finite(values) if x]
    if not sizes:
        return Scale(kind="symlog", low=-1.0, high=1.0, ticks=((0.0, "0"),))
    top = math.ceil(math.log10(max(sizes)))
    bottom = max(math.floor(math.log10(min(sizes))), top - DECADES, -307)
    top = max(top, bottom + 1)
    every = math.ceil((top - bottom) / (LABELS - 1))
    exponents = range(top, bottom - 1, -every)
    above = [(10.0**n, power(n)) for n in exponents]
    below = [(-value, f"−{label}") for value, label in above]
    ticks = tuple(sorted([*above, (0.0, "0"), *below]))
    return Scale(kind="symlog", low=-(10.0**top), high=10.0**top, threshold=10.0**bottom, ticks=ticks)


def power(exponent: int) -> str:
    """Return a power of ten as it is written.

    Example:
        >>> power(-12), power(0), power(3)
        ('10⁻¹²', '1', '10³')
    """
    return "1" if exponent == 0 else "10" if exponent == 1 else f"10{str(exponent).translate(_SUPERSCRIPT)}"


def _finite(values: Iterable[float | None]) -> list[float]:
    """Return the values that can be drawn; what is smaller than any scale counts as zero."""
    drawn = (x for x in values if x is not None and abs(x) < MOST)
    return [x if abs(x) > 1 / MOST else 0.0 for x in drawn]


def _round_step(rough: float) -> float:
    """Return 1, 2 or 5 times a power of ten, the next above."""
    decade = 10.0 ** math.floor(math.log10(rough))
    return next(n * decade for n in (1, 2, 5, 10) if n * decade >= rough * (1 - 1e-9))


def _plain(value: float) -> str:
    """Return a round value as it is written: `0.25`, `12,000`, `3·10⁻⁵`."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:,.6g}".replace("-", "−") if abs(value) < 1e4 else f"{value:,.0f}".replace("-", "−")
    mantissa, exponent = f"{value:.3e}".split("e")
    digits = mantissa.rstrip("0").rstrip(".").replace("-", "−")
    return f"{digits}·{power(int(exponent))}"

"""Step and validation records: their JSON, their curve over all process starts, and where two curves differ."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from parity.contract.trainer import QUANTITIES, StepRecord, Validation
from parity.errors import RunDirectoryError, explain
from parity.storage import plain, read_lines

__all__ = [
    "Divergence",
    "first_divergence",
    "read_records",
    "record_line",
    "same",
    "splice",
]

AnyRecord = TypeVar("AnyRecord", StepRecord, Validation)

_encode = json.JSONEncoder(allow_nan=False).encode


def record_line(record: StepRecord | Validation) -> str:
    """Return a record as one line of valid JSON; floats read back bit for bit.

    Non-finite floats become the strings `inf`, `-inf` and `nan`, since JSON has no token for them.
    """
    row = record._asdict()
    try:
        return _encode(row)
    except ValueError:
        return _encode(plain(row))


def read_records(path: Path, kind: type[AnyRecord]) -> list[AnyRecord]:
    """Return the records of a file, in its order; none where there is no file.

    Args:
        path: A file of JSON lines, as `record_line` writes them.
        kind: `StepRecord` or `Validation`.

    Raises:
        RunDirectoryError: A line misses a field or has a value of the wrong type.
    """
    out = []
    types = get_type_hints(kind)
    for row in read_lines(path):
        try:
            values: dict[str, Any] = {name: _read(row[name], wanted) for name, wanted in types.items()}
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise RunDirectoryError(f"{path}: not a {kind.__name__}: {row!r} ({explain(error)})") from error
        out.append(kind(**values))
    return out


def splice(records: Iterable[AnyRecord]) -> dict[int, AnyRecord]:
    """Return step to record in step order, the highest attempt for each step."""
    chosen: dict[int, AnyRecord] = {}
    for record in records:
        known = chosen.get(record.step)
        if known is None or record.attempt >= known.attempt:
            chosen[record.step] = record
    return dict(sorted(chosen.items()))


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The first place where two curves differ."""

    step: int
    quantity: str
    """A judged field of StepRecord, `validation`, or `missing`."""
    expected: Any
    got: Any


def first_divergence(
    reference: Mapping[int, StepRecord],
    other: Mapping[int, StepRecord],
    quantities: Iterable[str] = QUANTITIES,
) -> Divergence | None:
    """Return the first step and quantity in which two curves differ bit for bit, or None.

    Within a step, quantities are looked at in the order in which a step decides them: a wrong batch comes before
    the wrong loss it causes.

    Args:
        reference: Step to record of the run that counts as the reference.
        other: The same of the other run; a step that only one of them has is the divergence `missing`.
        quantities: Fields of the record that are compared, in this order.

    Example:
        >>> record = StepRecord(
        ...     attempt=0, step=1, loss=0.5, lr=0.1, grad_norm=1.0, loss_scale=1.0, skipped=False, batch="a1",
        ...     epoch=0, samples=64, seconds=0.01,
        ... )
        >>> first_divergence({1: record}, {1: record._replace(loss=0.25, batch="b2")})
        Divergence(step=1, quantity='batch', expected='a1', got='b2')
    """
    for step in sorted({*reference, *other}):
        a, b = reference.get(step), other.get(step)
        if a is None or b is None:
            return Divergence(step=step, quantity="missing", expected=a is not None, got=b is not None)
        for name in quantities:
            left, right = getattr(a, name), getattr(b, name)
            if not same(left, right):
                return Divergence(step=step, quantity=name, expected=left, got=right)
    return None


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal bit for bit: NaN equals NaN, and 0.0 differs from -0.0.

    Example:
        >>> same(float("nan"), float("nan")), same(0.0, -0.0), same("a", "a")
        (True, False, True)
    """
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b)


def _read(value: Any, wanted: type) -> Any:
    if wanted is float and not isinstance(value, bool) and isinstance(value, int | float | str):
        return float(value)
    if type(value) is not wanted:
        raise TypeError(f"{value!r} is not of type {wanted.__name__}")
    return value

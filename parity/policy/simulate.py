"""A simulation of the checkpoint policy: the checkpoints on disk after every save of a curve of metrics."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from parity import policy
from parity.errors import RunDirectoryError, SpecError
from parity.policy.conformance import PolicyInMemory
from parity.policy.rules import INT32, Mode, Reason, Rules, Saved
from parity.storage import MAX_BYTES, read_lines

__all__ = ["Moment", "read_curve", "simulate"]

MISSING = ("", "-", "none", "null")
"""Words for a metric that was not measured, in upper or lower case."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The checkpoints on disk after one save."""

    saved: Saved
    there: dict[int, tuple[Reason, ...]]
    """Step to the rules that keep it, in step order."""
    best: int | None
    latest: int
    removed: tuple[int, ...]
    """Steps whose checkpoints this save removed."""


def simulate(curve: Iterable[Saved], rules: Rules) -> list[Moment]:
    """Apply a policy save by save, and return the checkpoints on disk after each.

    Args:
        curve: The saves, in step order.
        rules: The rules of the policy.

    Example:
        >>> curve = [Saved(step=10, metric=0.9), Saved(step=20, metric=0.5), Saved(step=30, metric=0.6)]
        >>> simulate(curve, Rules(mode="max", keep_latest=1))[-1].removed
        (20,)
    """
    disk, moments = PolicyInMemory(rules), []
    for saved in curve:
        before = {*disk.saved, saved.step}
        disk.save(saved.step, saved.metric, saved.saved_at)
        moments.append(
            Moment(
                saved=saved,
                there=policy.reasons(disk.saved.values(), rules),
                best=disk.best(),
                latest=max(disk.saved),
                removed=tuple(sorted(before - set(disk.saved))),
            )
        )
    return moments


def read_curve(source: str, every: int, seconds: float) -> tuple[list[Saved], Mode | None]:
    """Read the saves of a curve: steps, metrics and times.

    Args:
        source: Path of a JSON-lines file (objects with `step` and `value`), of a CSV file (`step,metric` or
            `metric`), or metrics separated by commas; `-` or nothing where none was measured.
        every: Steps between two saves, where the source has no steps.
        seconds: Duration of a step.

    Returns:
        The saves, and the mode of the metric if the source names one: `accuracy` or `loss`.

    Raises:
        SpecError: The source is none of these; the message names the line.

    Example:
        >>> curve, mode = read_curve("0.5,0.7,-", every=10, seconds=1.0)
        >>> [(saved.step, saved.metric) for saved in curve], mode
        ([(10, 0.5), (20, 0.7), (30, None)], None)
    """
    mode: Mode | None = None
    if os.path.isfile(source):  # a list of metrics may be longer than a name: Path.is_file() raises then
        pairs, mode = _read_file(Path(source), every)
    elif "," in source or _is_metric(source):
        pairs = [(every * n, _metric(word, f"metric {n}")) for n, word in enumerate(source.split(","), 1)]
    else:
        raise SpecError("CURVE", f"no file or run {_shown(source)}, and no list of metrics such as 0.5,0.7,nan,-")
    if not pairs:
        raise SpecError("CURVE", f"{source} holds no metric")
    for (before, _), (after, _) in pairwise(pairs):
        if after <= before:
            raise SpecError("CURVE", f"steps must increase, got {after} after {before}")
    return [Saved(step=step, metric=metric, saved_at=step * seconds) for step, metric in pairs], mode


def _read_file(path: Path, every: int) -> tuple[list[tuple[int, float | None]], Mode | None]:
    """Return step and metric of each line of a file, and the mode of the metric that its lines name."""
    if path.stat().st_size > MAX_BYTES:
        raise SpecError("CURVE", f"{path} is longer than {MAX_BYTES:,} bytes")
    is_csv = path.suffix.lower() == ".csv"
    rows, heads = _csv_rows(path) if is_csv else (_json_rows(path), 0)
    pairs = []
    for n, row in enumerate(rows, 1):
        where = f"{path} line {n + heads}"
        if "value" not in row and not isinstance(row.get("metric"), int | float):
            raise SpecError("CURVE", f"{where} has neither `value` nor a number as `metric`: {row!r}")
        step = _step(row.get("step", every * n), where)
        pairs.append((step, _metric(row.get("value", row.get("metric")), where)))
    names = {row["metric"] for row in rows if row.get("metric") in ("accuracy", "loss")}
    if not is_csv:
        pairs = sorted(dict(pairs).items())  # a repeated step: the last attempt counts
    return pairs, policy.mode_of(names.pop()) if len(names) == 1 else None


def _json_rows(path: Path) -> list[dict[str, Any]]:
    try:
        return read_lines(path)
    except (RunDirectoryError, UnicodeDecodeError) as error:
        raise SpecError("CURVE", f"{error}; a CSV file must be named .csv") from error


def _csv_rows(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of a CSV file by column, as JSON lines would give them, and how many heads there are."""
    try:
        rows = [row for row in csv.reader(path.read_text(encoding="utf-8-sig").splitlines()) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError("CURVE", f"{path} cannot be read: {error}") from error
    names = [name.strip().lower() for name in rows[0]] if rows else []
    headed = bool(names) and not _is_metric(names[-1])
    names = names if headed else ["step", "metric"][-len(names) :]
    columns = ["value" if name == "metric" else name for name in names]
    if columns.count("value") != 1:
        raise SpecError("CURVE", f"{path} must have one column `metric` or `value`, has {', '.join(names)}")
    for n, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise SpecError("CURVE", f"{path} line {n} has {len(row)} columns, expected {len(names)}")
    return [dict(zip(columns, row, strict=True)) for row in rows[headed:]], int(headed)


def _is_metric(word: Any) -> bool:
    try:
        _metric(word, "")
    except SpecError:
        return False
    return True


def _metric(word: Any, where: str) -> float | None:
    if word is None or (isinstance(word, str) and word.strip().lower() in MISSING):
        return None
    try:
        return float(word)
    except (TypeError, ValueError, OverflowError):  # the last: an integer beyond float64
        raise SpecError("CURVE", f"{where}: {_shown(word)} is no metric; a number, nan, inf, or - for none") from None


def _step(word: Any, where: str) -> int:
    try:
        value = float(word)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not (0 <= value <= INT32 and value == int(value)):
        raise SpecError("CURVE", f"{where}: {_shown(word)} is no step")
    return int(value)


def _shown(word: Any) -> str:
    text = repr(word)
    return text if len(text) <= 100 else f"{text[:100]}..."

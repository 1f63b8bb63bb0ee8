"""Read pytest-benchmark's JSON with our ratios and growth fits in it, as data that anybody may have written."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from parity.errors import ResultError
from parity.storage import MAX_BYTES, MAX_VALUES, read_bytes

__all__ = ["Benchmark", "BenchmarkFile", "Better", "Growth", "Ratio", "read_benchmarks"]

Better = Literal["lower", "higher"]

SCHEMAS = ("4", "5")
"""Major versions of pytest-benchmark whose JSON is understood."""

STATISTICS = ("min", "q1", "median", "q3", "max", "rounds")
MOST_BENCHMARKS, MOST_ROWS, MOST_LETTERS = 10_000, 1_000, 2_000
"""Bounds on a file that anybody may have written: entries; ratios or points of one; letters of a name."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How one way compares with another, round by round."""

    name: str
    of: str
    """What is divided by what, in words."""
    median: float
    """Of the rounds' ratios."""
    q1: float
    q3: float
    rounds: int
    better: Better
    """Which direction is an improvement."""
    bar: float | None
    """What it should reach: at most this where lower is better, at least this where higher is; None for no bar."""

    @property
    def met(self) -> bool | None:
        """Tell whether the median reaches the bar; None without a bar."""
        if self.bar is None:
            return None
        return self.median <= self.bar if self.better == "lower" else self.median >= self.bar


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How a cost grows with a size: points and the straight line through them."""

    name: str
    x: str
    """The size and its unit, in words."""
    y: str
    """The cost and its unit, in words."""
    points: tuple[tuple[float, float], ...]
    slope: float
    intercept: float
    r2: float
    """Share of the variance that the line explains."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One entry: one way of doing something, timed."""

    name: str
    """As pytest-benchmark shows it; with the path of its test where two entries share one."""
    group: str | None
    """The test whose arms are compared."""
    seconds: Mapping[str, float]
    """`min`, `q1`, `median`, `q3`, `max` of one round, and the number of `rounds`; context, never judged."""
    ratios: tuple[Ratio, ...]
    growth: tuple[Growth, ...]
    info: Mapping[str, Any]
    """The rest of what the benchmark noted: bytes, steps, versions, load."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkFile:
    """One run of the benchmarks."""

    path: Path
    datetime: str
    """When, as ISO 8601."""
    commit: str | None
    dirty: bool = False
    """Whether the working tree held changes that are not in the commit."""
    machine: Mapping[str, Any]
    """What ran it: CPU, Python, versions, devices, threads."""
    benchmarks: tuple[Benchmark, ...]

    @property
    def measured(self) -> str:
        """Return when, and on what code: a file of benchmarks may be older than what it is shown with."""
        code = f", commit {self.commit}" if self.commit else ""
        return f"{self.datetime}{code}{' with uncommitted changes' if code and self.dirty else ''}"


def read_benchmarks(path: Path | str) -> BenchmarkFile:
    """Read what pytest-benchmark wrote; the file is taken for nothing but data.

    Raises:
        ResultError: It cannot be read, was cut off, is no JSON of pytest-benchmark, or holds a ratio or growth of
            another form; the message names the entry.
    """
    path = Path(path)
    top = _Reader(path, "the file", _parse(path))
    lacking = [name for name in ("version", "machine_info", "benchmarks", "datetime") if name not in top.value]
    if lacking:
        found = ", ".join(sorted(top.value)[:8]) or "nothing"
        raise top.error(
            f"lacks {', '.join(lacking)} and holds {found}: not a file of --benchmark-json (`make bench`)"
        )
    version = top.text("version")
    if version.split(".")[0] not in SCHEMAS:
        known = " or ".join(f"{major}.x" for major in SCHEMAS)
        raise top.error(f"was written by pytest-benchmark {version!r}; {known} is understood")
    rows = top.rows("benchmarks", MOST_BENCHMARKS)
    shared = {name for name, count in Counter(row.text("name") for row in rows).items() if count > 1}
    benchmarks = tuple(_benchmark(row, shared) for row in rows)
    names = Counter(benchmark.name for benchmark in benchmarks)
    if names and (most := names.most_common(1)[0])[1] > 1:
        raise top.error(f"holds {most[1]} benchmarks called {most[0]!r}")
    commit = top.value.get("commit_info")
    commit = commit if isinstance(commit, dict) else {}
    identity = commit.get("id")
    return BenchmarkFile(
        path=path,
        datetime=top.text("datetime"),
        commit=identity if isinstance(identity, str) else None,
        dirty=commit.get("dirty") is True,
        machine=top.part("machine_info").value,
        benchmarks=benchmarks,
    )


def _benchmark(row: _Reader, shared: set[str]) -> Benchmark:
    name = row.text("name")
    name = row.text("fullname") if name in shared else name
    entry = _Reader(row.path, f"benchmark {name!r}", row.value)
    stats, extra = entry.part("stats"), entry.part("extra_info")
    return Benchmark(
        name=name,
        group=entry.text("group") if entry.value.get("group") is not None else None,
        seconds={key: stats.number(key) for key in STATISTICS},
        ratios=tuple(_ratio(key, part) for key, part in extra.parts("ratios")),
        growth=tuple(_growth(key, part) for key, part in extra.parts("growth")),
        info={key: value for key, value in extra.value.items() if key not in ("ratios", "growth")},
    )


def _ratio(name: str, part: _Reader) -> Ratio:
    better = part.text("better")
    if better not in ("lower", "higher"):
        raise part.error(f"`better` must be 'lower' or 'higher', got {better!r}")
    q1, median, q3 = (part.number(key) for key in ("q1", "median", "q3"))
    if not q1 <= median <= q3:
        raise part.error(f"needs q1 <= median <= q3, got {q1}, {median}, {q3}")
    return Ratio(
        name=name,
        of=part.text("of"),
        median=median,
        q1=q1,
        q3=q3,
        rounds=part.count("rounds"),
        better="lower" if better == "lower" else "higher",
        bar=None if part.value.get("bar") is None else part.number("bar"),
    )


def _growth(name: str, part: _Reader) -> Growth:
    points = part.value.get("points")
    if not isinstance(points, list) or not 2 <= len(points) <= MOST_ROWS:
        raise part.error(f"`points` must be a list of 2 to {MOST_ROWS} pairs")
    pairs = [_Reader(part.path, f"{part.where}, point {i}", _pair(point)) for i, point in enumerate(points)]
    return Growth(
        name=name,
        x=part.text("x"),
        y=part.text("y"),
        points=tuple((pair.number("x"), pair.number("y")) for pair in pairs),
        slope=part.number("slope"),
        intercept=part.number("intercept"),
        r2=part.number("r2"),
    )


def _pair(point: Any) -> dict[str, Any]:
    return dict(zip("xy", point, strict=True)) if isinstance(point, list) and len(point) == 2 else {}


@dataclass(frozen=True)
class _Reader:
    """An object of the file, and where it stands for messages."""

    path: Path
    where: str
    value: dict[str, Any]

    def error(self, problem: str) -> ResultError:
        return ResultError(f"{self.path}: {self.where[:MOST_LETTERS]} {problem}")

    def text(self, name: str) -> str:
        value = self.value.get(name)
        if not isinstance(value, str) or len(value) > MOST_LETTERS:
            raise self.error(f"needs a text of at most {MOST_LETTERS} letters as `{name}`, got {str(value)[:60]!r}")
        return value

    def number(self, name: str) -> float:
        value = self.value.get(name)
        try:
            finite = type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
        except OverflowError:  # an integer beyond every float
            finite = False
        if not finite:
            raise self.error(f"needs a finite number as `{name}`, got {str(value)[:60]!r}")
        return float(value)  # type: ignore[arg-type]

    def count(self, name: str) -> int:
        value = self.number(name)
        if value < 1 or value != int(value):
            raise self.error(f"needs a count of at least 1 as `{name}`, got {value:g}")
        return int(value)

    def part(self, name: str) -> _Reader:
        value = self.value.get(name)
        if not isinstance(value, dict):
            raise self.error(f"needs an object as `{name}`, got {type(value).__name__}")
        return _Reader(self.path, self.where, value)

    def parts(self, name: str) -> list[tuple[str, _Reader]]:
        """Return the objects by their names; none if there is no such field."""
        if name not in self.value:
            return []
        part = self.part(name)
        if len(part.value) > MOST_ROWS or any(len(key) > MOST_LETTERS for key in part.value):
            raise self.error(f"has more than {MOST_ROWS} `{name}`, or a longer name than {MOST_LETTERS} letters")
        rows = [(key, _Reader(self.path, f"{self.where}, {name} {key!r}", part.value)) for key in part.value]
        return [(key, _Reader(row.path, row.where, row.part(key).value)) for key, row in rows]

    def rows(self, name: str, most: int) -> list[_Reader]:
        value = self.value.get(name)
        if not isinstance(value, list) or len(value) > most or not all(isinstance(item, dict) for item in value):
            raise self.error(f"needs a list of at most {most} objects as `{name}`")
        return [_Reader(self.path, f"entry {i} of {name}", item) for i, item in enumerate(value)]


def _parse(path: Path) -> dict[str, Any]:
    data = read_bytes(path, MAX_BYTES, ResultError)
    if not data.strip():
        raise ResultError(f"{path} is empty: the run that was to write it did not end; run it again")
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ResultError(f"{path} holds more than {MAX_VALUES} values")
    try:
        value = json.loads(data.decode("utf-8"), parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path} is no whole JSON: {error}; it may have been cut off") from error
    if not isinstance(value, dict):
        raise ResultError(f"{path} holds a JSON {type(value).__name__}, not the object pytest-benchmark writes")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value

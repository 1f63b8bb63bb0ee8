"""Files of pytest-benchmark with our ratios and growth fits in them, read as data that anyone may have written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from parity.errors import ResultError
from parity.results.documents import read_document
from parity.storage import Decoder, Misfit, shown

__all__ = [
    "BarOutcome",
    "Benchmark",
    "BenchmarkFile",
    "Better",
    "Growth",
    "Ratio",
    "Speed",
    "decode_benchmarks",
    "read_benchmarks",
]

Better = Literal["lower", "higher"]

BarOutcome = Literal["met", "missed", "undecided"]
"""What a ratio comes to: `undecided` where its bar lies within the interval of its median."""

SCHEMAS = ("4", "5")
"""Major versions of pytest-benchmark whose JSON is understood."""

MOST_BENCHMARKS = 10_000
"""Most entries of one file."""

_DECODER = Decoder(most_items=1_000, most_text=2_000, finite=True, extra=True)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio of two ways to do the same work, taken round by round."""

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
    low: float | None = None
    """Low end of the 95 % interval of the median, by bootstrap over the rounds; None in files of before."""
    high: float | None = None
    """High end of that interval."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the ends of the 95 % interval of the median; None where the file has none."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def outcome(self) -> BarOutcome | None:
        """Return `met` or `missed` where the whole interval lies on one side of the bar; None without a bar.

        A ratio without an interval, of a file that was written before there were any, is judged by its median.
        """
        if self.bar is None:
            return None
        low, high = self.interval or (self.median, self.median)
        if self.better == "lower":
            return "met" if high <= self.bar else "missed" if low > self.bar else "undecided"
        return "met" if low >= self.bar else "missed" if high < self.bar else "undecided"


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What trains in a benchmark, so that its steps per second stand in the table."""

    model: str
    """Name of the preset."""
    side: str
    """`jax` or `torch`."""
    mode: str
    """How steps are run: `scan`, `loop`, `eager`, `compiled`."""
    devices: int = 1


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The growth of a cost with a size: points and the straight line through them."""

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
    """`min`, `q1`, `median`, `q3`, `max` of one round, `ld15iqr` and `hd15iqr` (the lowest and the highest round
    within 1.5 interquartile ranges of the quartiles), and the number of `rounds`; context, never judged."""
    ratios: tuple[Ratio, ...]
    growth: tuple[Growth, ...]
    steps_per_second: float | None = None
    """Training steps per second, by the median round; None where nothing is trained."""
    speed: Speed | None = None
    """What trains; None for a benchmark that does not stand in the table of steps per second."""
    info: Mapping[str, Any]
    """The remaining notes of the benchmark: bytes, steps, versions, load."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkFile:
    """One run of the benchmarks."""

    datetime: str
    """When it was measured, as ISO 8601."""
    commit: str | None
    dirty: bool = False
    """Whether the working tree held changes that are not in the commit."""
    machine: Mapping[str, Any]
    """The machine: CPU, Python, versions, devices, threads."""
    benchmarks: tuple[Benchmark, ...]

    @property
    def measured(self) -> str:
        """Return when it was measured, and at which commit: it may be older than the results beside it."""
        code = f", commit {self.commit}" if self.commit else ""
        return f"{self.datetime}{code}{' with uncommitted changes' if code and self.dirty else ''}"


@dataclass(frozen=True, kw_only=True)
class _Stats:
    min: float
    q1: float
    median: float
    q3: float
    max: float
    rounds: float
    ld15iqr: float | None = None
    hd15iqr: float | None = None


@dataclass(frozen=True, kw_only=True)
class _Notes:
    """What our benchmarks note, by name; ratios and fits without their names."""

    ratios: Mapping[str, object] = field(default_factory=dict)
    growth: Mapping[str, object] = field(default_factory=dict)
    steps_per_second: float | None = None
    trains: Speed | None = None


@dataclass(frozen=True, kw_only=True)
class _BenchmarkEntry:
    """One entry as pytest-benchmark writes it."""

    name: str
    fullname: str = ""
    group: str | None = None
    stats: _Stats
    extra_info: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class _File:
    """A file as pytest-benchmark writes it."""

    version: str
    datetime: str
    machine_info: Mapping[str, object]
    commit_info: object = None
    benchmarks: tuple[object, ...]


def read_benchmarks(path: Path | str) -> BenchmarkFile:
    """Read a file of pytest-benchmark as data that anyone may have written.

    Raises:
        ResultError: It cannot be read, was cut off, is no JSON of pytest-benchmark, or holds a ratio or fit of
            another form; the message names the entry.
    """
    return decode_benchmarks(Path(path), read_document(Path(path)))


def decode_benchmarks(path: Path, data: Mapping[str, Any]) -> BenchmarkFile:
    """Return the benchmarks in a JSON object that was read from a file.

    Args:
        path: The file, for messages.
        data: The object.

    Raises:
        ResultError: As `read_benchmarks`.
    """
    missing = [name for name in ("version", "machine_info", "benchmarks", "datetime") if name not in data]
    if missing:
        found = ", ".join(sorted(data)[:8]) or "nothing"
        raise ResultError(
            f"{path}: lacks {', '.join(missing)} and holds {found}: not a file of --benchmark-json (`make bench`)"
        )
    try:
        file = replace(_DECODER, most_items=MOST_BENCHMARKS).decode(_File, data, "")
        if file.version.split(".")[0] not in SCHEMAS:
            known = " or ".join(f"{major}.x" for major in SCHEMAS)
            raise Misfit("version", f"pytest-benchmark {known}", file.version)
        entries = [_DECODER.decode(_BenchmarkEntry, row, _named(row, n)) for n, row in enumerate(file.benchmarks)]
        shared = Counter(entry.name for entry in entries)
        benchmarks = tuple(_benchmark(entry, shared[entry.name] > 1) for entry in entries)
    except Misfit as error:
        raise ResultError(f"{path}: {error}") from error
    for name, count in Counter(benchmark.name for benchmark in benchmarks).items():
        if count > 1:
            raise ResultError(f"{path}: holds {count} benchmarks called {name!r}")
    commit = file.commit_info if isinstance(file.commit_info, dict) else {}
    identity = commit.get("id")
    return BenchmarkFile(
        datetime=file.datetime,
        commit=identity if isinstance(identity, str) else None,
        dirty=commit.get("dirty") is True,
        machine=file.machine_info,
        benchmarks=benchmarks,
    )


def _named(row: object, number: int) -> str:
    """Return what messages call an entry: its name, or its place where it has none."""
    name = row.get("name") if isinstance(row, dict) else None
    return f"benchmark {shown(name)}" if isinstance(name, str) else f"benchmarks[{number}]"


def _benchmark(entry: _BenchmarkEntry, shared: bool) -> Benchmark:
    where = f"benchmark {shown(entry.name)}"
    notes = _DECODER.decode(_Notes, entry.extra_info, where)
    return Benchmark(
        name=entry.fullname if shared else entry.name,
        group=entry.group,
        seconds={name: value for name, value in vars(entry.stats).items() if value is not None},
        ratios=tuple(_ratio(name, value, f"{where}, ratio {shown(name)}") for name, value in notes.ratios.items()),
        growth=tuple(_growth(name, value, f"{where}, growth {shown(name)}") for name, value in notes.growth.items()),
        steps_per_second=notes.steps_per_second,
        speed=notes.trains,
        info={key: value for key, value in entry.extra_info.items() if key not in ("ratios", "growth", "trains")},
    )


def _ratio(name: str, value: object, where: str) -> Ratio:
    named = {"bar": None, **value, "name": name} if isinstance(value, dict) else value
    ratio = _DECODER.decode(Ratio, named, where)
    if not ratio.q1 <= ratio.median <= ratio.q3:
        raise Misfit(where, "q1 <= median <= q3", (ratio.q1, ratio.median, ratio.q3))
    if (ratio.low is None) != (ratio.high is None):
        raise Misfit(where, "both ends of the interval, low and high, or none", (ratio.low, ratio.high))
    if ratio.interval is not None and not ratio.interval[0] <= ratio.median <= ratio.interval[1]:
        raise Misfit(where, "low <= median <= high", (ratio.low, ratio.median, ratio.high))
    if ratio.rounds < 1:
        raise Misfit(f"{where}.rounds", "a count of at least 1", ratio.rounds)
    return ratio


def _growth(name: str, value: object, where: str) -> Growth:
    growth = _DECODER.decode(Growth, {**value, "name": name} if isinstance(value, dict) else value, where)
    if len(growth.points) < 2:
        raise Misfit(f"{where}.points", "at least two points", growth.points)
    return growth

"""Ways to do the same work, timed in turn in one process: the ratios are the result, the times are context.

A shared machine drifts by more than most differences worth knowing, and it drifts for all arms of a round alike. So
the figure to read is the median of the round-by-round ratios with its quartiles and its 95 % interval, in the first
arm's `extra_info`. Nothing here judges a time.
"""

from __future__ import annotations

import copy
import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_benchmark.fixture import BenchmarkFixture
from pytest_benchmark.stats import Stats

from benchmarks.growth import fit
from benchmarks.intervals import MOST_TIMES, is_narrow
from parity.environment import versions
from parity.results import ratio_summary

__all__ = ["Arm", "Measured", "Seconds", "Versus", "faster", "relative", "run_all", "run_paired", "slower"]

Seconds = Mapping[str, float]
"""Arm to the seconds it took in one round (or to their median)."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One of the ways."""

    name: str
    run: Callable[[], Any]
    """What is timed; returns when the work is done."""
    reset: Callable[[], Any] = lambda: None
    """Puts things back to the start, untimed, so that every round does the same work."""
    steps: int | None = None
    """Training steps in one run."""
    bytes: int | None = None
    """Bytes that one run moves."""
    trains: Mapping[str, Any] | None = None
    """What trains in this arm, for the table of steps per second: `model`, `side`, `mode`, `devices`."""


@dataclass(frozen=True, kw_only=True)
class Versus:
    """A ratio to be taken in every round."""

    name: str
    of: str
    """What is divided by what, in words."""
    take: Callable[[Seconds], float] = lambda seconds: float("nan")
    """Returns the ratio of one round; not asked for where the values are known."""
    better: Literal["lower", "higher"]
    bar: float | Callable[[Seconds], float] | None = None
    """What the ratio should reach; a function of the arms' median seconds where it depends on them."""

    def bar_at(self, medians: Seconds) -> float | None:
        """Return the bar, given the median seconds of the arms."""
        return self.bar(medians) if callable(self.bar) else self.bar


def slower(first: str, second: str, bar: float | Callable[[Seconds], float] | None = None) -> Versus:
    """Return the time of one arm over that of another: at most the bar is wanted."""
    of = f"seconds of {first} / seconds of {second}"
    return Versus(name=f"{first} / {second}", of=of, take=lambda s: s[first] / s[second], better="lower", bar=bar)


def faster(first: str, second: str, bar: float | Callable[[Seconds], float] | None = None) -> Versus:
    """Return how many times faster one arm is than another: at least the bar is wanted."""
    of = f"seconds of {second} / seconds of {first}"
    return Versus(name=f"{first} over {second}", of=of, take=lambda s: s[second] / s[first], better="higher", bar=bar)


def relative(first: str, second: str, peer: str, bar: float | Callable[[Seconds], float] | None = None) -> Versus:
    """Return one arm's ratio to a peer over another arm's ratio to it: at most the bar is wanted.

    The peer's own seconds cancel, so what it costs decides nothing; the two arms do the same work as it does.
    """
    return Versus(
        name=f"{first} / {peer} over {second} / {peer}",
        of=f"(seconds of {first} / seconds of {peer}) / (seconds of {second} / seconds of {peer})",
        take=lambda s: (s[first] / s[peer]) / (s[second] / s[peer]),
        better="lower",
        bar=bar,
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the rounds gave."""

    seconds: dict[str, list[float]]
    """Arm to the seconds of each timed round."""
    entries: dict[str, BenchmarkFixture] = field(default_factory=dict)
    """Arm to its entry in pytest-benchmark's JSON."""
    enabled: bool = True
    """False under `--benchmark-disable`: one round was run to see that it works."""

    def median(self, arm: str) -> float:
        """Return the median of an arm's rounds in seconds."""
        return _stats(self.seconds[arm]).median

    def take(self, versus: Versus) -> list[float]:
        """Return a ratio of every round."""
        rows = zip(*self.seconds.values(), strict=True)
        return [versus.take(dict(zip(self.seconds, row, strict=True))) for row in rows]

    def is_clear(self, ratios: Sequence[Versus]) -> bool:
        """Return whether more rounds would change no verdict of these ratios."""
        medians = {name: self.median(name) for name in self.seconds}
        return all(is_narrow(self.take(versus), versus.bar_at(medians)) for versus in ratios)

    def note(self, arm: str, **info: Any) -> None:
        """Add to an arm's `extra_info`."""
        self.entries[arm].extra_info.update(info)

    def note_ratio(self, arm: str, versus: Versus, values: Sequence[float]) -> None:
        """Add a ratio whose values per round are known to an arm's `extra_info`."""
        if self.enabled:
            medians = {name: self.median(name) for name in self.seconds}
            self.entries[arm].extra_info.setdefault("ratios", {})[versus.name] = _ratio(versus, values, medians)

    def note_growth(self, arm: str, name: str, x: str, y: str, points: Sequence[tuple[float, float]]) -> None:
        """Add a straight line through points to an arm's `extra_info`."""
        if self.enabled:
            line = {"x": x, "y": y, "points": [list(point) for point in points], **fit(points)}
            self.entries[arm].extra_info.setdefault("growth", {})[name] = line


def run_paired(
    benchmark: BenchmarkFixture, arms: Sequence[Arm], ratios: Sequence[Versus], *, rounds: int = 7, label: str = ""
) -> Measured:
    """Time all arms round by round and record each as an entry of its own in pytest-benchmark's JSON.

    The order within a round alternates. Each entry holds the `versions`, the machine's one-minute `load_average` and,
    where the arm has them, `steps`, `steps_per_second`, `bytes`, `bytes_per_second` (by its median) and `trains`.
    That of the first arm also holds `ratios`. Rounds are added while the interval of a ratio with a bar is not
    narrow, up to a limit (`benchmarks.intervals`). With `--benchmark-disable` one round is run, nothing recorded.

    Args:
        benchmark: The test's fixture; may be used several times, with other labels.
        arms: The first is the one the claim is about.
        ratios: What is taken in every round.
        rounds: Timed rounds to begin with, after one untimed round of all.
        label: Added to the names of the entries.
    """
    entries = {arm.name: _entry(benchmark, f"{label} {arm.name}".strip(), label) for arm in arms}
    benchmark._mode = "paired"  # in its copies: a fixture makes one entry, and a test has one fixture
    measured = Measured(seconds={arm.name: [] for arm in arms}, entries=entries, enabled=benchmark.enabled)
    for arm in arms:  # compilation, caches and the allocator are paid for here
        arm.reset()
        arm.run()
    number = 0
    while number < (rounds if benchmark.enabled else 1) or (
        benchmark.enabled and number < MOST_TIMES * rounds and not measured.is_clear(ratios)
    ):
        for arm in arms if number % 2 == 0 else reversed(arms):
            measured.seconds[arm.name].append(_time_round(arm, entries[arm.name]))
        number += 1
    if benchmark.enabled:
        for arm in arms:
            _describe(arm, measured)
        for versus in ratios:
            measured.note_ratio(arms[0].name, versus, measured.take(versus))
    return measured


def run_all(arms: Sequence[Arm]) -> dict[str, Any]:
    """Run every arm once from its start, untimed, and return what each returned."""
    results = {}
    for arm in arms:
        arm.reset()
        results[arm.name] = arm.run()
    return results


def _entry(benchmark: BenchmarkFixture, arm: str, label: str) -> BenchmarkFixture:
    """Return a copy of a fixture with the arm's name, the test's as its group, and notes of its own."""
    entry = copy.copy(benchmark)
    entry._mode = None  # not used yet
    entry.group, entry.extra_info = f"{benchmark.fullname} {label}".strip(), {}
    entry.name, entry.fullname = f"{benchmark.name} {arm}", f"{benchmark.fullname} {arm}"
    return entry


def _time_round(arm: Arm, entry: BenchmarkFixture) -> float:
    """Time one run; the first goes through `pedantic`, which makes the entry the others are added to."""
    arm.reset()
    gc.collect()  # the garbage of other rounds is not this round's cost
    if entry.stats is None:
        entry.pedantic(arm.run, rounds=1)
        return entry.stats.stats.data[-1] if entry.stats is not None else 0.0
    began = time.perf_counter()
    arm.run()
    seconds = time.perf_counter() - began
    entry.stats.update(seconds)
    return seconds


def _describe(arm: Arm, measured: Measured) -> None:
    median = measured.median(arm.name)
    for unit, amount in (("steps", arm.steps), ("bytes", arm.bytes)):
        if amount is not None:
            measured.note(arm.name, **{unit: amount, f"{unit}_per_second": amount / median})
    if arm.trains is not None:
        measured.note(arm.name, trains=dict(arm.trains))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    measured.note(arm.name, load_average=load, versions=dict(versions()))


def _ratio(versus: Versus, values: Sequence[float], medians: Seconds) -> dict[str, Any]:
    return {"of": versus.of, **ratio_summary(values), "better": versus.better, "bar": versus.bar_at(medians)}


def _stats(values: Sequence[float]) -> Stats:
    stats = Stats()
    for value in values:
        stats.update(value)
    return stats

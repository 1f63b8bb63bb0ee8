"""Two ways to do the same work, timed in turn in one process: the ratio is the result, the times are context.

A shared machine drifts by more than most differences worth knowing, and it drifts for both arms of a round alike. So
the figure to read is the median of the round-by-round ratios with its quartiles, in the first arm's `extra_info`.
Nothing here judges a time.
"""

from __future__ import annotations

import copy
import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture
from pytest_benchmark.stats import Stats

__all__ = ["Arm", "run_paired"]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One of the two ways."""

    name: str
    run: Callable[[], Any]
    """What is timed; returns when the work is done."""
    reset: Callable[[], Any]
    """Puts things back to the start, untimed, so that every round does the same work."""
    steps: int
    """Training steps in one run."""


def run_paired(benchmark: BenchmarkFixture, first: Arm, second: Arm, *, rounds: int = 7) -> None:
    """Time both arms round by round and record each as an entry of its own in pytest-benchmark's JSON.

    The order within a round alternates. Each entry holds `steps`, `steps_per_second` (by its median) and the
    machine's one-minute `load_average`. The first arm's also holds `ratio`: second time / first time, above 1 where
    the first arm is faster, with median, q1, q3 and the number of rounds. With `--benchmark-disable` one round is
    run and nothing is recorded.

    Args:
        benchmark: The test's fixture, unused so far.
        first: The arm the claim is about.
        second: What it is compared with.
        rounds: Timed rounds, after one untimed round of both.
    """
    second_entry = copy.copy(benchmark)  # a fixture makes one entry, and a test has one fixture
    entries = [_name(benchmark, first), _name(second_entry, second)]
    for arm, _ in entries:  # compilation, caches and the allocator are paid for here
        arm.reset()
        arm.run()
    for number in range(rounds if benchmark.enabled else 1):
        for arm, entry in entries if number % 2 == 0 else reversed(entries):
            _time_round(arm, entry)
    if benchmark.enabled:
        _describe(entries)


def _name(entry: BenchmarkFixture, arm: Arm) -> tuple[Arm, BenchmarkFixture]:
    """Give a fixture the arm's name, the test's as its group, and notes of its own."""
    entry.group, entry.extra_info = entry.fullname, {}
    entry.name, entry.fullname = f"{entry.name} {arm.name}", f"{entry.fullname} {arm.name}"
    return arm, entry


def _time_round(arm: Arm, entry: BenchmarkFixture) -> None:
    """Time one run; the first goes through `pedantic`, which makes the entry the others are added to."""
    arm.reset()
    gc.collect()  # what other rounds left behind is not this round's cost
    if entry.stats is None:
        entry.pedantic(arm.run, rounds=1)
        return
    began = time.perf_counter()
    arm.run()
    entry.stats.update(time.perf_counter() - began)


def _describe(entries: list[tuple[Arm, BenchmarkFixture]]) -> None:
    for arm, entry in entries:
        entry.extra_info["steps"] = arm.steps
        entry.extra_info["steps_per_second"] = arm.steps / entry.stats.stats.median
        entry.extra_info["load_average"] = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    (first, entry), (second, other) = entries
    ratios = Stats()
    for mine, its in zip(entry.stats.stats.data, other.stats.stats.data, strict=True):
        ratios.update(its / mine)
    entry.extra_info["ratio"] = {
        "of": f"seconds of {second.name} / seconds of {first.name}",
        "median": ratios.median,
        "q1": ratios.q1,
        "q3": ratios.q3,
        "rounds": ratios.rounds,
    }

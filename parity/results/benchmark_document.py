"""The JSON of benchmarks as pytest-benchmark writes it, of rounds that were timed without it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from parity.environment import describe_environment
from parity.results.intervals import first_quartile, third_quartile

__all__ = ["benchmark_document", "benchmark_entry"]

VERSION = "5.2.3"
"""Version of pytest-benchmark whose form this is."""

FENCE = 1.5
"""Interquartile ranges beyond the quartiles within which a round is no outlier (Tukey)."""


def benchmark_entry(name: str, group: str, seconds: Sequence[float]) -> dict[str, Any]:
    """Return one entry: what was timed, and the statistics of its rounds.

    Args:
        name: What was timed.
        group: What is compared: the entries of one group stand in one table.
        seconds: Of each round, at least one.
    """
    own: dict[str, Any] = {"params": None, "param": None, "extra_info": {}, "options": {}}
    return {"group": group, "name": name, "fullname": name, **own, "stats": _statistics(seconds)}


def benchmark_document(entries: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of some entries; plain JSON values.

    Args:
        entries: Of `benchmark_entry`, with notes of their own in `extra_info`.
        machine: What a time depends on.
    """
    found = describe_environment()
    commit = {"id": found["commit"], "dirty": found["dirty"]} if found["commit"] else {}
    return {
        "machine_info": dict(machine),
        "commit_info": {"id": None, "time": None, "dirty": False, "branch": "(unknown)", **commit},
        "benchmarks": [dict(entry) for entry in entries],
        "datetime": datetime.now(UTC).isoformat(),
        "version": VERSION,
    }


def _statistics(seconds: Sequence[float]) -> dict[str, Any]:
    """Return the statistics of pytest-benchmark, every field of them, and the rounds themselves."""
    data = sorted(seconds)
    q1, q3, mean, total = first_quartile(data), third_quartile(data), statistics.mean(data), sum(data)
    low, high = q1 - FENCE * (q3 - q1), q3 + FENCE * (q3 - q1)
    within = [value for value in data if low <= value <= high]
    spread = statistics.stdev(data) if len(data) > 1 else 0
    far = sum(abs(value - mean) > spread for value in data)
    outside = len(data) - len(within)
    return {
        "min": data[0],
        "max": data[-1],
        "mean": mean,
        "stddev": spread,
        "rounds": len(data),
        "median": statistics.median(data),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": outside,
        "stddev_outliers": far,
        "outliers": f"{far};{outside}",
        "ld15iqr": within[0],
        "hd15iqr": within[-1],
        "ops": len(data) / total if total else 0,
        "total": total,
        "data": list(seconds),
        "iterations": 1,
    }

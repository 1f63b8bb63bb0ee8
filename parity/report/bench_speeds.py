"""Steps per second, of every way to train that is measured: rows for the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from parity.results import Benchmark, BenchmarkFile

__all__ = ["MODELS", "NOT_MEASURED", "SPEED_HEADS", "WAYS", "SpeedRow", "speed_rows", "speed_words"]

MODELS = ("mlp-digits", "cnn-digits", "gpt-text")
"""Models that have a column, whether they are measured or not."""

SPEED_HEADS = ("steps per second (time for 1,000)", *MODELS)
"""Heads of the table of steps per second; `SpeedRow.cells` are the cells."""

WAYS = (
    *(("jax", mode, devices) for mode in ("scan", "loop") for devices in (1, 2, 4, 8)),
    ("torch", "eager", 1),
    ("torch", "compiled", 1),
)
"""Side, mode and devices that have a row, whether they are measured or not."""

NOT_MEASURED = "not measured"

Way = tuple[str, str, int]


@dataclass(frozen=True, kw_only=True)
class SpeedRow:
    """One way to train, on every model."""

    side: str
    mode: str
    devices: int
    speeds: tuple[float | None, ...]
    """Steps per second, one for each model; None where it is not measured."""
    before: tuple[float | None, ...]
    """Steps per second of an earlier measurement, one for each model."""
    spread: tuple[tuple[float, float] | None, ...] = ()
    """Steps per second of the third and of the first quartile of the rounds' times, one pair for each model; empty
    where they are not known, as of a page that was read back."""

    @property
    def name(self) -> str:
        """Return the way to train in words: `JAX scan, 4 devices`."""
        side = {"jax": "JAX", "torch": "PyTorch"}.get(self.side, self.side)
        return f"{side} {self.mode}{f', {self.devices} devices' if self.devices > 1 else ''}"

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the way to train, then each model's speed with its time for 1,000 steps."""
        return (self.name, *(_cell(now, then) for now, then in zip(self.speeds, self.before, strict=True)))


def speed_rows(files: Sequence[BenchmarkFile], before: Sequence[BenchmarkFile] = ()) -> list[SpeedRow]:
    """Return a row for each of `WAYS`, then for others that were measured; empty if none of `MODELS` was.

    Args:
        files: Files of benchmarks; of two that measured the same, the first counts.
        before: Files of an earlier measurement.
    """
    now, then, spreads = _speeds(files), _speeds(before), _spreads(files)
    if not now:
        return []
    return [
        SpeedRow(
            side=way[0],
            mode=way[1],
            devices=way[2],
            speeds=tuple(map(now.get(way, {}).get, MODELS)),
            before=tuple(map(then.get(way, {}).get, MODELS)),
            spread=tuple(map(spreads.get(way, {}).get, MODELS)),
        )
        for way in dict.fromkeys([*WAYS, *now])
    ]


def _cell(now: float | None, then: float | None) -> str:
    if now is None:
        return NOT_MEASURED
    earlier = f", before {speed_words(then)}" if then is not None else ""
    return f"{speed_words(now)} ({1000 / now:.3g} s{earlier})"


def speed_words(value: float) -> str:
    """Return steps per second as they are written: whole ones from 100 on, three digits below."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _speeds(files: Iterable[BenchmarkFile]) -> dict[Way, dict[str, float]]:
    """Return the steps per second of each way to train, by model."""
    found: dict[Way, dict[str, float]] = {}
    for way, model, benchmark in _measured(files):
        found.setdefault(way, {}).setdefault(model, benchmark.steps_per_second or 0.0)
    return found


def _spreads(files: Iterable[BenchmarkFile]) -> dict[Way, dict[str, tuple[float, float]]]:
    """Return the steps per second of the quartiles of the rounds, the slower one first."""
    found: dict[Way, dict[str, tuple[float, float]]] = {}
    for way, model, benchmark in _measured(files):
        value, seconds = benchmark.steps_per_second or 0.0, benchmark.seconds
        slow, fast = (value * seconds["median"] / seconds[quartile] for quartile in ("q3", "q1"))
        found.setdefault(way, {}).setdefault(model, (slow, fast))
    return found


def _measured(files: Iterable[BenchmarkFile]) -> Iterator[tuple[Way, str, Benchmark]]:
    for file in files:
        for benchmark in file.benchmarks:
            speed, value = benchmark.speed, benchmark.steps_per_second
            if speed is not None and speed.model in MODELS and value is not None and value > 0:
                yield (speed.side, speed.mode, speed.devices), speed.model, benchmark

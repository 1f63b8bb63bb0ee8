"""Steps per second, of every way to train that is measured: rows for the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from parity.results import BenchmarkFile, Speed

__all__ = ["MODELS", "NOT_MEASURED", "WAYS", "SpeedRow", "speed_cells", "speed_heads", "speed_rows", "way_name"]

MODELS = ("mlp-digits", "cnn-digits", "gpt-text")
"""Models that have a column, whether they are measured or not."""

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


def speed_rows(files: Sequence[BenchmarkFile], before: Sequence[BenchmarkFile] = ()) -> list[SpeedRow]:
    """Return a row for each of `WAYS`, then for others that were measured; empty if nothing was.

    Args:
        files: Files of benchmarks; of two that measured the same, the first counts.
        before: Files of an earlier measurement.
    """
    now, then = _speeds(files), _speeds(before)
    if not now:
        return []
    ways = dict.fromkeys([*WAYS, *(_way(speed) for speed in now)])
    return [
        SpeedRow(
            side=side,
            mode=mode,
            devices=devices,
            speeds=_on_models(now, (side, mode, devices)),
            before=_on_models(then, (side, mode, devices)),
        )
        for side, mode, devices in ways
    ]


def way_name(row: SpeedRow) -> str:
    """Return a way to train in words: `JAX scan, 4 devices`."""
    side = {"jax": "JAX", "torch": "PyTorch"}.get(row.side, row.side)
    return f"{side} {row.mode}{f', {row.devices} devices' if row.devices > 1 else ''}"


def speed_heads() -> tuple[str, ...]:
    """Return the heads of the table of steps per second."""
    return ("steps per second (time for 1,000)", *MODELS)


def speed_cells(row: SpeedRow) -> tuple[str, ...]:
    """Return the cells of a row: the way to train, then each model's speed with its time for 1,000 steps."""
    return (way_name(row), *(_cell(now, then) for now, then in zip(row.speeds, row.before, strict=True)))


def _cell(now: float | None, then: float | None) -> str:
    if now is None:
        return NOT_MEASURED
    earlier = f", before {_speed(then)}" if then is not None else ""
    return f"{_speed(now)} ({1000 / now:.3g} s{earlier})"


def _speed(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _speeds(files: Iterable[BenchmarkFile]) -> dict[Speed, float]:
    found: dict[Speed, float] = {}
    for file in files:
        for benchmark in file.benchmarks:
            speed, value = benchmark.speed, benchmark.steps_per_second
            if speed is not None and value is not None and value > 0:
                found.setdefault(speed, value)
    return found


def _way(speed: Speed) -> Way:
    return (speed.side, speed.mode, speed.devices)


def _on_models(speeds: dict[Speed, float], way: Way) -> tuple[float | None, ...]:
    side, mode, devices = way
    return tuple(speeds.get(Speed(model=model, side=side, mode=mode, devices=devices)) for model in MODELS)

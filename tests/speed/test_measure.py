"""The file of a measurement: read by our reader, with the statistics of pytest-benchmark; ways in turn, one work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_benchmark.stats import Stats

from parity import sides
from parity.errors import WorkError
from parity.results import benchmark_entry, encode, ratio_summary, read_benchmarks
from parity.spec import RunSpec, load
from parity.twins.speed import laps, measure_speed
from parity.twins.speed.laps import Lap

TINY = ["model.hidden=[8]", "batch=16", "execution.chunk=5"]

times = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40)


@given(times)
def test_the_statistics_are_those_of_pytest_benchmark(seconds: list[float]) -> None:
    stats = Stats()
    for value in seconds:
        stats.update(value)
    found = benchmark_entry("x", "g", seconds)["stats"]
    rounded = ("outliers", "stddev_outliers", "iqr_outliers", "ld15iqr", "hd15iqr")
    for name in set(stats.fields) - set(rounded):
        assert found[name] == pytest.approx(getattr(stats, name), rel=1e-12)
    assert set(stats.fields) <= set(found)


def test_outliers_are_counted_and_the_fences_leave_them_out() -> None:
    stats = Stats()
    seconds = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 9.0]
    for value in seconds:
        stats.update(value)
    found = benchmark_entry("x", "g", seconds)["stats"]
    for name in ("outliers", "ld15iqr", "hd15iqr"):
        assert found[name] == getattr(stats, name)


@given(times)
def test_quartiles_and_interval_hold_the_median(values: list[float]) -> None:
    found = ratio_summary(values)
    assert found["q1"] <= found["median"] <= found["q3"]
    assert found["low"] <= found["median"] <= found["high"]


@pytest.fixture(scope="module")
def spec() -> RunSpec:
    return load("mlp-digits", overrides=TINY)


@pytest.mark.parametrize(("name", "modes"), [("jax", ["scan", "loop"]), ("torch", ["eager"])])
def test_a_measurement_is_a_file_that_can_be_compared(
    name: str, modes: list[str], spec: RunSpec, tmp_path: Path
) -> None:
    said: list[str] = []
    found = measure_speed(sides.load(name), name, spec, modes=modes, steps=10, rounds=3, say=said.append)
    (tmp_path / "new.json").write_text(encode(found))
    file = read_benchmarks(tmp_path / "new.json")
    model = "mlp-digits, batch=16, execution.chunk=5, model.hidden=(8,)"
    assert sorted(b.name for b in file.benchmarks) == sorted(f"{model} {name} {mode}" for mode in modes)
    for one, mode in zip(file.benchmarks, modes, strict=True):
        assert one.seconds["rounds"] == 3
        assert one.steps_per_second == pytest.approx(10 / one.seconds["median"])
        assert one.speed is not None
        assert (one.speed.side, one.speed.mode) == (name, mode)
    ratios = file.benchmarks[0].ratios
    assert [(r.name, r.of, r.better, r.rounds) for r in ratios] == (
        [("scan over loop", "seconds of loop / seconds of scan, 10 steps", "higher", 3)] if name == "jax" else []
    )
    assert file.machine["versions"]["numpy"]
    assert file.machine[name]["devices"]
    assert said[-1] == "round 3 of 3"


def test_the_ways_run_in_turn_and_the_order_is_reversed_in_every_second_round(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    run = Lap.run

    def note(self: Lap) -> None:
        ran.append(self.mode)
        run(self)

    monkeypatch.setattr(Lap, "run", note)
    measure_speed(sides.load("jax"), "jax", spec, modes=["scan", "loop"], steps=5, rounds=3, say=lambda line: None)
    assert ran == ["scan", "loop", "loop", "scan", "scan", "loop"]


def test_a_trainer_that_is_not_put_back_is_found(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of other steps, or of none at all, would be fast."""
    monkeypatch.setattr(laps, "rewinding", lambda trainer: lambda: None)
    with pytest.raises(WorkError, match="eager: round 1 has another loss at step"):
        measure_speed(sides.load("torch"), "torch", spec, modes=["eager"], steps=5, rounds=1, say=lambda line: None)


def test_nothing_of_the_host_but_its_machine_is_written(spec: RunSpec) -> None:
    found: Any = measure_speed(
        sides.load("torch"), "torch", spec, modes=["eager"], steps=5, rounds=1, say=lambda line: None
    )
    assert str(Path.home()) not in json.dumps(found)
    assert "node" not in found["machine_info"]

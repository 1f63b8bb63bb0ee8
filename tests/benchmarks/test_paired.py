"""The machinery of the benchmarks: order of rounds, direction of ratios, quartiles, what ends up in the JSON."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest_benchmark.stats import Stats

from benchmarks import paired
from benchmarks.intervals import MOST_TIMES
from benchmarks.paired import Arm, Versus, faster, run_paired, slower
from parity.results import interval, ratio_summary, read_benchmarks

ROOT = Path(__file__).resolve().parents[2]


class Fixture:
    """Stands for pytest-benchmark's fixture, with a clock of its own; a real one runs below, in a process."""

    name, fullname, group, stats, _mode = "test", "test.py::test", None, None, None

    def __init__(self, clock, enabled=True):
        self.clock, self.enabled, self.extra_info = clock, enabled, {}

    def pedantic(self, run, rounds):
        assert rounds == 1
        assert self._mode is None, "can only be used once"
        began = self.clock.now
        run()
        if self.enabled:
            stats = Stats()
            stats.update(self.clock.now - began)
            self.stats = SimpleNamespace(stats=stats, update=stats.update)


class Clock:
    """Stands for the clock; an arm takes as long as it says."""

    def __init__(self):
        self.now, self.order = 0.0, []

    def arm(self, name, *seconds, **fields):
        """Return an arm whose runs take the given times, over and over."""
        runs = []

        def run():
            self.order.append(name)
            self.now += seconds[len(runs) % len(seconds)]
            runs.append(name)

        return Arm(name=name, run=run, reset=lambda: self.order.append(f"reset {name}"), **fields)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(paired, "time", SimpleNamespace(perf_counter=lambda: made.now))
    monkeypatch.setattr(paired, "gc", SimpleNamespace(collect=lambda: 0))  # 0.2 s each: tests load much
    return made


@pytest.fixture
def fixture(clock):
    return Fixture(clock)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_round_runs_every_arm_behind_its_reset_and_every_second_round_backwards(clock, enabled):
    arms = [clock.arm("a", 1), clock.arm("b", 1), clock.arm("c", 1)]
    run_paired(Fixture(clock, enabled), arms, [slower("a", "b")], rounds=3)
    forth, back = ["a", "b", "c"], ["c", "b", "a"]
    rounds = [forth, forth, back, forth] if enabled else [forth, forth]  # the first is the warm-up
    assert clock.order == [word for names in rounds for name in names for word in (f"reset {name}", name)]


def test_ratios_are_taken_round_by_round_and_the_warm_up_does_not_count(fixture, clock):
    """A machine that slows down tenfold for a round changes no ratio; a ratio of medians it would."""
    first, second = clock.arm("twin", 999, 2, 20, 2.2), clock.arm("bare", 1, 1, 10, 1)
    measured = run_paired(fixture, [first, second], [slower("twin", "bare", 1.5), faster("twin", "bare")], rounds=3)
    found = measured.entries["twin"].extra_info["ratios"]
    assert measured.seconds == {"twin": [2, pytest.approx(20), pytest.approx(2.2)], "bare": [1, 10, 1]}
    assert found["twin / bare"]["median"] == pytest.approx(2.0)
    assert found["twin / bare"] | {"median": 0, "q1": 0, "q3": 0} == {
        "of": "seconds of twin / seconds of bare", "median": 0, "q1": 0, "q3": 0, "rounds": 3, "better": "lower",
        "bar": 1.5, "low": 2.0, "high": pytest.approx(2.2),
    }  # fmt: skip
    assert found["twin over bare"]["median"] == pytest.approx(0.5)
    assert found["twin over bare"]["better"] == "higher"
    assert found["twin over bare"]["of"] == "seconds of bare / seconds of twin"
    assert "ratios" not in measured.entries["bare"].extra_info


def test_a_bar_may_depend_on_the_median_times(fixture, clock):
    versus = slower("a", "b", lambda seconds: 1 + seconds["b"])
    measured = run_paired(fixture, [clock.arm("a", 1), clock.arm("b", 4)], [versus], rounds=3)
    assert measured.entries["a"].extra_info["ratios"]["a / b"]["bar"] == pytest.approx(5)


def test_every_arm_has_an_entry_with_amounts_and_versions_and_several_calls_share_a_test(fixture, clock):
    for label in ("1 M", "2 M"):
        arm = clock.arm("save", 2, bytes=100, steps=10)
        measured = run_paired(fixture, [arm], [], rounds=2, label=label)
    entry = measured.entries["save"]
    assert (entry.name, entry.fullname) == ("test 2 M save", "test.py::test 2 M save")
    assert entry.group == "test.py::test 2 M"
    assert entry.extra_info["bytes_per_second"] == pytest.approx(50)
    assert entry.extra_info["steps_per_second"] == pytest.approx(5)
    assert entry.extra_info["versions"]["numpy"]
    assert len(entry.stats.stats.data) == 2


def test_known_values_are_noted_with_their_own_quartiles(fixture, clock):
    measured = run_paired(fixture, [clock.arm("save", 1)], [], rounds=2)
    measured.note_ratio("save", Versus(name="peak", of="bytes / bytes", better="lower", bar=1.0), [0.5, 0.7, 0.6])
    found = measured.entries["save"].extra_info["ratios"]["peak"]
    assert (found["median"], found["rounds"], found["bar"]) == (0.6, 3, 1.0)


def test_rounds_are_added_until_the_verdict_is_clear(fixture, clock):
    """Rounds that scatter around the bar, then agree that it is missed."""
    first = clock.arm("twin", 1, 0.9, 1.1, 1.0, *[1.1] * 40)
    measured = run_paired(fixture, [first, clock.arm("bare", 1)], [slower("twin", "bare", 1.05)], rounds=3)
    found = measured.entries["twin"].extra_info["ratios"]["twin / bare"]
    assert 3 < found["rounds"] < 3 * MOST_TIMES
    assert found["low"] > 1.05
    assert {len(seconds) for seconds in measured.seconds.values()} == {found["rounds"]}
    assert len(measured.entries["bare"].stats.stats.data) == found["rounds"]


@pytest.mark.parametrize(("bar", "rounds"), [(1.0, 3 * MOST_TIMES), (5.0, 3), (None, 3)])
def test_rounds_end_at_a_limit_and_only_a_bar_that_is_near_asks_for_more(bar, rounds, fixture, clock):
    first = clock.arm("twin", 1, 0.9, 1.1)
    measured = run_paired(fixture, [first, clock.arm("bare", 1)], [slower("twin", "bare", bar)], rounds=3)
    assert measured.entries["twin"].extra_info["ratios"]["twin / bare"]["rounds"] == rounds


def test_a_narrow_interval_ends_the_rounds_though_the_bar_lies_within(fixture, clock):
    first = clock.arm("twin", 1, 0.999, 1.001)
    measured = run_paired(fixture, [first, clock.arm("bare", 1)], [slower("twin", "bare", 1.0)], rounds=4)
    found = measured.entries["twin"].extra_info["ratios"]["twin / bare"]
    assert (found["rounds"], found["low"] < 1.0 < found["high"]) == (4, True)


@given(values=st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_an_interval_holds_the_median_and_lies_within_the_values(values):
    found = ratio_summary(values)
    assert min(values) <= found["low"] <= found["median"] <= found["high"] <= max(values)


def test_an_interval_covers_the_median_of_what_is_drawn_from_as_often_as_its_page_says():
    """Normal noise, 9 rounds: 91 to 94 %; one of half the width would cover some 65 %."""
    draw = np.random.default_rng(0)
    ends = [interval(draw.normal(1.0, 0.03, 9)) for _ in range(400)]
    assert 0.89 <= sum(low <= 1.0 <= high for low, high in ends) / len(ends) <= 0.97


@given(values=st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=40))
@settings(deadline=None)
def test_quartiles_enclose_the_median_and_lie_within_the_values(values):
    found = ratio_summary(values)
    assert min(values) <= found["q1"] <= found["median"] <= found["q3"] <= max(values)
    assert found["rounds"] == len(values)


def test_quartiles_of_seven_rounds_are_the_second_and_sixth_up_to_a_quarter():
    found = ratio_summary([7, 1, 6, 2, 5, 3, 4])
    assert (found["q1"], found["median"], found["q3"]) == (2.25, 4, 5.75)


SUITE = """
from benchmarks.paired import Arm, run_paired, slower
def test_it(benchmark):
    arms = [Arm(name=n, run=lambda k=k: sum(range(k)), bytes=k) for n, k in (("long", 20000), ("short", 10000))]
    measured = run_paired(benchmark, arms, [slower("long", "short", 3000.0)], rounds=3)
    measured.note_growth("long", "time", "numbers", "seconds", [(1, 2.0), (2, 4.0), (3, 6.0)])
    measured.note("long", side="none")
"""


def run_suite(tmp_path, *options):
    (tmp_path / "test_it.py").write_text(SUITE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        tmp_path,
    ]
    done = subprocess.run(
        [*map(str, command), str(tmp_path), *options], cwd=ROOT, capture_output=True, text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_real_run_writes_is_what_is_read(tmp_path):
    run_suite(tmp_path, f"--benchmark-json={tmp_path / 'out.json'}")
    file = read_benchmarks(tmp_path / "out.json")
    assert [b.name for b in file.benchmarks] == ["test_it long", "test_it short"]
    first = file.benchmarks[0]
    assert first.group is not None
    assert first.group.endswith("test_it.py::test_it")
    assert first.seconds["rounds"] == 3
    (ratio,) = first.ratios
    assert (ratio.name, ratio.rounds, ratio.better, ratio.bar) == ("long / short", 3, "lower", 3000.0)
    assert ratio.q1 <= ratio.median <= ratio.q3
    assert ratio.low <= ratio.median <= ratio.high
    assert ratio.outcome == "met"
    assert first.seconds["ld15iqr"] <= first.seconds["median"] <= first.seconds["hd15iqr"]
    assert first.growth[0].slope == pytest.approx(2)
    assert first.info["side"] == "none"
    assert first.info["bytes"] == 20000
    assert file.machine["python_version"]


def test_without_timing_every_arm_runs_and_nothing_is_recorded(tmp_path):
    run_suite(tmp_path, "--benchmark-disable", f"--benchmark-json={tmp_path / 'out.json'}")
    assert not (tmp_path / "out.json").exists() or not (tmp_path / "out.json").read_text()

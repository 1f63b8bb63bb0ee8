"""Checks that run ahead of their turn: the same records in the same order; nothing is waited for after an error."""

import threading
import time
from dataclasses import replace

import pytest

from parity.checks.progress import ignore_step
from parity.cli.check import MOST_AHEAD, _room
from parity.reference import SuiteRequest, run_checks, suite
from parity.reference.ahead import Ahead
from parity.results import CheckRecord
from parity.spec import load
from tests.support.small import small

SECONDS = 20


def record(name):
    return CheckRecord.of(name, "s", "float32", ("a",), "holds", criterion="bitwise", notes=())


def test_it_runs_before_its_turn_and_its_record_waits():
    ran = threading.Event()

    def run():
        ran.set()
        return record("first")

    with Ahead(1, ignore_step) as ahead:
        ahead.submit(1, run)
        assert ran.wait(SECONDS)
        assert ahead.take(0, lambda: record("here")).name == "here"
        assert ahead.take(1, run).name == "first"


def test_with_no_room_each_runs_in_its_turn_in_this_thread():
    threads = []

    def run():
        threads.append(threading.current_thread())
        return record("here")

    with Ahead(0, ignore_step) as ahead:
        ahead.submit(0, run)
        assert not threads
        assert ahead.take(0, run).name == "here"
    assert threads == [threading.current_thread()]


def test_only_the_check_whose_turn_it_is_reports_steps():
    seen, early, turn = [], threading.Event(), threading.Event()
    with Ahead(1, lambda *step: seen.append(step)) as ahead:

        def run():
            ahead.on_step("ahead,", 1, 9)
            early.set()
            assert turn.wait(SECONDS)
            ahead.on_step("ahead,", 2, 9)
            return record("ahead")

        def here():
            assert early.wait(SECONDS)
            ahead.on_step("here,", 1, 9)
            return record("here")

        ahead.submit(1, run)
        ahead.take(0, here)
        assert seen == [("here,", 1, 9)]
        threading.Timer(0.1, turn.set).start()
        ahead.take(1, run)
    assert seen == [("here,", 1, 9), ("ahead,", 2, 9)]


def test_after_an_error_nothing_is_waited_for_and_nothing_more_begins():
    begun, end = [], threading.Event()

    def run(number):
        begun.append(number)
        end.wait(SECONDS)
        return record("ahead")

    def fail():
        with Ahead(1, ignore_step) as ahead:
            ahead.submit(0, lambda: run(0))
            ahead.submit(1, lambda: run(1))
            while not begun:
                time.sleep(0.001)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not end.is_set()
    end.set()
    time.sleep(0.05)
    assert begun == [0]


def test_an_error_in_a_check_ahead_is_raised_at_its_turn():
    def lost():
        raise SystemExit("lost")

    with Ahead(1, ignore_step) as ahead:
        ahead.submit(0, lost)
        with pytest.raises(SystemExit, match="lost"):
            ahead.take(0, lost)


def test_resume_checks_run_beside_the_others_and_records_keep_their_order(tmp_path, monkeypatch):
    """With room, the first resume check ends only when a check that comes after it has begun: a deadlock without."""
    begun, threads = threading.Event(), {}

    def resume(spec, name, side, home, *more):
        threads[name] = threading.current_thread()
        assert begun.wait(SECONDS)
        return record(f"resume {name}")

    monkeypatch.setattr(suite, "check_twin_resume", resume)
    monkeypatch.setattr(suite, "check_policy", lambda: begun.set() or record("policy"))
    monkeypatch.setattr(suite, "check_twin_policy", lambda name, side, on_step: record(f"policy {name}"))
    asked = SuiteRequest(
        checks=("policy", "resume"),
        specs=[small("mlp-digits")],
        sides={"a": None, "b": None},
        steps=10,
        workdir=tmp_path,
        ahead=1,
    )
    told, turns = [], []
    records = run_checks(asked, told.append, turns.append)
    assert [one.name for one in records] == ["policy", "policy a", "policy b", "resume a", "resume b"]
    assert told == records
    assert turns == [0, 1, 2, 3, 4]
    assert threading.main_thread() not in threads.values()
    threads.clear()
    assert [one.name for one in run_checks(replace(asked, ahead=0), told.append)] == [one.name for one in records]
    assert set(threads.values()) == {threading.current_thread()}


@pytest.mark.parametrize(
    ("platforms", "cpus", "memory", "room"),
    [
        (("cpu", "cpu"), 2, 64 << 30, 2),
        (("cpu", "cpu"), 1, 64 << 30, 0),
        (("cpu",), 64, 64 << 30, MOST_AHEAD),
        (("NVIDIA H200", "cpu"), 64, 64 << 30, 0),
        ((None,), 64, 64 << 30, 0),
        (("cpu",), 64, 9 << 30, 2),
        (("cpu",), 64, 3 << 30, 0),
        (("cpu",), 64, None, 0),
    ],
)
def test_there_is_room_on_processors_alone_as_far_as_memory_goes(platforms, cpus, memory, room, monkeypatch):
    monkeypatch.setattr("parity.cli.check.usable_cpus", lambda: cpus)
    monkeypatch.setattr("parity.cli.check.physical_memory", lambda: memory)
    devices = {str(n): {} if name is None else {"platform": name} for n, name in enumerate(platforms)}
    assert _room(devices, [small("mlp-digits")]) == room


def test_a_large_model_leaves_less_room(monkeypatch):
    monkeypatch.setattr("parity.cli.check.usable_cpus", lambda: 8)
    monkeypatch.setattr("parity.cli.check.physical_memory", lambda: 64 << 30)
    large = load("mlp-digits", None, ["model.hidden=[20000, 10000]"])
    assert [_room({"a": {"platform": "cpu"}}, specs) for specs in ([small("mlp-digits")], [large])] == [4, 1]

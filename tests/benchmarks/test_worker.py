"""Arms in a process of their own."""

import pytest

from benchmarks.worker import Worker

pytestmark = pytest.mark.breaks_first

ARMS = "tests.benchmarks.tiny:arms"


def test_a_worker_runs_and_resets_its_arms_and_answers_with_what_they_return():
    with Worker(ARMS, start=5) as worker:
        arm = worker.arm("here", "count", steps=3)
        assert [arm.run(), arm.run()] == [6, 7]
        arm.reset()
        assert arm.run() == 6
        assert (arm.name, arm.steps) == ("here", 3)
    assert worker.process.returncode == 0


def test_a_worker_that_cannot_start_is_an_error_and_never_waited_for(capfd):
    with (
        pytest.raises(RuntimeError, match="the worker ended with 1 when asked to 'run count'"),
        Worker(ARMS, start=0, fails=True) as worker,
    ):
        worker.ask("run count")
    assert "these arms cannot be built" in capfd.readouterr().err


def test_an_arm_that_fails_ends_its_worker():
    with pytest.raises(RuntimeError, match="the worker ended with 1"), Worker(ARMS, start=0) as worker:
        worker.ask("run nothing")

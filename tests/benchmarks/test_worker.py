"""Arms in a process of their own."""

import pytest

from benchmarks.worker import Worker

pytestmark = pytest.mark.breaks_first

ARMS = "tests.benchmarks.tiny:arms"


@pytest.mark.takes_seconds
def test_a_worker_runs_and_resets_its_arms_and_answers_with_what_they_return():
    with Worker(ARMS, start=5) as worker:
        arm = worker.arm("here", "count", steps=3)
        assert [arm.run(), arm.run()] == [6, 7]
        arm.reset()
        assert arm.run() == 6
        assert (arm.name, arm.steps) == ("here", 3)
    assert [process.returncode for process in worker.processes] == [0]


@pytest.mark.takes_seconds
def test_a_worker_that_cannot_start_is_an_error_and_never_waited_for(capfd):
    with (
        pytest.raises(RuntimeError, match="the worker ended with 1 when asked to 'run count'"),
        Worker(ARMS, start=0, fails=True) as worker,
    ):
        worker.ask("run count")
    assert "these arms cannot be built" in capfd.readouterr().err


@pytest.mark.takes_seconds
def test_an_arm_that_fails_ends_its_worker():
    with pytest.raises(RuntimeError, match="the worker ended with 1"), Worker(ARMS, start=0) as worker:
        worker.ask("run nothing")


@pytest.mark.takes_seconds
def test_several_processes_run_an_arm_together_and_the_first_one_answers(capfd):
    with Worker(ARMS, processes=2, start=5) as worker:
        assert worker.arm("here", "count").run() == 6
        assert len(worker.processes) == 2
    assert [process.returncode for process in worker.processes] == [0, 0]
    assert capfd.readouterr().err.count("below Python too") == 2
    with (
        pytest.raises(RuntimeError, match="the worker ended with -9"),
        Worker(ARMS, processes=2, start=0) as worker,
    ):
        run_without(worker, 1)
    assert None not in [process.returncode for process in worker.processes]


def run_without(worker, gone):
    worker.processes[gone].kill()
    worker.ask("run count")

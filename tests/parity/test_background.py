"""Work beside the loop: large work at the lowest priority, one at a time, and what it raises reaches who waits."""

import os
import subprocess
import sys
import threading

import pytest

from parity import sides
from parity.checkpoints import commit
from parity.storage import SMALL, Background
from tests.support.several import ROOT
from tests.support.small import small

linux = pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="threads have priorities of their own on Linux only")


def scheduling(priority, size=SMALL + 1):
    """Return the scheduling of the caller, of the work, and of a thread that the work starts."""
    seen = {"caller": os.sched_getscheduler(0)}

    def work():
        seen["work"] = os.sched_getscheduler(0)
        thread = threading.Thread(target=lambda: seen.update(child=os.sched_getscheduler(0)))
        thread.start()
        thread.join()

    background = Background(priority)
    background.start(work, "work", size)
    background.wait()
    return {**seen, "after": os.sched_getscheduler(0)}


@linux
def test_the_work_and_its_threads_leave_processors_to_the_caller():
    seen = scheduling("idle")
    assert (seen["work"], seen["child"]) == (os.SCHED_IDLE, os.SCHED_IDLE)
    assert seen["caller"] == seen["after"] != os.SCHED_IDLE


@linux
def test_normal_work_is_scheduled_as_its_caller_is():
    assert len(set(scheduling("normal").values())) == 1


@linux
def test_small_work_is_scheduled_as_its_caller_is():
    assert len(set(scheduling("idle", SMALL).values())) == 1


@linux
def test_work_that_is_late_for_the_next_is_the_last_at_the_lowest_priority():
    background, go, seen = Background("idle"), threading.Event(), []

    def work():
        seen.append(os.sched_getscheduler(0))
        go.wait(10)

    background.start(work, "in time", SMALL + 1)
    go.set()
    background.wait()
    background.due()  # nothing runs
    go.clear()
    background.start(work, "late", SMALL + 1)
    background.due()
    go.set()
    background.wait()
    for _ in range(2):
        background.start(work, "after it", SMALL + 1)
        background.wait()
    assert seen == [os.SCHED_IDLE, os.SCHED_IDLE, os.sched_getscheduler(0), os.sched_getscheduler(0)]


@pytest.mark.takes_seconds
@linux
@pytest.mark.parametrize("side", ["torch", "jax"])
def test_saves_that_come_faster_than_they_are_written_have_the_priority_of_the_loop(side, tmp_path, monkeypatch):
    monkeypatch.setattr("parity.storage.background.SMALL", 1000)
    go, seen = threading.Event(), []

    def slow(*args):
        seen.append(os.sched_getscheduler(0))
        go.wait(10)
        return commit(*args)

    monkeypatch.setattr("parity.checkpoints.saving.commit", slow)
    trainer = sides.load(side).build(small("mlp-digits"), tmp_path)
    trainer.save(None)  # and it is not written until the next one is due
    for step in (5, 10):
        list(trainer.steps(step))
        threading.Timer(0.2, go.set).start()
        trainer.save(None)
    trainer.close()
    assert seen == [os.SCHED_IDLE, os.sched_getscheduler(0), os.sched_getscheduler(0)]


@linux
def test_a_system_that_forbids_it_is_no_failure(monkeypatch):
    def forbidden(*args):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    seen = scheduling("idle")
    assert seen["work"] == seen["caller"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_it_raises_is_raised_once_to_who_waits(error):
    def fail():
        raise error

    background = Background("idle")
    background.start(fail, "work", SMALL + 1)
    with pytest.raises(type(error)) as raised:
        background.wait()
    assert raised.value is error
    background.wait()


def test_no_thread_to_be_had_is_an_error_of_the_system_and_the_next_try_may_work(monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    background, ran = Background("idle"), []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(OSError, match="no thread to write in: can't start new thread"):
            background.start(lambda: ran.append(1), "work", 1)
    background.wait()
    background.start(lambda: ran.append(2), "work", 1)
    background.wait()
    assert ran == [2]


def test_it_runs_beside_the_caller_in_a_thread_of_its_name_and_again_once_waited_for():
    go, names = threading.Event(), []
    background = Background("idle")
    for name in ("save-1", "save-2"):
        background.start(lambda: (go.wait(10), names.append(threading.current_thread().name)), name, 1)
        with pytest.raises(AssertionError):
            background.start(lambda: None, "too early", 1)
        assert len(names) == int(name[-1]) - 1 or go.is_set()
        go.set()
        background.wait()
    assert names == ["save-1", "save-2"]


@linux
@pytest.mark.parametrize("side", ["torch", "jax"])
@pytest.mark.parametrize("large", [True, False])
def test_what_writes_a_large_checkpoint_leaves_processors_to_the_steps(side, large, tmp_path, monkeypatch):
    """The thread that seals a save is on both sides started by the one that writes it, or is that one."""
    monkeypatch.setattr("parity.storage.background.SMALL", 1000 if large else 1_000_000)
    seen = []
    target = "parity.checkpoints.saving.commit"
    monkeypatch.setattr(target, lambda *args: (seen.append(os.sched_getscheduler(0)), commit(*args))[1])
    trainer = sides.load(side).build(small("mlp-digits"), tmp_path)
    trainer.save(None)
    trainer.close()
    assert seen == [os.SCHED_IDLE if large else os.sched_getscheduler(0)]
    assert os.sched_getscheduler(0) != os.SCHED_IDLE


ENDS = """
import sys, time
from parity.storage import Background

def work():
    from concurrent.futures import ThreadPoolExecutor

    time.sleep(0.2)
    with ThreadPoolExecutor(2) as pool:
        print(sum(pool.map(abs, [-1, 2])), flush=True)
    if sys.argv[1] == "fails":
        raise OSError("the disk is full")

background = Background("normal")
background.start(work, "save", 1)
"""


@pytest.mark.parametrize(("how", "said"), [("ends", ""), ("fails", "parity: error: the disk is full\n")])
def test_a_program_that_ends_without_waiting_has_the_work_done_and_says_what_failed(how, said):
    """Executors end before threads do: a save that digests in one was lost without a word."""
    ended = subprocess.run([sys.executable, "-c", ENDS, how], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", said)

"""A process whose main thread waits in C code hears signals: its deadline runs, and a second one ends it."""

import signal
import subprocess
import sys

import pytest

from parity.runs import WatchedSignals

IN_C = """
import ctypes, sys
from parity.runs.waiting import WatchedSignals
lock, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
with WatchedSignals(float(sys.argv[1])):
    libc.pthread_mutex_lock(lock)
    print("waiting", flush=True)
    libc.pthread_mutex_lock(lock)
"""
"""Takes a mutex twice: no signal wakes that, and Python runs no handler meanwhile."""


def waiting(deadline):
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", IN_C, str(deadline)], stdout=pipe, stderr=pipe, text=True)
    assert process.stdout.readline() == "waiting\n"
    return process


@pytest.mark.takes_seconds
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_the_deadline_ends_a_process_that_waits_in_c_code_and_says_so_once(name):
    process = waiting(0.3)
    process.send_signal(signal.Signals[name])
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.Signals[name]
    assert err.splitlines() == [
        f"parity: {name}: not saved within 0.3 s, giving up; the run resumes from its newest whole checkpoint"
    ]


@pytest.mark.takes_seconds
def test_a_second_signal_ends_a_process_that_waits_in_c_code():
    process = waiting(600)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    ended_by = {128 + number for number in (signal.SIGTERM, signal.SIGINT)}  # whichever is delivered last
    ended_by |= {-signal.SIGTERM, -signal.SIGINT}  # where Python heard both before it waited
    assert process.returncode in ended_by, err


@pytest.mark.takes_seconds
def test_asking_for_a_save_starts_no_deadline():
    process = waiting(0.1)
    process.send_signal(signal.SIGUSR1)
    with pytest.raises(subprocess.TimeoutExpired, match="timed out after 1 seconds"):
        process.wait(timeout=1)
    process.kill()
    process.communicate()


def test_afterwards_everything_is_as_before():
    before = signal.getsignal(signal.SIGTERM)
    with WatchedSignals(60.0) as signals:
        signal.raise_signal(signal.SIGTERM)
        assert signals.stop == signal.SIGTERM
    for timer in signals._timers:
        timer.join(timeout=10)
        assert not timer.is_alive()
    assert not signals._thread.is_alive()
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.takes_seconds
def test_a_second_hangup_does_not_count():
    """A closing terminal sends several; the process keeps its deadline for saving."""
    process = waiting(600)
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):  # the first that insists
        process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired, match="timed out after 2 seconds"):
        process.wait(timeout=2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    process.communicate()

"""The first signal asks, the second one and the deadline end the process, and outside everything is as before."""

import signal
import subprocess
import sys
import threading

import pytest

from parity.runs import Signals

HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)

PROCESS = """
import signal, sys, time
from parity.runs.signals import Signals
with Signals(deadline=float(sys.argv[1])) as signals:
    for name in sys.argv[2:]:
        signal.raise_signal(getattr(signal, name))
        print("heard", name, flush=True)
    while signals.stop is not None:
        time.sleep(0.01)
print("went on", flush=True)
"""


def process(deadline: float, *names: str) -> subprocess.CompletedProcess[str]:
    """Run a process that raises signals at itself, and never saves once it is told to stop."""
    command = [sys.executable, "-c", PROCESS, str(deadline), *names]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in HEARD]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_asks_to_stop_and_says_which_it_was(number: signal.Signals) -> None:
    with Signals() as signals:
        assert signals.stop is None
        signal.raise_signal(number)
        assert signals.stop == number
        assert not signals.save


def test_a_save_can_be_asked_for_again_and_again_and_stops_nothing() -> None:
    with Signals() as signals:
        for _ in range(2):
            assert not signals.save
            signal.raise_signal(signal.SIGUSR1)
            assert signals.save
            signals.save = False
        assert signals.stop is None


def test_behind_it_the_handlers_are_those_of_before_also_after_an_error() -> None:
    before = handlers()
    with Signals():
        assert handlers() != before
    assert handlers() == before
    with pytest.raises(RuntimeError, match="diverged"), Signals():
        raise RuntimeError("diverged")
    assert handlers() == before


def test_a_handler_of_the_user_is_given_back() -> None:
    def own(*_: object) -> None:
        """Stand for the user's."""

    before = signal.signal(signal.SIGUSR1, own)
    try:
        with Signals():
            assert signal.getsignal(signal.SIGUSR1) is not own
        assert signal.getsignal(signal.SIGUSR1) is own
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_outside_of_the_main_thread_nothing_is_heard_and_nothing_breaks() -> None:
    before, seen = handlers(), []

    def elsewhere() -> None:
        with Signals() as signals:
            seen.append((handlers(), signals.stop, signals.save))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [(before, None, False)]
    assert handlers() == before


def test_the_deadline_is_off_once_the_process_has_saved() -> None:
    """Its thread would end this very process."""
    with Signals(deadline=60.0) as signals:
        signal.raise_signal(signal.SIGTERM)
        timer = signals._timer
        assert timer is not None
        assert timer.is_alive()
    timer.join(timeout=10)
    assert not timer.is_alive()


@pytest.mark.takes_seconds
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_process_that_does_not_save_in_time_ends_and_says_what_is_left(name: str) -> None:
    done = process(0.2, name)
    assert done.returncode == 128 + getattr(signal, name)
    assert done.stdout == f"heard {name}\n"
    assert done.stderr == (
        f"parity: {name}: not saved within 0.2 s, giving up; the run resumes from its newest whole checkpoint\n"
    )


@pytest.mark.takes_seconds
def test_a_second_sigterm_ends_the_process_as_if_nobody_listened() -> None:
    done = process(60, "SIGTERM", "SIGTERM")
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "heard SIGTERM\n")


@pytest.mark.takes_seconds
def test_a_second_interrupt_ends_the_process_too_also_behind_a_sigterm() -> None:
    for first in ("SIGINT", "SIGTERM"):
        done = process(60, first, "SIGINT")
        assert (done.returncode, done.stdout) == (-signal.SIGINT, f"heard {first}\n")


@pytest.mark.takes_seconds
def test_asking_for_a_save_never_ends_a_process() -> None:
    done = process(60, "SIGUSR1", "SIGUSR1", "SIGUSR1")
    assert (done.returncode, done.stdout) == (0, "heard SIGUSR1\n" * 3 + "went on\n")


@pytest.mark.parametrize("first", ["SIGHUP", "SIGTERM", "SIGINT"])
def test_a_hangup_is_no_second_signal_since_a_closing_terminal_sends_several(first: str) -> None:
    with Signals() as signals:
        signal.raise_signal(getattr(signal, first))
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        assert signals.stop == getattr(signal, first)


@pytest.mark.takes_seconds
def test_after_a_hangup_a_sigterm_is_the_first_and_the_next_one_the_second() -> None:
    done = process(60, "SIGHUP", "SIGTERM", "SIGTERM")
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "heard SIGHUP\nheard SIGTERM\n")


def test_a_hangup_that_was_ignored_before_stays_ignored() -> None:
    """`nohup parity train ...` is to outlive its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            signal.raise_signal(signal.SIGHUP)
            assert signals.stop is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.takes_seconds
def test_the_deadline_holds_where_nobody_reads_what_is_said() -> None:
    closed = "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 2)\n"
    command = [sys.executable, "-c", closed + PROCESS, "0.2", "SIGTERM"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "heard SIGTERM\n")

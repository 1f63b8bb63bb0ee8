"""A command that a signal ends: heard inside a long call, results written once, at once the second time."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from parity.cli import main
from parity.cli.interrupt import STOPPING, Interruption

pytestmark = pytest.mark.takes_seconds

LONGEST = 10.0
"""Seconds within which a process ends that would otherwise take minutes."""

BEGIN = """
import hashlib, os, signal, sys, time
import parity.cli.interrupt as interrupt
from parity.cli.interrupt import Interruption
def say(*words):
    print(*words, flush=True)
def long_call():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # minutes in C, without the interpreter's lock
def hang(name):
    say("hanging")
    time.sleep(600)
"""

LONG_CALL = """
with Interruption() as interruption:
    interruption.finish = lambda name: say("finished by", name)
    say("ready")
    long_call()
"""

HANGING = """
interrupt.FINISH_SECONDS = float(sys.argv[1])
with Interruption() as interruption:
    interruption.finish = hang
    say("ready")
    long_call()
"""

WRITING = """
with Interruption() as interruption:
    interruption.finish = lambda name: say("finished twice")
    interruption.begin_to_write()
    say("one half")
    signal.raise_signal(signal.SIGTERM)
    time.sleep(0.3)
    say("the other half")
say("unreached")
"""

FAILING = """
def fail(name):
    raise RuntimeError("a bug")
with Interruption() as interruption:
    interruption.finish = fail
    say("ready")
    long_call()
"""

FIRST = """
with Interruption():
    say("ready")
    long_call()
"""


class Process:
    """A script in a process of its own, up to its first line."""

    def __init__(self, script, *words, before=""):
        command = [sys.executable, "-c", f"{before}\n{BEGIN}{script}", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.first = self.process.stdout.readline()
        time.sleep(0.2)  # it is in its long call by now

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()

    def stop(self, *numbers):
        """Send signals; return the exit code, the lines after the first, and what is on standard error."""
        for number in numbers:
            self.process.send_signal(number)
            time.sleep(0.2)  # two of a kind would be one
        out, err = self.process.communicate(timeout=LONGEST)
        return self.process.returncode, out, err


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_is_heard_while_the_main_thread_is_inside_a_long_call(number):
    with Process(LONG_CALL) as process:
        assert process.stop(number) == (128 + number, f"finished by {number.name}\n", "")


def test_a_signal_before_the_first_check_says_so():
    with Process(FIRST) as process:
        code, out, err = process.stop(signal.SIGTERM)
    assert (code, out) == (128 + signal.SIGTERM, "")
    assert err == "parity: SIGTERM: stopped before the first check began\n"


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(second):
    with Process(HANGING, "600") as process:
        assert process.stop(signal.SIGTERM, second) == (128 + second, "hanging\n", "")


@pytest.mark.parametrize("numbers", [(signal.SIGHUP, signal.SIGHUP), (signal.SIGTERM, signal.SIGHUP)])
def test_a_closing_terminal_sends_several_signals_and_the_results_are_written(numbers):
    with Process(LONG_CALL.replace("lambda name:", "lambda name: time.sleep(1) or")) as process:
        code, out, _ = process.stop(*numbers)
    assert (code, out) == (128 + numbers[0], f"finished by {numbers[0].name}\n")


def test_results_that_cannot_be_written_in_time_are_given_up():
    with Process(HANGING, "0.5") as process:
        assert process.stop(signal.SIGTERM) == (128 + signal.SIGTERM, "hanging\n", "")


def test_results_that_the_main_thread_writes_already_are_written_once_and_whole():
    with Process(WRITING) as process:
        assert process.first == "one half\n"
        assert process.stop() == (128 + signal.SIGTERM, "the other half\n", "")


def test_a_fault_while_writing_ends_the_process_all_the_same():
    with Process(FAILING) as process:
        code, _, err = process.stop(signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert "RuntimeError: a bug" in err


def test_nohup_holds_for_a_check():
    ignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    with Process(LONG_CALL, before=ignored) as process:
        code, out, _ = process.stop(signal.SIGHUP, signal.SIGTERM)
    assert (code, out) == (128 + signal.SIGTERM, "finished by SIGTERM\n")


def handlers():
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    return [signal.getsignal(number) for number in STOPPING], wakeup, threading.active_count()


def test_outside_of_it_everything_is_as_before():
    before = handlers()
    with Interruption():
        assert all(now != then for now, then in zip(handlers()[0], before[0], strict=True))
    assert handlers() == before
    with pytest.raises(RuntimeError, match="a fault"), Interruption():
        raise RuntimeError("a fault")
    assert handlers() == before


def test_a_check_called_by_a_program_gives_its_handlers_back(capsys):
    before = handlers()[:2]
    assert main(["check", "twins", "--spec", "mlp-digits", "--sides", "torch"]) == 4
    assert handlers()[:2] == before
    capsys.readouterr()


def test_outside_of_the_main_thread_nothing_is_heard_and_nothing_breaks():
    before, seen = handlers()[:2], []

    def elsewhere():
        with Interruption() as interruption:
            interruption.begin_to_write()
            seen.append([signal.getsignal(number) for number in STOPPING])

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before[0]]


SHORT = """
import importlib, sys, time
from parity.cli import main
module, name, *words = sys.argv[1:]
def wait(*args):
    print("ready", flush=True)
    time.sleep(600)
setattr(importlib.import_module(module), name, wait)
raise SystemExit(main(words))
"""


def ends_with_one_line(*words):
    """Interrupt a program of Python once it says that it is ready, and require one line and the code of SIGINT."""
    command = [sys.executable, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=LONGEST) == ("", "parity: SIGINT: stopped\n")
        assert process.returncode == 128 + signal.SIGINT
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("where", "name", "words"),
    [
        ("checkpoints", "_targets", ["verify", "run"]),
        ("checkpoints", "home_of", ["path", "run", "best"]),
        ("report", "_render", ["report", "check.json"]),
        ("policy", "read_curve", ["policy", "simulate", "0.5,0.6"]),
    ],
)
def test_control_c_ends_a_short_command_with_one_line(where, name, words):
    ends_with_one_line("-c", SHORT, f"parity.cli.{where}", name, *words)


LOADING = """
import sys, time
from importlib.abc import MetaPathFinder

class Slow(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "parity.report":
            print("ready", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow())
from parity.__main__ import run
sys.argv[1:] = ["policy", "simulate", "0.5"]
sys.exit(run())
"""


def test_control_c_ends_a_command_that_is_being_loaded_with_one_line():
    ends_with_one_line("-c", LOADING)


CHILD = """
import os, sys, time
import parity.forks.parent as p
if sys.argv[1] == "watched":
    p._ask_system = lambda: False
p.end_with_parent(int(sys.argv[2]))
print(os.getpid(), flush=True)
time.sleep(60)
"""

PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2], str(os.getpid())])
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["asked", "watched"])
def test_a_child_ends_with_its_parent_also_where_the_system_cannot_be_asked(how):
    """The pipe is the child's too: it is at its end when both processes are gone."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD, how], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout.readline().strip().isdigit()
        began = time.monotonic()
        parent.kill()
        assert parent.stdout.read() == ""
        assert time.monotonic() - began < LONGEST
    finally:
        parent.kill()
        parent.communicate()


@pytest.mark.parametrize("how", ["asked", "watched"])
def test_a_child_whose_parent_ended_before_it_could_ask_ends_itself(how):
    command = [sys.executable, "-c", CHILD, how, str(2**22 + 1)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST * 3, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def test_the_option_of_training_processes_is_not_for_people(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help"])
    assert "--with-parent" not in capsys.readouterr().out

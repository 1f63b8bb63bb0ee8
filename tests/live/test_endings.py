"""How a check ends that does not come to its end by itself: at once, with a word, and with nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import parity
from parity.checks.judging.evidence import Outcome
from parity.checks.resume.driver import Driver
from parity.checks.resume.scenarios import Scenario
from parity.checks.running import process
from parity.checks.scratch import OWNER, scratch_directory
from parity.errors import TrainerError
from parity.forks import janitor
from tests.live.endless_trainers import leaves_children, waits_when_resumed
from tests.live.test_bad_input import plain
from tests.live.test_forks import alive, linux, wait_for

pytestmark = pytest.mark.processes

SCRIPT = """
import os, subprocess, sys, threading
import parity

def train(folder, steps):
    far = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with open({pids!r}, "a") as file:
        file.write(f"{{os.getpid()}} {{far.pid}}\\n")
    weight = 1.0
    for step in range(steps):
        yield step
        weight *= 1.01
        (folder / "weight").write_text(str(weight))
        if step == 3:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()

if __name__ == "__main__":
    parity.resumes(train, steps=12, stop_at=6, mode={mode!r})
"""

WAITING_SECONDS = 60.0
"""Far beyond the two seconds that an end takes, and far below the 600 for which nothing here would end by itself."""


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda one: one.name)
def test_one_signal_ends_a_check_of_trainers_that_are_deadlocked(number: signal.Signals, tmp_path: Path) -> None:
    """Also the children that have a session of their own, and the temporary folder."""
    script, pids, scratch = tmp_path / "script.py", tmp_path / "pids", tmp_path / "scratch"
    scratch.mkdir()
    script.write_text(SCRIPT.format(pids=str(pids), mode="process"))
    env = {**os.environ, "TMPDIR": str(scratch)}
    run = subprocess.Popen([sys.executable, str(script)], env=env, stderr=subprocess.PIPE, text=True)
    found = wait_for(lambda: pids.read_text().split(), 4)
    run.send_signal(number)
    _, printed = run.communicate(timeout=WAITING_SECONDS)
    assert run.returncode == -number
    assert ("KeyboardInterrupt" in printed) == (number == signal.SIGINT)
    wait_for(lambda: [pid for pid in found if not alive(int(pid))], 4)
    wait_for(lambda: [0] if not list(scratch.iterdir()) else [], 1)


@linux
def test_a_deadlocked_check_within_the_process_leaves_no_folder_at_sigterm(tmp_path: Path) -> None:
    script, pids, scratch = tmp_path / "script.py", tmp_path / "pids", tmp_path / "scratch"
    scratch.mkdir()
    script.write_text(SCRIPT.format(pids=str(pids), mode="inline"))
    run = subprocess.Popen([sys.executable, str(script)], env={**os.environ, "TMPDIR": str(scratch)})
    found = wait_for(lambda: pids.read_text().split(), 2)
    assert len(list(scratch.iterdir())) == 1
    run.terminate()
    assert run.wait(WAITING_SECONDS) == -signal.SIGTERM
    wait_for(lambda: [0] if not list(scratch.iterdir()) else [], 1)
    os.kill(int(found[1]), signal.SIGKILL)  # it was started by the user's own process


@linux
def test_what_a_run_started_in_another_session_ends_with_the_check(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    found = parity.resumes(
        leaves_children, steps=12, stop_at=7, mode="process", scenarios="kill", options={"pids": str(pids)}
    )
    assert found.verdict == "holds", found.text()
    started = pids.read_text().split()
    assert len(started) >= 6
    wait_for(lambda: [pid for pid in started if not alive(int(pid))], len(started))
    assert janitor.VARIABLE not in os.environ


def test_only_processes_with_the_token_are_ended() -> None:
    with janitor.marking("one-token"):
        mine = subprocess.Popen(["sleep", "600"])
    other = subprocess.Popen(["sleep", "600"])
    janitor.end_marked("one-token")
    assert mine.wait(WAITING_SECONDS) == -signal.SIGKILL
    assert other.poll() is None
    other.kill()
    other.wait()


@pytest.mark.parametrize("code", [0, None, 3])
def test_a_resumed_run_that_calls_sys_exit_is_judged(code: Any) -> None:
    def train(folder: Path) -> Iterator[int]:
        if (folder / "state.json").exists():
            sys.exit(code)
        yield from plain(folder)

    found = parity.resumes(train, steps=12, stop_at=7, mode="inline")
    assert (found.verdict, found.components) == ("broken", ("checkpoint.restore",))
    assert "SystemExit" in found.suspects[0].got


def test_a_function_may_end_by_sys_exit_after_its_last_step() -> None:
    def train(folder: Path) -> Iterator[int]:
        yield from plain(folder)
        sys.exit(0)

    assert parity.resumes(train, steps=12, stop_at=7, mode="inline").verdict == "holds"


def test_a_function_that_exits_without_being_stopped_is_an_error() -> None:
    def train(folder: Path) -> Iterator[int]:
        for step in plain(folder):
            yield step
            if step == 8:
                sys.exit(0)

    with pytest.raises(TrainerError, match="SystemExit: 0"):
        parity.resumes(train, steps=12, stop_at=7, mode="inline")


def test_a_resumed_run_that_never_ends_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    drive = Driver.drive

    def impatient(self: Driver, scenario: Scenario) -> Outcome:
        monkeypatch.setattr(process, "TIMEOUT_SECONDS", 1.0)
        return drive(self, scenario)

    monkeypatch.setattr(Driver, "drive", impatient)
    found = parity.resumes(waits_when_resumed, steps=12, stop_at=7, mode="process", scenarios="kill")
    assert found.verdict == "inconclusive", found.text()
    assert "a run took longer than 1 s" in found.text()


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_file_in_the_folder_is_no_error(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(folder: Path) -> Iterator[int]:
        if kind == "pipe" and not (folder / "control").exists():
            os.mkfifo(folder / "control")
        if kind == "device" and not (folder / "control").exists():
            (folder / "control").symlink_to("/dev/zero")
        if kind == "socket" and not (folder / "control").exists():
            with socket.socket(socket.AF_UNIX) as made:
                monkeypatch.chdir(folder)  # the path of a socket has 107 letters at most
                made.bind("control")
        yield from plain(folder)

    found = parity.resumes(train, steps=12, stop_at=7, mode="inline")
    assert found.verdict == "holds", found.text()


def test_a_folder_whose_owner_is_gone_is_removed_and_no_other(tmp_path: Path) -> None:
    code = textwrap.dedent(f"""
        import os
        from pathlib import Path
        from parity.checks.scratch import scratch_directory
        with scratch_directory("parity-", Path({str(tmp_path)!r})) as made:
            (made / "file").write_text("x")
            os._exit(9)
    """)
    subprocess.run([sys.executable, "-c", code])
    (left,) = tmp_path.iterdir()
    (tmp_path / "parity-of-someone").mkdir()
    with scratch_directory("parity-", tmp_path) as first:
        assert not left.exists()
        with scratch_directory("parity-", tmp_path):
            assert (first / OWNER).is_file(), "its owner lives"
    assert [path.name for path in tmp_path.iterdir()] == ["parity-of-someone"]


def test_the_janitor_ends_with_a_check_that_cleans_up() -> None:
    before = set(janitor.descendants(os.getpid()))
    parity.resumes(plain, steps=12, stop_at=7, mode="inline", options={})
    assert set(janitor.descendants(os.getpid())) <= before


@linux
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.soak),
        pytest.param(signal.SIGTERM, marks=pytest.mark.soak),
        signal.SIGKILL,
    ],
    ids=lambda one: one.name,
)
def test_one_signal_ends_the_command_with_nothing_left(number: signal.Signals, tmp_path: Path) -> None:
    command = ["check", "resume", "--spec", "linear-regression", "--sides", "torch", "--steps", "100000"]
    run = subprocess.Popen(
        [sys.executable, "-m", "parity", *command], env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(lambda: janitor.descendants(run.pid) if list(tmp_path.glob("parity-*/runs")) else [], 2)
    below = janitor.descendants(run.pid)
    run.send_signal(number)
    assert run.wait(WAITING_SECONDS) == (-number if number == signal.SIGKILL else 128 + number)
    wait_for(lambda: [pid for pid in below if not alive(pid)], len(below))
    wait_for(lambda: [0] if not list(tmp_path.glob("parity-*")) else [], 1)

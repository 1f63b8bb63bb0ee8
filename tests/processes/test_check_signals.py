"""A check that is stopped: its training processes end with it, and what it judged is written, within two seconds."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from parity.environment import usable_cpus
from parity.results import schema
from parity.spec import load, to_toml

pytestmark = pytest.mark.processes

STOPPING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
"""They share a handler: here each stops one of the two checks, `make soak` has the product."""

DEADLINE = 10.0
"""Seconds from a signal to the end; it takes some tenths, and less than two on a machine that is not overloaded."""


def at_once(*numbers):
    """Return the signals that stop a check; those that are not named here are for the soak."""
    return [pytest.param(number, marks=() if number in numbers else pytest.mark.soak) for number in STOPPING]


SERVER = "parity.cli.train_server"
"""In the command line of a process that forks, and of those that it has forked."""

MAIN = "import sys; from parity.cli import main; sys.exit(main())"
"""`parity`, after what a test plants."""


class Check:
    """`parity check` in a process of its own, and whatever belongs to it."""

    def __init__(self, home, *words, plant=""):
        self.home, self.report, self.scratch = home, home / "report", home / "tmp"
        self.scratch.mkdir()
        command = [sys.executable, "-c", f"{plant}\n{MAIN}", "check", *words, "--report", str(self.report), "--json"]
        with (home / "out").open("w") as out, (home / "err").open("w") as err:
            environment = os.environ | {"TMPDIR": str(self.scratch)}
            self.process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        """Leave nothing behind, whatever a test finds."""
        self.process.kill()
        self.process.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    def training(self):
        """Return the training processes, whoever their parent is by now."""
        found = self.processes()
        servers = {pid for pid, (parent, args) in found.items() if SERVER in args and parent not in found}
        return [pid for pid in found if pid not in servers]

    def processes(self):
        """Return number to parent and command line of the training processes and of those that fork them."""
        found = subprocess.run(
            ["ps", "-ww", "-eo", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True
        ).stdout
        rows = [line.split(None, 3) for line in found.splitlines()]
        return {
            int(pid): (int(parent), args)
            for pid, parent, stat, args in rows
            if stat[0] != "Z" and ((" parity train " in args and str(self.home) in args) or self.is_server(pid, args))
        }

    def is_server(self, pid, args):
        """Return whether a process forks, or was forked: its environment is that of this check."""
        try:
            return SERVER in args and f"TMPDIR={self.scratch}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    def left(self):
        """Return what is left of them after the check, if they do not end at once."""
        deadline = time.monotonic() + DEADLINE / 2
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.processes()

    def wait_for(self, condition, seconds=120):
        """Return when a condition holds, and fail if the check ends before."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.errors()
            assert time.monotonic() < deadline, self.errors()
            time.sleep(0.02)

    def errors(self):
        return (self.home / "err").read_text()

    def stop(self, number):
        """Send a signal; return the exit code and the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(60)
        return code, time.monotonic() - began

    def verdicts(self):
        """Return what is written of each check; the document on standard output and in the report are one."""
        found = json.loads((self.report / "check.json").read_text())
        assert json.loads((self.home / "out").read_text()) == found
        jsonschema.validate(found, schema(), cls=jsonschema.Draft202012Validator)
        assert (self.report / "check.md").exists()
        assert (self.report / "index.html").exists()
        assert found["verdict"] == "inconclusive", "never a success"
        return [(check["name"], check["sides"], check["verdict"], check["notes"]) for check in found["checks"]]


IN_TURN = "import parity.cli.check; parity.cli.check.MOST_AHEAD = 0"
"""What makes each check begin when the one before has its verdict."""


def resume_check(home, plant=""):
    """Return a check of both sides, each in two processes, one of which waits to be killed."""
    words = ["resume", "--spec", "mlp-digits", "--set", "model.hidden=[8]", "--sides", "torch,jax", "--steps", "10"]
    return Check(home, *words, plant=plant)


def both_train(check):
    return "(torch): holds" in check.errors() and len(check.training()) == 2


@pytest.mark.parametrize("number", at_once(signal.SIGTERM, signal.SIGHUP))
def test_a_resume_check_that_is_stopped_writes_what_it_judged_and_leaves_no_process(number, tmp_path):
    with resume_check(tmp_path, IN_TURN) as check:
        check.wait_for(lambda: both_train(check))
        code, seconds = check.stop(number)
        assert check.left() == {}
    assert code == 128 + number, check.errors()
    assert seconds < DEADLINE
    note = f"stopped by {number.name} before it finished"
    assert check.verdicts() == [
        ("resume", ["torch"], "holds", []),
        ("resume", ["jax"], "inconclusive", [note]),
    ]
    assert f"  {note}\n" in check.errors()
    assert "verdict: inconclusive" in check.errors()
    assert "Traceback" not in check.errors()
    assert list(check.scratch.glob("parity-*")) == []


@pytest.mark.skipif(usable_cpus() < 2, reason="with one processor no check runs ahead")
@pytest.mark.soak
def test_checks_that_run_ahead_end_with_the_others_and_no_verdict_is_made_up(tmp_path):
    with resume_check(tmp_path) as check:
        check.wait_for(lambda: len(check.training()) >= 3)
        code, seconds = check.stop(signal.SIGTERM)
        assert check.left() == {}
    assert code == 128 + signal.SIGTERM, check.errors()
    assert seconds < DEADLINE
    note = "stopped by SIGTERM before it finished"
    assert check.verdicts() == [("resume", [side], "inconclusive", [note]) for side in ("torch", "jax")]
    assert "Traceback" not in check.errors()
    assert list(check.scratch.glob("parity-*")) == []


@pytest.mark.parametrize("number", at_once(signal.SIGINT))
def test_a_twins_check_that_is_stopped_inside_a_long_call_writes_what_it_judged(number, tmp_path):
    """A chunk of the large model is ten steps of some tenths of a second, in a single call of the main thread."""
    quick = load("mlp-digits", "float64", ["model.hidden=[8]"])
    slow = load("mlp-digits", "float64", ["model.hidden=[2048, 2048]", "batch=512", "execution.chunk=10"])
    specs = []
    for name, spec in (("quick", quick), ("slow", slow)):
        file = tmp_path / f"{name}.toml"
        file.write_text(to_toml(spec).replace('name = "mlp-digits"', f'name = "{name}"'))
        specs += ["--spec", str(file)]
    with Check(tmp_path, "twins", *specs, "--steps", "100") as check:
        check.wait_for(lambda: "twins quick float64 (jax, torch): holds" in check.errors())
        time.sleep(5)  # the pair is built and compiled, and trains
        code, seconds = check.stop(number)
    assert code == 128 + number, check.errors()
    assert seconds < DEADLINE
    assert [(name, verdict) for name, _, verdict, _ in check.verdicts()] == [
        ("twins", "holds"),
        ("twins", "inconclusive"),
    ]
    assert list(check.scratch.glob("parity-*")) == []


def test_a_policy_check_that_is_stopped_leaves_no_file_in_memory(tmp_path):
    plant = "from pathlib import Path; import parity.reference.policy as p; p.MEMORY = Path('/nowhere')"
    with Check(tmp_path, "policy", "--sides", "torch", plant=plant) as check:
        check.wait_for(lambda: any(check.scratch.glob("parity-policy-*/3")))
        code, _ = check.stop(signal.SIGTERM)
    assert code == 128 + signal.SIGTERM, check.errors()
    assert [verdict for _, _, verdict, _ in check.verdicts()] == ["holds", "inconclusive"]
    assert list(check.scratch.glob("parity-*")) == []


def test_a_check_that_is_killed_takes_its_training_processes_along(tmp_path):
    assert survivors(tmp_path, plant="") == {}


ALONE = """
import subprocess
import parity.reference.planned.process as p
class Alone(subprocess.Popen):
    def __init__(self, command, **options):
        if "--with-parent" in command:
            at = command.index("--with-parent")
            command = command[:at] + command[at + 2:]
        super().__init__(command, **options)
p.subprocess.Popen = Alone
import parity.cli.train_forks as f
f.can_fork = lambda: False
"""


def test_without_the_death_signal_a_killed_check_would_leave_them(tmp_path):
    assert len(survivors(tmp_path, plant=ALONE)) == 2


def survivors(home, plant):
    """Return the training processes that outlive a SIGKILL of their check by seconds; alone they would train on."""
    words = ["resume", "--spec", "mlp-digits", "--set", "model.hidden=[8]", "--sides", "torch", "--steps", "1000000"]
    with Check(home, *words, plant=plant) as check:
        check.wait_for(lambda: len(list(check.report.glob("runs/*/torch/*/steps.jsonl"))) == 2)
        assert len(check.training()) == 2
        code, _ = check.stop(signal.SIGKILL)
        assert code == -signal.SIGKILL
        return check.left()

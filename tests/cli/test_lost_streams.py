"""A reader that is gone, or a full disk behind a stream, gives no verdict; training continues without its lines."""

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from parity.cli import main
from parity.runs import RunDirectory
from parity.storage import read_lines

pytestmark = pytest.mark.takes_seconds

PARITY = [sys.executable, "-m", "parity"]
TRAIN = ["--spec", "mlp-digits", "--steps", "20"]
for override in ("model.hidden=[8]", "batch=16", "mesh.data=1", "execution.chunk=2", "save.every=10"):
    TRAIN += ["--set", override]
ALONE = ["check", "twins", "handover", "--spec", "mlp-digits", "--sides", "torch"]
"""Two checks that need two sides: inconclusive at once."""

FULL = "/dev/full"
STREAMS = ("stdout", "stderr")


@contextmanager
def lost(how):
    """Give a stream that takes nothing: a pipe without a reader, or a full disk."""
    if how == "pipe":
        read, write = os.pipe()
        os.close(read)
    else:
        write = os.open(FULL, os.O_WRONLY)
    try:
        yield write
    finally:
        os.close(write)


def run(command, stream, how):
    """Run a command one of whose streams is lost; the other one is captured."""
    with lost(how) as handle:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: handle}
        return subprocess.run([*PARITY, *command], text=True, timeout=120, check=False, **streams)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "--side", "torch", "--dir", str(path), *TRAIN]) == 0
    return path


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    path = tmp_path_factory.mktemp("result")
    assert main([*ALONE, "--report", str(path)]) == 4
    return path / "check.json"


COMMANDS = {
    "verify": ["verify", "RUN"],
    "path": ["path", "RUN", "latest"],
    "report": ["report", "RESULT"],
    "policy": ["policy", "simulate", "0.5,0.7,0.9"],
    "check": ALONE,
    "help": ["verify", "--help"],
}
"""Commands with something on standard output; each would give a verdict, or 0."""


@pytest.mark.parametrize("how", ["pipe", "full"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_whose_output_is_lost_gives_no_verdict(name, how, trained, result):
    """A closed pipe ends it as it ends other tools; a full disk is told by name, and a crash."""
    command = [{"RUN": str(trained), "RESULT": str(result)}.get(word, word) for word in COMMANDS[name]]
    done = run(command, "stdout", how)
    said = [line for line in done.stderr.splitlines() if line.startswith("parity: ")]
    if how == "pipe":
        assert (done.returncode, said) == (-signal.SIGPIPE, []), done.stderr
    else:
        assert (done.returncode, said) == (3, ["parity: error: standard output: No space left on device"])
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_shell_shows_141(trained):
    script = f"{sys.executable} -m parity verify {trained} | true; exit ${{PIPESTATUS[0]}}"
    for _ in range(5):  # `true` may end later than the one line comes
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (0, 128 + signal.SIGPIPE), done.stderr
        assert done.stderr == ""
        if done.returncode:
            return
    raise AssertionError("the pipe was never closed in time")


@pytest.mark.parametrize(("how", "code"), [("pipe", -signal.SIGPIPE), ("full", 3)])
def test_a_check_whose_progress_is_lost_writes_what_it_judged_and_ends(how, code, tmp_path):
    done = run([*ALONE, "--report", str(tmp_path)], "stderr", how)
    assert (done.returncode, done.stdout) == (code, "")
    found = json.loads((tmp_path / "check.json").read_text())
    assert found["verdict"] == "inconclusive"
    reason = {"pipe": "Broken pipe", "full": "No space left on device"}[how]
    assert [(check["name"], check["notes"]) for check in found["checks"]] == [
        ("twins", ["needs two sides, one was given"]),
        ("handover", [f"stopped by a lost stream (standard error: {reason}) before it finished"]),
    ]


@pytest.mark.processes
@pytest.mark.parametrize("how", ["pipe", "full"])
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("side", ["torch", "jax"])
def test_training_continues_without_its_lines(side, stream, how, tmp_path):
    done = run(["train", "--side", side, "--dir", str(tmp_path / "run"), *TRAIN], stream, how)
    assert done.returncode == 0, done.stderr
    if stream == "stdout":
        reason = {"pipe": "Broken pipe", "full": "No space left on device"}[how]
        assert done.stderr.splitlines() == [f"parity: warning: standard output: {reason}; continuing without it"]
    else:
        assert "done: step 20" in done.stdout
    left = RunDirectory(tmp_path / "run")
    assert [row["step"] for row in read_lines(left.steps)] == list(range(1, 21))
    assert [saved.step for saved in left.store.scan().whole] == [10, 20]


@pytest.mark.processes
@pytest.mark.parametrize("side", ["torch", "jax"])
def test_training_outlives_a_reader_that_has_read_enough(side, tmp_path):
    """`parity train ... 2>&1 | head -1`: both streams are one pipe, closed after the first line."""
    command = [*PARITY, "train", "--side", side, "--dir", str(tmp_path / "run"), *TRAIN, "--set", "validate_every=2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    first = process.stdout.readline()
    process.stdout.close()
    assert process.wait(120) == 0
    assert first == "starting from step 0\n"
    assert [saved.step for saved in RunDirectory(tmp_path / "run").store.scan().whole] == [10, 20]


def test_a_diverged_run_stays_one_when_nobody_reads(tmp_path):
    """The exit code of training is its own, whatever becomes of its lines."""
    for stream in STREAMS:
        home = tmp_path / stream
        done = run(
            ["train", "--side", "torch", "--dir", str(home), *TRAIN, "--set", "optimizer.lr=1e30"], stream, "pipe"
        )
        assert done.returncode == 1


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-"])
def test_a_stream_that_was_never_open_is_as_one_to_nowhere(streams, trained):
    script = f"exec {sys.executable} -m parity verify {trained} {streams}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (streams == "2>&-")


def test_an_error_is_not_printed_where_results_go(tmp_path):
    """`2>&-` leaves Python without a stream, for which `print` takes standard output."""
    script = f"exec {sys.executable} -m parity path {tmp_path} latest 2>&-"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")


class Closed(io.StringIO):
    """A stream in memory whose reader is gone."""

    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


def test_a_program_that_calls_the_command_keeps_its_streams_and_its_sigpipe(trained, monkeypatch):
    own = Closed()
    monkeypatch.setattr(sys, "stdout", own)
    before = signal.getsignal(signal.SIGPIPE)
    assert main(["path", str(trained), "latest"]) == 128 + signal.SIGPIPE
    assert sys.stdout is own
    assert signal.getsignal(signal.SIGPIPE) == before

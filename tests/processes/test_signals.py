"""Signals: finish the chunk, save, say so, exit with 128 + the signal; the run then goes on from there."""

import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from parity.checkpoints import verify
from parity.reference.planned import read_evidence
from parity.runs import RunDirectory
from parity.spec import load, to_toml
from parity.storage import read_lines
from tests.support.small import bits_of

pytestmark = pytest.mark.processes

SPEC = load("mlp-digits", None, ["model.hidden=[32]", "execution.chunk=2", "steps=100000", "save.every=50000"])

HANGING = """
import sys, time
import {side}_side.checkpoint, {side}_side.train
def hang(*args):
    print("hanging", flush=True)
    time.sleep(1000)
{side}_side.{target} = hang
from parity.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""`parity`, with something in a save that never returns."""

LEAD = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Becomes a command whose controlling terminal is its standard input, as a shell's is."""

SAVES = {
    ("jax", "save"): "train.JaxTrainer.save",
    ("jax", "background"): "checkpoint.Checkpoints._seal",
    ("torch", "save"): "train.TorchTrainer.save",
    ("torch", "background"): "checkpoint.Checkpoints._write",
}
"""What hangs, by side and by whether it holds up the training loop at once or only when that waits."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_signal_saves_and_exits_with_128_plus_it(side, number, tmp_path):
    file, run = tmp_path / "spec.toml", tmp_path / "run"
    file.write_text(to_toml(SPEC))
    command = [
        sys.executable,
        "-m",
        "parity",
        "train",
        "--side",
        side,
        "--spec",
        str(file),
        "--dir",
        str(run),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not read_lines(run / "steps.jsonl") and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)

    assert process.returncode == 128 + number
    last = read_evidence(run).records[-1].step
    assert f"{signal.Signals(number).name}: saved step {last}" in out
    assert (run / "checkpoints" / str(last)).is_dir()

    again = subprocess.run(
        [*command, "--steps", str(last + 4)], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"resumed from step {last} (latest)" in again.stdout
    assert read_evidence(run).records[-1].step == last + 4


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_sigusr1_saves_and_training_goes_on_as_if_nothing_had_been(side, tmp_path):
    command, run = train_command(side, tmp_path)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: read_lines(run.steps), process)
        process.send_signal(signal.SIGUSR1)
        wait_for(lambda: run.store.scan().whole, process)
        (saved,) = run.store.scan().whole
        wait_for(lambda: read_lines(run.steps)[-1]["step"] > saved.step + 4, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM, process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()

    assert verify(run.checkpoints / str(saved.step)).whole
    records = read_evidence(run.path).records
    assert len(read_lines(run.attempts)) == 1
    other = tmp_path / "without"
    subprocess.run(
        [*command[:-1], str(other), "--steps", str(records[-1].step)],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=120,
    )
    assert bits_of(records) == bits_of(read_evidence(other).records)


@pytest.mark.parametrize(("side", "where"), SAVES)
def test_a_save_that_hangs_is_given_up_at_the_deadline(side, where, tmp_path):
    process, run = stop_while_hanging(side, where, tmp_path, deadline=0.5)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, (out, err)
    assert err.splitlines() == [
        "parity: SIGTERM: not saved within 0.5 s, giving up; the run resumes from its newest whole checkpoint"
    ]
    scan = run.store.scan()
    assert not scan.whole
    assert not scan.damaged


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_second_signal_ends_a_process_at_once(side, tmp_path):
    process, run = stop_while_hanging(side, "save", tmp_path, deadline=600)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM, err
    assert "Traceback" not in err
    assert not run.store.scan().damaged


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_terminal_that_closes_costs_nothing_but_the_lines(side, tmp_path):
    """The system sends SIGHUP to who leads its session, and from then on every write fails."""
    command, run = train_command(side, tmp_path)
    ours, theirs = pty.openpty()

    leading = [sys.executable, "-c", LEAD, *command]
    process = subprocess.Popen(leading, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    deadline = time.monotonic() + 60
    try:
        while not read_lines(run.steps):
            assert process.poll() is None
            assert time.monotonic() < deadline
            if select.select([ours], [], [], 0.02)[0]:
                os.read(ours, 4096)  # as its window would
        os.close(ours)
        assert process.wait(60) == 128 + signal.SIGHUP
    finally:
        process.kill()
        process.wait()
    (saved,) = run.store.scan().whole
    assert saved.step == read_lines(run.steps)[-1]["step"]
    assert verify(run.checkpoints / str(saved.step)).whole


def test_nohup_trains_on_when_its_terminal_closes(tmp_path):
    command, run = train_command("torch", tmp_path)
    process = subprocess.Popen(
        ["nohup", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: read_lines(run.steps), process)
        process.send_signal(signal.SIGHUP)
        last = read_lines(run.steps)[-1]["step"]
        wait_for(lambda: read_lines(run.steps)[-1]["step"] > last + 100, process)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "SIGTERM: saved step" in out


def train_command(side, home):
    """Return the command of a run in `home`, its directory last, and the run."""
    file, run = home / "spec.toml", RunDirectory(home / "run")
    file.write_text(to_toml(SPEC))
    return [sys.executable, "-m", "parity", "train", "--side", side, "--spec", str(file), "--dir", str(run.path)], run


def wait_for(condition, process):
    """Return when a condition holds, and fail if the process ends before."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stop_while_hanging(side, where, home, deadline):
    """Return a process that was told to stop and hangs in its save, and its run."""
    command, run = train_command(side, home)
    script = home / "hanging.py"
    script.write_text(HANGING.format(side=side, target=SAVES[side, where]))
    process = subprocess.Popen(
        [sys.executable, str(script), *command[3:], "--deadline", str(deadline)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: read_lines(run.steps), process)
    process.send_signal(signal.SIGTERM)
    while process.stdout.readline().strip() != "hanging":
        assert process.poll() is None, process.stderr.read()
    return process, run

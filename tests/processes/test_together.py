"""Two processes of one run, started as a launcher does: one writer, the same curve, one end for both."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parity.checkpoints import verify
from parity.reference.planned import read_evidence
from parity.runs import RunDirectory
from parity.spec import load, to_toml
from parity.storage import WriterLock, read_lines
from tests.support.ports import free_port
from tests.support.several import Started
from tests.support.small import bits_of

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
SMALL = ["model.hidden=[16]", "execution.chunk=2", "mesh.data=2", "save.every=8", "validate_every=8"]
ENDLESS = [*SMALL, "steps=1000000", "save.every=500000", "validate_every=500000"]
SECONDS = 60
"""Generous: each of these takes a few seconds, most of them to import."""
IS_GONE = (
    r"parity: error: process {} of 2 \({} on .+\) is gone: killed, crashed or cut off; this process ends with it;"
)

ONE_SAVE_FAILS = """
import os, sys
import jax_side.checkpoint as checkpoint
import parity.checkpoints.saving as saving
from parity.cli import main
def fail(*args, **kwargs):
    raise OSError(28, "No space left on device")
if os.environ["JAX_PROCESS_ID"] == {index!r}:
    {target} = fail
sys.exit(main(sys.argv[1:]))
"""
"""`parity`, with a disk that is full for one of the processes."""

FAULTS = {
    "the seal of process 0": ("0", "saving.commit"),
    "the start of a save in process 1": ("1", "checkpoint.Snapshot"),
    "the digests of process 1": ("1", "sys.modules['jax_side.formats.orbax_handler'].digest_files"),
}


class Pair(Started):
    """Two processes of a run of the JAX side, of which one may be started later, or otherwise."""

    seconds = SECONDS

    def __init__(self, home, overrides, *words, script=None, second=(), started=(0, 1)):
        self.run, self.home = RunDirectory(home / "run"), home
        self.port = free_port()
        file = home / "spec.toml"
        file.write_text(to_toml(load("mlp-digits", None, overrides)))
        program = [str(script)] if script else ["-m", "parity"]
        self.command = [sys.executable, *program, "train", "--side", "jax", "--spec", str(file)]
        self.command += ["--dir", str(self.run.path), *words]
        self.processes = {index: self.start(index, second if index else ()) for index in started}

    def start(self, index, words=()):
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("JAX_") or "_CACHE" in name},
            **{"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "JAX_NUM_PROCESSES": "2"},
            **{"JAX_COORDINATOR_ADDRESS": f"localhost:{self.port}", "JAX_PROCESS_ID": str(index)},
        }
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": self.home}
        return subprocess.Popen([*self.command, *words], env=env, **pipes)


def trained(home, *words, steps):
    """Run two processes to the end, and return what process 0 wrote."""
    with Pair(home, SMALL, "--steps", str(steps), *words) as pair:
        (code, out, err), (second, _, err_of_second) = pair.end(0), pair.end(1)
    assert (code, second) == (0, 0), (err, err_of_second)
    assert (err, err_of_second) == ("", "")
    return out


def alone(home, *words):
    """Run the same in one process, with the same mesh of forced devices."""
    file = home / "spec.toml"
    command = [sys.executable, "-m", "parity", "train", "--side", "jax", "--spec", str(file), *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=SECONDS)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two pairs of processes, the second of which resumes the run of the first."""
    home = tmp_path_factory.mktemp("pair")
    first = trained(home, "--trace-state", steps=24)
    second = trained(home, "--trace-state", steps=40)
    return home, first, second


def test_two_processes_train_one_run_and_write_each_record_once(home):
    path, first, _ = home
    run = RunDirectory(path / "run")
    assert "starting from step 0" in first
    assert "done: step 24" in first
    assert [row["step"] for row in read_lines(run.steps)] == list(range(1, 41))
    assert [row["step"] for row in read_lines(run.validations)] == [8, 16, 24, 32, 40]
    for saved in run.store.scan().whole:
        assert verify(run.checkpoints / str(saved.step)).whole
    assert json.loads((run.path / "latest.json").read_text())["step"] == 40


def test_a_second_pair_resumes_what_the_first_saved(home):
    path, _, second = home
    run = RunDirectory(path / "run")
    attempts = read_lines(run.attempts)
    assert "resumed from step 24 (latest)" in second
    assert [(row["attempt"], row["resumed_from"]) for row in attempts] == [(0, None), (1, 24)]
    assert [row["topology"]["processes"] for row in attempts] == [2, 2]
    states = {(row["event"], row["attempt"]): row["leaves"] for row in read_lines(run.states)}
    ended, began = states["final", 0], states["restored", 1]
    assert {k: v for k, v in ended.items() if k != "config.spec"} == {
        k: v
        for k, v in began.items()
        if k != "config.spec"  # names the steps, which are more now
    }


def test_the_curve_is_bitwise_that_of_one_process_with_the_same_mesh(home):
    path, _, _ = home
    other = path / "alone"
    alone(path, "--dir", str(other), "--steps", "40")
    ours, theirs = read_evidence(path / "run"), read_evidence(other)
    assert bits_of(ours.records) == bits_of(theirs.records)
    assert [v.value for v in ours.validations] == [v.value for v in theirs.validations]


def test_one_process_resumes_the_run_of_two_and_says_that_their_number_changed(home, tmp_path):
    path, _, _ = home
    copied = shutil.copytree(path / "run", tmp_path / "run")
    command = [sys.executable, "-m", "parity", "train", "--side", "jax", "--spec", str(path / "spec.toml")]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [*command, "--dir", str(copied), "--steps", "42"],
        env=env,
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert "resumed from step 40 (latest)" in done.stdout
    assert "topology changed (processes 2 -> None)" in done.stdout


def test_a_damaged_checkpoint_is_moved_aside_and_both_restore_the_one_before(home, tmp_path):
    path, _, _ = home
    shutil.copytree(path / "run", tmp_path / "run")
    damaged = max((tmp_path / "run" / "checkpoints" / "40").rglob("d/*"), key=lambda file: file.stat().st_size)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    out = trained(tmp_path, steps=42)
    assert "resumed from step 32 (latest)" in out
    assert "moved checkpoint 40 to abandoned/2: " in out
    run = RunDirectory(tmp_path / "run")
    assert bits_of(read_evidence(run.path).records[:40]) == bits_of(read_evidence(path / "run").records)


@pytest.mark.parametrize("heard", [0, 1])
def test_a_signal_to_either_saves_the_same_step_in_both(heard, tmp_path):
    with Pair(tmp_path, ENDLESS) as pair:
        pair.wait_for_steps()
        pair[heard].send_signal(signal.SIGTERM)
        codes = [pair.end(index) for index in (0, 1)]
    assert [code for code, _, _ in codes] == [128 + signal.SIGTERM] * 2, codes
    last = read_lines(pair.run.steps)[-1]["step"]
    assert f"SIGTERM: saved step {last}" in codes[0][1]
    assert [saved.step for saved in pair.run.store.scan().whole] == [last]
    assert verify(pair.run.checkpoints / str(last)).whole


def test_sigusr1_to_the_second_saves_in_both_and_training_goes_on(tmp_path):
    with Pair(tmp_path, ENDLESS) as pair:
        pair.wait_for_steps()
        pair[1].send_signal(signal.SIGUSR1)
        pair.wait_for(lambda: pair.run.store.scan().whole)
        (saved,) = pair.run.store.scan().whole
        pair.wait_for(lambda: read_lines(pair.run.steps)[-1]["step"] > saved.step + 4)
        pair[1].send_signal(signal.SIGTERM)
        assert [pair.end(index)[0] for index in (0, 1)] == [128 + signal.SIGTERM] * 2
    assert verify(pair.run.checkpoints / str(saved.step)).whole


@pytest.mark.parametrize("killed", [0, 1])
def test_when_one_is_killed_the_other_ends_and_says_which_in_one_line(killed, tmp_path):
    with Pair(tmp_path, ENDLESS) as pair:
        pair.wait_for_steps()
        pair[killed].kill()
        code, _, err = pair.end(1 - killed, seconds=20)
    assert code == 3, err
    assert re.match(IS_GONE.format(killed, pair[killed].pid), err), err
    assert len(err.splitlines()) == 1, err
    assert not pair.run.store.scan().damaged


@pytest.mark.parametrize("fault", FAULTS)
def test_a_save_that_fails_in_one_ends_both_and_both_say_why(fault, tmp_path):
    index, target = FAULTS[fault]
    script = tmp_path / "failing.py"
    script.write_text(ONE_SAVE_FAILS.format(index=index, target=target))
    with Pair(tmp_path, SMALL, "--steps", "100", script=script) as pair:
        codes = [pair.end(i, seconds=40) for i in (0, 1)]
    own, other = codes[int(index)], codes[1 - int(index)]
    assert (own[0], other[0]) == (3, 3), codes
    assert "No space left on device" in own[2], codes
    assert re.match(rf"parity: error: process {index} of 2 \(.+\) failed: .*No space left on device", other[2]), codes
    assert len(other[2].splitlines()) == 1, codes
    assert pair.run.store.scan().whole == []


def test_a_directory_that_somebody_else_writes_to_refuses_both(tmp_path):
    (tmp_path / "run").mkdir()
    with WriterLock(tmp_path / "run"), Pair(tmp_path, SMALL) as pair:
        codes = [pair.end(index) for index in (0, 1)]
    assert [code for code, _, _ in codes] == [2, 2], codes
    refusal = f"{pair.run.path} has a writer already: process {os.getpid()} on "
    assert codes[0][2].startswith(f"parity: error: {refusal}"), codes
    assert f"failed: {refusal}" in codes[1][2], codes
    assert [len(err.splitlines()) for _, _, err in codes] == [1, 1], codes
    assert not pair.run.exists


def test_a_second_process_with_another_spec_is_refused_with_the_field_in_both(tmp_path):
    with Pair(tmp_path, SMALL, second=["--set", "optimizer.lr=0.5"]) as pair:
        codes = [pair.end(index) for index in (0, 1)]
    lr = load("mlp-digits", None, SMALL).optimizer.lr
    line = f"parity: error: process 1 of 2 was started differently: optimizer.lr is 0.5 there and {lr} in process 0"
    for code, _, err in codes:
        assert code == 2, codes
        assert err.startswith(line), codes
        assert len(err.splitlines()) == 1, codes
    assert not pair.run.path.exists()


def test_a_second_process_with_another_directory_is_refused_in_both(tmp_path):
    with Pair(tmp_path, SMALL, second=["--dir", "elsewhere"]) as pair:
        codes = [pair.end(index) for index in (0, 1)]
    for code, _, err in codes:
        assert code == 2, codes
        assert f"--dir is {tmp_path / 'elsewhere'} there and {pair.run.path} in process 0" in err, codes


def answers(port):
    """Return whether a process listens: one that only knocks is left alone."""
    try:
        socket.create_connection(("localhost", port), timeout=1).close()
    except OSError:
        return False
    return True


def assert_stopped_while_waiting(pair, index):
    pair[index].send_signal(signal.SIGTERM)
    code, _, err = pair.end(index)
    assert code == 128 + signal.SIGTERM, err
    assert err == "parity: error: SIGTERM: stopped before all 2 processes were there; nothing was trained\n"
    assert not pair.run.path.exists()


def test_process_0_hears_a_signal_while_it_waits_for_one_that_never_comes(tmp_path):
    with Pair(tmp_path, SMALL, "--deadline", "600", started=[0]) as pair:
        pair.wait_for(lambda: answers(pair.port))
        assert_stopped_while_waiting(pair, 0)


def test_another_process_hears_a_signal_while_it_waits_for_an_answer_that_never_comes(tmp_path):
    waiting = Pair(tmp_path, SMALL, "--deadline", "600", started=[])
    with waiting as pair, socket.create_server(("localhost", pair.port)) as silent:
        pair.processes[1] = pair.start(1)
        silent.settimeout(SECONDS)
        connected, _ = silent.accept()
        with connected:
            assert_stopped_while_waiting(pair, 1)


@pytest.mark.parametrize("held", [0, 1])
def test_a_signal_is_heard_while_a_process_waits_in_a_collective_for_one_that_is_stopped(held, tmp_path):
    with Pair(tmp_path, ENDLESS, "--deadline", "2") as pair:
        pair.wait_for_steps()
        pair[held].send_signal(signal.SIGSTOP)
        time.sleep(1)  # long enough for the other to be within a chunk that cannot end
        pair[1 - held].send_signal(signal.SIGTERM)
        code, _, err = pair.end(1 - held, seconds=20)
        assert code == 128 + signal.SIGTERM, err
        assert err.startswith("parity: SIGTERM: not saved within 2 s, giving up"), err
        pair[held].send_signal(signal.SIGCONT)
        code, _, err = pair.end(held, seconds=20)
    assert code == 3, err
    assert re.match(IS_GONE.format(1 - held, pair[1 - held].pid), err), err


def test_a_process_that_comes_twice_is_refused_and_the_others_are_not_disturbed(tmp_path):
    with Pair(tmp_path, SMALL, "--steps", "4", started=[1]) as pair:
        pair.processes[2] = pair.start(1)
        time.sleep(1)
        pair.processes[0] = pair.start(0)
        codes = sorted(pair.end(index)[::2] for index in (0, 1, 2))
    assert [code for code, _ in codes] == [0, 0, 2], codes
    assert re.fullmatch(r"parity: error: .*(there is a process 1 of 2 already|are there already)\n", codes[2][1])


def test_errors_are_not_ignored_in_several_processes(tmp_path):
    with Pair(tmp_path, SMALL, "--on-error", "continue") as pair:
        codes = [pair.end(index) for index in (0, 1)]
    for code, _, err in codes:
        assert code == 2, codes
        assert "--on-error: continue is for one process" in err, codes

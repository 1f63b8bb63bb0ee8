"""Machines come and go under torchrun: a run goes on with as many processes as there are, on the same curve."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from parity.checkpoints import verify
from parity.runs import RunDirectory
from parity.spec import load, to_toml
from parity.storage import read_lines
from tests.processes.test_torch_together import WITHIN, alone, distance
from tests.support.ports import free_port
from tests.support.several import ROOT

pytestmark = pytest.mark.soak

GIVEN = ["model.hidden=[256,256]", "batch=256", "save.every=5", "execution.chunk=1", "validate_every=500"]
STEPS = 3000
SECONDS = 300


def children(pid):
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
        except (OSError, ValueError):
            continue
    return found


class Machine:
    """A torchrun of one process, as a machine of a cluster has it."""

    def __init__(self, home, name, port, spec, axis):
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1"]
        command += ["--max-restarts", "5", "--rdzv-id", "machines", "--rdzv-backend", "c10d"]
        command += ["--rdzv-endpoint", f"localhost:{port}", "--rdzv-conf", "last_call_timeout=2"]
        command += ["-m", "parity", "train", "--side", "torch", "--spec", str(spec), "--dir", str(home / "run")]
        # without the variable a machine that comes later is never told where the others are (torch 2.13)
        env = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "PYTHONPATH": str(ROOT)}
        env |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        self.out = home / f"{name}.txt"
        with self.out.open("w") as out:
            self.agent = subprocess.Popen(
                [*command, "--fit-mesh", axis], env=env, stdout=out, stderr=subprocess.STDOUT, cwd=home
            )

    def lose(self):
        """End all of it at once, as a machine that loses power."""
        for pid in [*children(self.agent.pid), self.agent.pid]:
            os.kill(pid, signal.SIGKILL)
        self.agent.wait()


@contextmanager
def cluster():
    machines = []
    try:
        yield machines
    finally:
        for one in machines:
            if one.agent.poll() is None:
                one.lose()


@pytest.mark.parametrize("axis", ["data", "fsdp"])
def test_a_machine_is_lost_and_another_comes_and_the_curve_is_that_of_one_device(axis, tmp_path):
    spec, port = tmp_path / "spec.toml", free_port()
    spec.write_text(to_toml(load("mlp-digits", "float64", [*GIVEN, f"steps={STEPS}"])))
    run = RunDirectory(tmp_path / "run")

    def wait_for(condition, machines):
        until = time.monotonic() + SECONDS
        while not condition():
            ended = [one.out.read_text() for one in machines if one.agent.poll() is not None]
            assert not ended, ended
            assert time.monotonic() < until, [one.out.read_text() for one in machines]
            time.sleep(0.1)

    def attempts():
        return read_lines(run.attempts) if run.exists else []

    def steps():
        return len(read_lines(run.steps)) if run.exists else 0

    def meeting():
        with suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
            return True
        return False

    with cluster() as machines:
        machines.append(Machine(tmp_path, "first", port, spec, axis))
        wait_for(meeting, machines)  # where the first is, they meet: torchrun does not outlive it
        machines.append(Machine(tmp_path, "second", port, spec, axis))
        wait_for(lambda: steps() > 30, machines)
        machines.pop().lose()
        wait_for(lambda: len(attempts()) == 2 and steps() > 60, machines)
        machines.append(Machine(tmp_path, "third", port, spec, axis))
        wait_for(lambda: len(attempts()) == 3, machines)
        assert [one.agent.wait(SECONDS) for one in machines] == [0, 0], [one.out.read_text() for one in machines]
    assert [row["topology"].get("processes", 1) for row in attempts()] == [2, 1, 2]
    assert all(row["resumed_from"] for row in attempts()[1:]), "nothing was trained from the start again"
    _, records = alone(GIVEN, STEPS)
    last = {row["step"]: row for row in read_lines(run.steps)}  # of a step that was taken again, the last
    worst = distance(records, [last[step] for step in sorted(last)])
    print(f"{axis}: {worst:.2g} relative over {STEPS} steps, {[row['resumed_from'] for row in attempts()]}")
    assert worst <= WITHIN
    for saved in run.store.scan().whole:
        assert verify(run.checkpoints / str(saved.step)).whole

"""Several processes of one run, started as a launcher does; the tests of the PyTorch side use them."""

import os
import subprocess
import sys
import time
from pathlib import Path

from parity.runs import RunDirectory
from parity.runs.launching import variables
from parity.spec import load, to_toml
from parity.storage import read_lines
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
SECONDS = 120
"""Generous: each of these takes a few seconds, most of them to import."""


class Started:
    """Processes of one run, by their number; a context manager that leaves none."""

    processes: dict[int, subprocess.Popen[str]]
    run: RunDirectory
    seconds = SECONDS

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.processes.values():
            process.kill()
            process.communicate()

    def __getitem__(self, index):
        return self.processes[index]

    def end(self, index, seconds=None):
        """Return how a process ended: its exit code, and what it wrote to both streams."""
        out, err = self[index].communicate(timeout=seconds or self.seconds)
        return self[index].returncode, out, err

    def ends(self, seconds=None):
        return [self.end(index, seconds) for index in self.processes]

    def wait_for(self, condition):
        until = time.monotonic() + self.seconds
        while not condition():
            for index, process in self.processes.items():
                assert process.poll() is None, (index, process.stderr.read())
            assert time.monotonic() < until
            time.sleep(0.02)

    def wait_for_steps(self, step=4):
        self.wait_for(lambda: read_lines(self.run.steps)[step - 1 :])


class Several(Started):
    """The processes of a run; a context manager that leaves none.

    Args:
        home: Where `run` is, and the spec.
        preset: Of the spec.
        overrides: Of its fields.
        count: Processes.
        words: Further options of `parity train`.
        script: A program in place of `python -m parity`.
    """

    def __init__(self, home, preset, overrides, *words, count=2, precision=None, side="torch", script=None):
        self.run, self.home, self.count = RunDirectory(home / "run"), home, count
        self.port = free_port()
        file = home / "spec.toml"
        file.write_text(to_toml(load(preset, precision, overrides)))
        program = [str(script)] if script else ["-m", "parity"]
        self.command = [sys.executable, *program, "train", "--side", side, "--spec", str(file)]
        self.command += ["--dir", str(self.run.path), *words]
        self.processes = {index: self.start(index) for index in range(count)}

    def start(self, index):
        env = {
            **os.environ,
            **self.own(index),
            "PYTHONPATH": str(ROOT),
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
        }
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": self.home}
        return subprocess.Popen(self.command, env={**env, **variables(index, self.count, self.port)}, **pipes)

    def own(self, index):
        """Return variables of one of them alone."""
        return {}


def trained(home, preset, overrides, *words, steps, count=2, precision=None, seconds=SECONDS):
    """Train to the end in several processes; return what process 0 wrote."""
    with Several(home, preset, overrides, "--steps", str(steps), *words, count=count, precision=precision) as several:
        ends = several.ends(seconds)
    assert [(code, err) for code, _, err in ends] == [(0, "")] * count, ends
    return ends[0][1]

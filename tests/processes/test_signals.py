"""Signals: finish the chunk, save, say so, exit with 128 + the signal; the run then goes on from there."""

import signal
import subprocess
import sys
import time

import pytest

from parity.checks.evidence import read_evidence
from parity.curves import read_lines
from parity.specfile import load, to_toml

pytestmark = pytest.mark.processes

SPEC = load("mlp-digits", None, ["model.hidden=[32]", "execution.chunk=2", "steps=100000", "save.every=50000"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
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

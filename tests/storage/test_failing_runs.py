"""Whole runs on a failing disk: they stop or go on, as asked, say so once, and a next start ends at the same bits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parity.curves import read_lines
from parity.rundir import RunDirectory
from parity.specfile import to_toml
from parity.verify import verify
from tests.storage.disk import FAULTS, answers, environment
from tests.storage.driving import SPEC, STEPS

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]

ORDERS = {
    "torch": [
        "full:steps.jsonl:1:1:continue",
        "failing:steps.jsonl:1:1:stop",
        "failing-once:steps.jsonl:1:1:continue",
        "failing-once:validations:1:1:continue",
        "full:*:1:9:stop",
        "full-once:*:5:9:continue",
        "failing:*:2:9:continue",
        "failing-once:*:7:9:stop",
        "read-only:*:4:17:continue",
        "unreadable-once:*:3:29:stop",
    ],
    "jax": ["full:steps.jsonl:2:9:continue", "failing-once:*:9:501:stop", "full:*:111:701:continue"],
}
"""As in driving.py. Every operation on the records, and every so many of all others; tests/soak has the rest."""

LEAST = {"torch": 150, "jax": 4}

DRAFTS = {"torch": "checkpoints/.draft-{}-", "jax": "checkpoints/{}.orbax"}
"""Where the save of a step writes first: only that save fails."""


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_run_that_lost_its_disk_ends_with_the_same_bits_on_a_sound_one(side):
    runs = answers("driving", side, "{}", *ORDERS[side])
    faults = [(run["order"], run["n"], run["operation"], run["error"], run["wrong"]) for run in runs if run["wrong"]]
    assert not faults, f"{len(faults)} of {len(runs)}, the first: {faults[:5]}"
    assert sum(run["fired"] > 0 for run in runs) >= LEAST[side]
    assert any(run["error"] for run in runs), "no run was stopped"
    assert any(run["failures"] for run in runs), "no run went on"


@pytest.mark.parametrize("side", ["jax", "torch"])
@pytest.mark.parametrize(
    ("step", "on_error", "whole"), [(4, "stop", [2]), (4, "continue", [6, 8]), (STEPS, "stop", [4, 6])]
)
def test_a_failed_save_is_told_at_the_next_one_or_the_end_with_exit_3(side, step, on_error, whole, tmp_path):
    spec, run = tmp_path / "spec.toml", RunDirectory(tmp_path / "run")
    spec.write_text(to_toml(SPEC))
    command = [sys.executable, "-m", "parity", "train", "--side", side, "--spec", str(spec), "--dir", str(run.path)]
    env = environment(FAULTS["full"], run.path, part=DRAFTS[side].format(step), n=3)
    done = subprocess.run(
        [*command, "--on-error", on_error], env=env, cwd=ROOT, capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 3, done.stderr
    line = only_error(done.stderr)
    assert line.startswith(f"parity: error: step {step} could not be saved: ")
    assert "No space left on device" in line
    assert [saved.step for saved in run.scan().whole] == whole
    assert all(verify(run.checkpoints / str(step)).whole for step in whole)
    steps = [row["step"] for row in read_lines(run.steps)]
    if on_error == "continue":
        told = done.stdout.index("step 4 could not be saved: ")
        assert "going on, older checkpoints are untouched" in done.stdout[told : done.stdout.index("done: step 8")]
    assert steps == list(range(1, (min(step + 2, STEPS) if on_error == "stop" else STEPS) + 1))


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_records_that_cannot_be_written_exit_with_3_and_one_line(side, tmp_path):
    spec, run = tmp_path / "spec.toml", RunDirectory(tmp_path / "run")
    spec.write_text(to_toml(SPEC))
    command = [sys.executable, "-m", "parity", "train", "--side", side, "--spec", str(spec), "--dir", str(run.path)]
    command += ["--set", "save.every=8"]  # a save in the background would look at the records too
    env = environment(FAULTS["full"], run.path, part="steps.jsonl", n=4)
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert done.returncode == 3, done.stderr
    line = only_error(done.stderr)
    assert "could not be saved: its records: [Errno 28] No space left on device" in line
    assert str(run.steps) in line
    lines = run.steps.read_bytes().splitlines(keepends=True)
    whole = [json.loads(line)["step"] for line in lines if line.endswith(b"\n")]
    assert whole in ([1, 2], [1, 2, 3])  # the disk took a part of the second chunk


def only_error(text):
    """Return the one line that tells what went wrong."""
    (line,) = [line for line in text.splitlines() if line.startswith("parity: error: ")]
    assert "Traceback" not in text, text
    return line

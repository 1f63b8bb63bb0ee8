"""Whole runs on a failing disk: they stop or go on, as asked, say so once, and a next start ends at the same bits."""

import errno
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parity import sides
from parity.checkpoints import commit, verify
from parity.errors import DivergedError
from parity.runs import Observers, ProcessOptions, RunDirectory
from parity.runs import train as train_run
from parity.spec import to_toml
from parity.storage import read_lines
from tests.storage.disk import FAULTS, SYNCS, Fault, answers, environment
from tests.storage.driving import SPEC, STEPS
from tests.storage.saving import judge_message

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
        f"unreadable-once:checkpoints/{STEPS}:1:1:stop",
    ],
    "jax": ["full:steps.jsonl:2:9:continue", "failing-once:*:9:501:stop", "full:*:111:701:continue"],
}
"""As in driving.py. Every operation on the records, every look at the last checkpoint (the last ones come when all is
saved), and every so many of all others; tests/soak has the rest."""

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
    run = RunDirectory(tmp_path / "run")
    env = environment(FAULTS["full"], run.path, part=DRAFTS[side].format(step), n=3)
    done = train(side, run, env, "--on-error", on_error)

    assert done.returncode == 3, done.stderr
    line = only_error(done.stderr)
    assert line.startswith(f"parity: error: step {step} could not be saved: ")
    assert line.endswith(": No space left on device")
    assert not judge_message(line, run.path)
    assert [saved.step for saved in run.store.scan().whole] == whole
    assert all(verify(run.checkpoints / str(step)).whole for step in whole)
    steps = [row["step"] for row in read_lines(run.steps)]
    if on_error == "continue":
        told = done.stdout.index("step 4 could not be saved: ")
        assert "continuing, older checkpoints are untouched" in done.stdout[told : done.stdout.index("done: step 8")]
    assert steps == list(range(1, (min(step + 2, STEPS) if on_error == "stop" else STEPS) + 1))


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_records_that_cannot_be_written_exit_with_3_and_one_line(side, tmp_path):
    run = RunDirectory(tmp_path / "run")
    env = environment(FAULTS["full"], run.path, part="steps.jsonl", n=4)
    done = train(side, run, env, "--set", "save.every=8")  # a save in the background would look at the records too

    assert done.returncode == 3, done.stderr
    line = only_error(done.stderr)
    assert line.endswith(f" could not be saved: its records: write {run.steps}: No space left on device")
    lines = run.steps.read_bytes().splitlines(keepends=True)
    whole = [json.loads(line)["step"] for line in lines if line.endswith(b"\n")]
    assert whole in ([1, 2], [1, 2, 3])  # the disk took a part of the second chunk


AFTER = [("torch", "latest.json", 3, 2), ("torch", ".removed-2-", 2, 6)]
AFTER += [("jax", "latest.json", 3, 2), ("jax", ".removed-2-", 2, 6)]
"""Side, what is done after a save, which operation on it fails, and the step that was saved before."""


@pytest.mark.parametrize("on_error", ["stop", "continue"])
@pytest.mark.parametrize(("side", "part", "n", "step"), AFTER)
def test_what_fails_after_a_whole_save_is_told_as_that_and_exits_with_3(side, part, n, step, on_error, tmp_path):
    run = RunDirectory(tmp_path / "run")
    env = environment(FAULTS["failing-once"], run.path, part=part, n=n)
    done = train(side, run, env, "--on-error", on_error)

    assert done.returncode == 3, done.stderr
    line = only_error(done.stderr)
    assert line.startswith(f"parity: error: step {step} is saved, but work after the save failed: ")
    assert not judge_message(line, run.path)
    assert part in line
    whole = [saved.step for saved in run.store.scan().whole]
    assert step in whole if on_error == "stop" else whole == [6, 8]
    if on_error == "continue":
        assert f"{line.removeprefix('parity: error: ')}; continuing\n" in done.stdout
        assert "done: step 8, loss " in done.stdout


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_failed_fsync_of_an_array_is_one_line_and_no_traceback(n, tmp_path):
    run = RunDirectory(tmp_path / "run")
    syncs = Fault(errno.EIO, persistent=False, kinds=SYNCS)
    done = train("jax", run, environment(syncs, run.path, part="/d/", n=n))
    assert done.returncode == 3, done.stderr
    line = only_error(done.stderr)
    assert re.match(r"parity: error: step [24] could not be saved: fsync ", line)
    assert not judge_message(line, run.path)


@pytest.mark.parametrize("on_error", ["stop", "continue"])
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_run_that_diverges_beside_a_failing_save_names_the_last_checkpoint_that_is_whole(
    side, on_error, tmp_path, monkeypatch
):
    def failing(draft, final, known):
        if known.step == 4:
            raise OSError(errno.ENOSPC, "No space left on device", str(draft))
        return commit(draft, final, known)

    monkeypatch.setattr("parity.checkpoints.saving.commit", failing)
    monkeypatch.setattr(
        "parity.runs.loop.Loop._fault", lambda self, record: "loss is nan" if record.step == 6 else None
    )
    said = []
    with pytest.raises(DivergedError, match=r"step 6: loss is nan;.* the last checkpoint is of step 2$") as caught:
        train_run(
            *(sides.load(side), side, SPEC, tmp_path / "run"),
            ProcessOptions(on_error=on_error),
            Observers(log=said.append),
        )
    told = [str(caught.value), *said]
    assert sum("step 4 could not be saved: " in line for line in told) == 1
    assert [saved.step for saved in RunDirectory(tmp_path / "run").store.scan().whole] == [2]


def train(side, run, env, *options):
    """Run `parity train` in a process of its own."""
    spec = run.path.with_name("spec.toml")
    spec.write_text(to_toml(SPEC))
    command = [sys.executable, "-m", "parity", "train", "--side", side, "--spec", str(spec), "--dir", str(run.path)]
    return subprocess.run([*command, *options], env=env, cwd=ROOT, capture_output=True, text=True, timeout=120)


def only_error(text):
    """Return the one line that tells what went wrong; nothing else is on stderr."""
    (line,) = text.splitlines()
    assert line.startswith("parity: error: "), line
    return line

"""A trainer of somebody else goes through the suite, where neither RunSpec nor a framework can be imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity.contract import RunIdentity, Trainer
from parity.errors import SpecMismatchError
from parity.results import read_result
from parity.runs import QUIET, RunDirectory, train
from parity.storage import read_lines
from tests.foreign.alone import REFUSED
from tests.foreign.trainer import FAULTS, Config, NumpySide
from tests.trackers.reading import config_of, events_of, history_of, newest_offline

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]


def answer(*arguments, home=None):
    """Return what an interpreter without the twins answers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_") and name != "NETRC"}
    env = {**kept, "PYTHONPATH": str(ROOT), **({"HOME": str(home), "WANDB_MODE": "offline"} if home else {})}
    command = [sys.executable, "-m", "tests.foreign.alone", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check_of(found, tmp_path):
    """Return the record, once every report has shown its verdict and the document was read back."""
    (check,) = found["document"]["checks"]
    file = tmp_path / "check.json"
    file.write_text(json.dumps(found["document"]))
    (record,) = read_result(file).records
    assert record.verdict == check["verdict"]
    for report in ("terminal", "markdown", "html"):
        assert check["verdict"] in found[report]
        assert "numpy" in found[report]
        for suspect in record.suspects:
            assert suspect in found[report]
    return record


@pytest.mark.breaks_first
def test_what_must_not_be_imported_cannot_be():
    assert answer("refused") == {name: f"{name} is refused in this interpreter" for name in REFUSED}


def test_it_is_a_trainer():
    assert isinstance(NumpySide().build(Config()), Trainer)


@pytest.mark.breaks_first("here")
@pytest.mark.parametrize("how", ["here", "processes"])
def test_it_resumes_bitwise(how, tmp_path):
    record = check_of(answer("resume", tmp_path / "runs", how), tmp_path)
    assert (record.verdict, record.notes) == ("holds", ())
    assert record.steps_compared == Config().steps
    assert record.sides == ("numpy",)
    starts = read_lines(tmp_path / "runs" / "resumed" / "attempts.jsonl")
    assert [start["resumed_from"] for start in starts] == [None, 16, 24]
    assert len({start["pid"] for start in starts}) == (3 if how == "processes" else 1)


@pytest.mark.breaks_first("momentum lost-here")
@pytest.mark.parametrize("how", ["here", "processes"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(fault, how, tmp_path):
    record = check_of(answer("resume", tmp_path / "runs", how, fault), tmp_path)
    assert record.verdict == "broken"
    assert record.suspects[0] == FAULTS[fault][1]


def test_its_checkpoints_follow_the_policy(tmp_path):
    record = check_of(answer("policy"), tmp_path)
    assert (record.verdict, record.notes) == ("holds", ())
    assert record.steps_compared > 250


def test_a_wrong_policy_is_found(tmp_path):
    record = check_of(answer("policy", "newest only"), tmp_path)
    assert record.verdict == "broken"
    assert "policy.metric" in record.suspects


def test_trackers_show_the_curve_of_its_records(tmp_path):
    lines = answer("track", tmp_path, home=tmp_path)["lines"]
    assert not [line for line in lines if line.startswith("warning")]
    steps = list(range(1, Config().steps + 1))
    for shown in (events_of(tmp_path / "run"), history_of(newest_offline(tmp_path / "run"))):
        assert [step for step, _ in shown["train/loss"]] == steps
        assert [step for step, _ in shown["validation/loss"]] == steps[7::8]
    assert config_of(newest_offline(tmp_path / "run"))["optimizer"] == {"lr": 0.05}


def test_its_run_is_known_by_its_identity(tmp_path):
    train(NumpySide(), "numpy", Config(steps=8), tmp_path, observers=QUIET)
    outcome = train(NumpySide(), "numpy", Config(steps=16), tmp_path, observers=QUIET)
    assert (outcome.resumed_from, outcome.step) == (8, 16)
    with pytest.raises(SpecMismatchError, match=r"optimizer\.lr: run has 0\.05, asked for 0\.1"):
        train(NumpySide(), "numpy", Config(steps=24, lr=0.1), tmp_path, observers=QUIET)
    assert RunDirectory(tmp_path).spec_hash() == NumpySide().build(Config()).spec_hash


def test_records_are_repaired_by_their_writer_alone(tmp_path, monkeypatch):
    """A process that found no run may be second: then the records that appear are being written by another one."""
    locked = []
    monkeypatch.setattr(RunDirectory, "repair", lambda run: locked.append((run.path / "lock").exists()) or [])
    train(NumpySide(), "numpy", Config(steps=8), tmp_path / "run", observers=QUIET)
    assert locked == []
    train(NumpySide(), "numpy", Config(steps=16), tmp_path / "run", observers=QUIET)
    assert locked == [True]


def test_an_identity_reads_fields_of_an_earlier_version_by_its_own_parser():
    old = RunIdentity.of({"seed": 1})
    new = RunIdentity(text="", fields={"seed": 1, "lr": 0.1}, parse=lambda text: {"lr": 0.1, **old.parse(text)})
    assert new.differences(old.text) == {}
    assert RunIdentity.of({"seed": 1, "lr": 0.1}).differences(old.text) == {"lr": (None, 0.1)}

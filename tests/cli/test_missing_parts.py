"""A run that lost its checkpoints, its records or its spec is never continued, or started over, without a word."""

import json
import shutil

import pytest

from parity.cli import main
from parity.contract import StepRecord, read_records, record_line, splice
from parity.runs import RunDirectory
from parity.storage import append, read_lines
from tests.support.small import record

SMALL = ["--set", "model.hidden=[16]", "--set", "execution.chunk=5", "--set", "save.every=10"]
SMALL += ["--set", "validate_every=10"]


def train(run, *extra, side="torch", steps=33):
    command = ["train", "--side", side, "--spec", "mlp-digits", "--dir", str(run), "--steps", str(steps)]
    return main([*command, *SMALL, *extra])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a run of 30 steps with checkpoints of steps 10, 20 and 30, and its records."""
    path = tmp_path_factory.mktemp("trained") / "run"
    assert train(path, steps=30) == 0
    return path


@pytest.fixture
def run(trained, tmp_path):
    return RunDirectory(shutil.copytree(trained, tmp_path / "run"))


def gone(run):
    shutil.rmtree(run.checkpoints)


def emptied(run):
    gone(run)
    run.checkpoints.mkdir()


def no_pointers(run):
    emptied(run)
    for name in ("latest.json", "best.json"):
        (run.path / name).unlink()


def no_pointers_after_a_resume(run):
    no_pointers(run)
    append(run.attempts, [json.dumps({"attempt": 1, "resumed_from": 10})])
    run.steps.unlink()


LOST_CHECKPOINTS = {
    gone: "checkpoints/ holds none, though latest.json names step 30",
    emptied: "checkpoints/ holds none, though latest.json names step 30",
    no_pointers: "checkpoints/ holds none, though 21 steps with a save every 10 are recorded",
    no_pointers_after_a_resume: "checkpoints/ holds none, though process start 1 resumed from step 10",
}


def tree(path):
    """Return every file with its bytes, but the lock."""
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file() and p.name != "lock"}


@pytest.mark.parametrize("harm", LOST_CHECKPOINTS)
def test_a_run_whose_checkpoints_are_gone_is_refused_and_untouched(harm, run, capsys):
    harm(run)
    before = tree(run.path)
    assert train(run.path) == 2
    err = capsys.readouterr().err
    assert LOST_CHECKPOINTS[harm] in err
    assert "--resume never starts over on purpose" in err
    assert tree(run.path) == before


@pytest.mark.parametrize("harm", LOST_CHECKPOINTS)
def test_it_is_started_over_on_purpose_and_nothing_is_deleted(harm, run, capsys):
    harm(run)
    records = run.steps.read_bytes() if run.steps.exists() else None
    assert train(run.path, "--resume", "never") == 0
    out = capsys.readouterr().out
    attempt = len(read_lines(run.attempts)) - 1
    assert f"to abandoned/{attempt}: the run starts over" in out
    assert "starting from step 0" in out
    home = run.path / "abandoned" / str(attempt)
    if records is not None:
        assert (home / "steps.jsonl").read_bytes() == records
    assert sorted(splice(read_records(run.steps, StepRecord))) == list(range(1, 34))
    assert train(run.path, steps=35) == 0
    assert "resumed from step 33 (latest)" in capsys.readouterr().out


def test_a_run_that_was_killed_before_its_first_save_starts_over_by_itself(tmp_path, capsys):
    path = tmp_path / "run"
    assert train(path, steps=5) == 0
    run = RunDirectory(path)
    gone(run)
    for name in ("latest.json", "best.json"):
        (path / name).unlink(missing_ok=True)
    capsys.readouterr()
    assert train(path, steps=12) == 0
    assert "starting from step 0" in capsys.readouterr().out


def cut(file, count):
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:count]))


def hole(run):
    lines = run.steps.read_text().splitlines(keepends=True)
    run.steps.write_text("".join([*lines[:4], "\0" * 20 + "\n", *lines[6:]]))


LOST_RECORDS = {
    "steps.jsonl is missing": lambda run: run.steps.unlink(),
    "steps.jsonl is empty": lambda run: run.steps.write_text(""),
    "steps.jsonl lacks the records of steps 13 to 30": lambda run: cut(run.steps, 12),
    "steps.jsonl lacks the records of step 30": lambda run: cut(run.steps, 29),
    "steps.jsonl lacks the records of steps 5 to 6": hole,
    "validations.jsonl lacks step 10": lambda run: run.validations.unlink(),
    "validations.jsonl lacks step 30": lambda run: cut(run.validations, 2),
    "attempts.jsonl lacks attempt 0, of which there are records": lambda run: run.attempts.unlink(),
}


@pytest.mark.parametrize("message", LOST_RECORDS)
def test_records_that_are_missing_while_checkpoints_stand_are_refused(message, run, capsys):
    LOST_RECORDS[message](run)
    before = tree(run.path)
    for resume in ("auto", "latest", "best"):
        assert train(run.path, "--resume", resume) == 2
        err = capsys.readouterr().err
        assert message in err
        assert "--resume 30 continues without them; --resume never starts over on purpose" in err
    kept = {name: data for name, data in tree(run.path).items() if not name.endswith(".damaged")}
    assert set(kept) == set(before)
    assert all(kept[name] == data for name, data in before.items() if name != "steps.jsonl"), "only mended"


@pytest.mark.takes_seconds("steps.jsonl is missing")
@pytest.mark.parametrize("message", LOST_RECORDS)
def test_a_step_that_is_named_is_continued_from_without_its_records(message, run, capsys):
    LOST_RECORDS[message](run)
    assert train(run.path, "--resume", "30", steps=42) == 0
    out = capsys.readouterr().out
    assert "records up to step 30 are incomplete: continuing without them" in out
    assert "resumed from step 30" in out
    assert train(run.path, steps=44) == 0, "what was accepted once is not asked again"
    assert "resumed from step 42 (latest)" in capsys.readouterr().out
    curve = splice(read_records(run.steps, StepRecord))
    assert set(range(31, 45)) <= set(curve)
    assert curve[31].attempt == max(1, *(row["attempt"] - 1 for row in read_lines(run.attempts)))


NONSENSE = {
    "negative step": (
        lambda run: append(run.steps, [record_line(record(-5))]),
        "step -5 of attempt 0 makes no sense",
    ),
    "huge step": (lambda run: append(run.steps, [record_line(record(10**20))]), "makes no sense"),
    "not a record": (lambda run: append(run.steps, ['{"a": 1}']), "steps.jsonl: not a StepRecord: {'a': 1}"),
    "a step that is text": (
        lambda run: append(run.steps, [record_line(record(31)).replace("31", '"31"', 1)]),
        "steps.jsonl: not a StepRecord",
    ),
    "validation": (lambda run: append(run.validations, ["{}"]), "validations.jsonl: not a Validation: {}"),
    "attempt": (lambda run: append(run.attempts, ['{"attempt": "x"}']), "attempts.jsonl row 2 makes no sense"),
    "attempt twice": (
        lambda run: append(run.attempts, ['{"attempt": 0, "resumed_from": null}']),
        "attempts.jsonl row 2 makes no sense",
    ),
    "attempt from nowhere": (
        lambda run: append(run.attempts, ['{"attempt": 1, "resumed_from": -7}']),
        "attempts.jsonl row 2 makes no sense",
    ),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_record_lines_that_make_no_sense_are_refused_and_named(name, run, capsys):
    harm, message = NONSENSE[name]
    harm(run)
    before = tree(run.path)
    assert train(run.path) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert tree(run.path) == before


def test_a_healthy_run_is_not_started_over(run, capsys):
    before = tree(run.path)
    assert train(run.path, "--resume", "never") == 2
    assert "holds a run already; choose another --dir, or --resume auto" in capsys.readouterr().err
    assert tree(run.path) == before


@pytest.mark.parametrize(
    "command", [["train"], ["verify"], ["path", "best"], ["export", "best"], ["metric", "10", "0.5"], ["simulate"]]
)
def test_a_missing_spec_is_named(command, run, tmp_path, capsys):
    (run.path / "spec.toml").unlink()
    before = tree(run.path)
    words = {
        "verify": ["verify", run.path],
        "path": ["path", run.path, "best"],
        "export": ["export", run.path, "best", tmp_path / "out"],
        "metric": ["metric", run.path, "10", "0.5"],
        "simulate": ["policy", "simulate", run.path],
    }
    code = train(run.path) if command == ["train"] else main([str(word) for word in words[command[0]]])
    assert code == 2
    assert f"{run.path / 'spec.toml'} is missing, though records or checkpoints of a run" in capsys.readouterr().err
    assert tree(run.path) == before


def test_a_missing_seal_is_named(run, capsys):
    (run.checkpoints / "30" / "seal.json").unlink()
    assert main(["verify", str(run.path)]) == 4
    assert "seal.json is missing" in " ".join(capsys.readouterr().out.split())
    assert main(["path", str(run.path), "latest"]) == 2
    assert "seal.json is missing" in capsys.readouterr().err


def test_verifying_a_run_without_checkpoints_says_so(run, capsys):
    emptied(run)
    assert main(["verify", str(run.path)]) == 1
    out, err = capsys.readouterr()
    assert "latest.json names it" in out
    assert "holds no checkpoint" in err
    for name in ("latest.json", "best.json"):
        (run.path / name).unlink()
    assert main(["verify", str(run.path)]) == 5
    assert "holds no checkpoint" in capsys.readouterr().err

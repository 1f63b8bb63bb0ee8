"""Only whole checkpoints count, pointers are never half written, and a directory belongs to one run."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parity import rundir
from parity.curves import append, encode, read_lines, read_records
from parity.errors import CheckpointError, RunDirectoryError, SpecMismatchError
from parity.policy import Saved
from parity.durable import replace_file
from parity.rundir import RunDirectory, Scan
from parity.spec import preset
from parity.specfile import to_toml
from parity.trainer import StepRecord
from tests.parity.small import record

SPEC = preset("mlp-digits")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    opened = RunDirectory(tmp_path / "run")
    opened.open(SPEC, "torch")
    return opened


def checkpoints(run: RunDirectory, *names: str) -> None:
    for name in names:
        (run.checkpoints / name).mkdir()


def examine(path: Path) -> float | None:
    """Take metrics from the file `metric`; a checkpoint with a file `broken` does not count."""
    if (path / "broken").exists():
        raise CheckpointError("its seal is broken")
    return float((path / "metric").read_text()) if (path / "metric").exists() else None


def test_a_new_run_writes_down_its_spec_and_side(run: RunDirectory) -> None:
    assert run.exists
    assert run.spec() == SPEC
    assert (run.path / "side").read_text() == "torch\n"
    assert list(run.checkpoints.iterdir()) == []


def test_a_run_is_opened_again_and_takes_over_the_free_fields(run: RunDirectory) -> None:
    longer = replace(SPEC, steps=5000, name="longer", validate_every=7)
    RunDirectory(run.path).open(longer, "torch")
    assert run.spec() == longer


def test_a_run_of_another_meaning_is_refused_and_stays_as_it_was(run: RunDirectory) -> None:
    other = replace(SPEC, seed=1, steps=5, optimizer=replace(SPEC.optimizer, lr=0.5))
    with pytest.raises(SpecMismatchError, match="seed: run has 0, asked for 1") as caught:
        run.open(other, "torch")
    assert caught.value.differences == {"seed": (0, 1), "optimizer.lr": (1e-3, 0.5)}
    assert run.spec() == SPEC


def test_the_run_of_the_other_side_is_refused(run: RunDirectory) -> None:
    with pytest.raises(RunDirectoryError, match="holds a run of side 'torch', not 'jax'; choose another --dir"):
        run.open(SPEC, "jax")


def test_a_directory_with_something_else_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunDirectoryError, match="is not empty and holds no run; choose another --dir"):
        RunDirectory(tmp_path).open(SPEC, "torch")
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    RunDirectory(tmp_path).open(SPEC, "jax")
    assert RunDirectory(tmp_path).exists


def test_opening_mends_torn_records(run: RunDirectory) -> None:
    append(run.steps, [encode(record(1))])
    with run.steps.open("a") as file:
        file.write('{"attempt": 0, "st')
    run.open(SPEC, "torch")
    append(run.steps, [encode(record(2))])
    assert [row.step for row in read_records(run.steps, StepRecord)] == [1, 2]


def test_attempts_are_counted(run: RunDirectory) -> None:
    assert run.next_attempt() == 0
    run.begin_attempt(0, None, {"devices": 1})
    run.begin_attempt(1, 100, {"devices": 1})
    assert run.next_attempt() == 2
    rows = read_lines(run.attempts)
    assert [row["resumed_from"] for row in rows] == [None, 100]
    assert rows[0]["topology"] == {"devices": 1}
    assert rows[0]["pid"] == os.getpid()


def test_a_scan_tells_whole_unfinished_and_damaged_apart_with_the_reason(run: RunDirectory) -> None:
    checkpoints(run, "100", "20", "30", ".draft-40-1", "50.orbax-checkpoint-tmp-0", "notes")
    (run.checkpoints / "30" / "broken").touch()
    (run.checkpoints / "20" / "metric").write_text("0.75")
    scan = run.scan(examine)
    assert scan.whole == [Saved(step=20, metric=0.75), Saved(step=100, metric=None)]
    assert scan.damaged == [("30", "its seal is broken")]
    assert {name for name, _ in scan.unfinished} == {".draft-40-1", "50.orbax-checkpoint-tmp-0", "notes"}
    assert {why for _, why in scan.unfinished} == {"has not got its final name: the save was cut short"}


@pytest.mark.parametrize("name", ["²", "٣", "007", "-5", "5 ", "1e3"])
def test_a_name_that_is_no_plain_step_number_never_counts(run: RunDirectory, name: str) -> None:
    """`"²".isdigit()` holds and `int("²")` raises; `007` would be looked for as `7`."""
    checkpoints(run, name)
    assert run.scan(examine).whole == []


def test_a_scan_of_an_absent_directory_finds_nothing(tmp_path: Path) -> None:
    assert RunDirectory(tmp_path / "none").scan(examine) == Scan(whole=[])


FOUND = Scan(
    whole=[Saved(step=10, metric=0.9), Saved(step=20, metric=0.9), Saved(step=30, metric=0.1)],
    unfinished=[(".draft-40-1", "cut short")],
    damaged=[("50", "holds step 7")],
)


@pytest.mark.parametrize(
    ("which", "metric", "step"),
    [("latest", "accuracy", 30), ("best", "accuracy", 20), ("best", "loss", 30), (10, "loss", 10)],
)
def test_the_chosen_checkpoint_is_the_policy_s(run: RunDirectory, which: Any, metric: str, step: int) -> None:
    assert run.choose(FOUND, which, metric) == step


@pytest.mark.parametrize("which", ["latest", "best", 50])
def test_when_nothing_can_be_chosen_the_error_lists_what_was_found(run: RunDirectory, which: Any) -> None:
    scan = Scan(whole=[], unfinished=FOUND.unfinished, damaged=FOUND.damaged)
    with pytest.raises(
        CheckpointError, match=r"no whole .*checkpoint.* \(whole steps: none\)\n  50: holds step 7"
    ) as caught:
        run.choose(scan, which, "loss")
    assert caught.value.found == [("50", "holds step 7"), (".draft-40-1", "cut short")]


def test_the_error_names_the_steps_that_are_there(run: RunDirectory) -> None:
    with pytest.raises(CheckpointError, match=r"no whole checkpoint of step 50 in .* \(whole steps: 10, 20, 30\)"):
        run.choose(FOUND, 50, "loss")


def test_newer_checkpoints_and_records_go_to_abandoned(run: RunDirectory) -> None:
    checkpoints(run, "5", "10", "15", "20", ".draft-25-1")
    lines = [encode(record(step, loss=float("nan"))) for step in (5, 10, 11, 20)]
    append(run.steps, lines)
    assert sorted(run.abandon_after(10, 3, records=True)) == ["15", "20"]
    assert {entry.name for entry in run.checkpoints.iterdir()} == {"5", "10", ".draft-25-1"}
    abandoned = run.path / "abandoned" / "3"
    assert {entry.name for entry in abandoned.iterdir()} == {"15", "20", "steps.jsonl"}
    assert run.steps.read_text().splitlines() == lines[:2]
    assert (abandoned / "steps.jsonl").read_text().splitlines() == lines[2:]


def test_records_stay_when_a_kill_left_them_behind_the_newest_checkpoint(run: RunDirectory) -> None:
    append(run.steps, [encode(record(step)) for step in (5, 10, 11)])
    assert run.abandon_after(10, 1, records=False) == []
    assert len(read_lines(run.steps)) == 3
    assert not (run.path / "abandoned").exists()


def test_pointers_name_the_latest_and_the_best(run: RunDirectory) -> None:
    run.point(FOUND, "accuracy")
    latest, best = (json.loads((run.path / f"{name}.json").read_text()) for name in ("latest", "best"))
    assert latest == {"step": 30, "metric": 0.1, "path": "checkpoints/30"}
    assert best == {"step": 20, "metric": 0.9, "path": "checkpoints/20"}


def test_a_pointer_to_nothing_is_removed(run: RunDirectory) -> None:
    run.point(FOUND, "accuracy")
    run.point(Scan(whole=[Saved(step=30, metric=None)]), "accuracy")
    assert (run.path / "latest.json").exists()
    assert not (run.path / "best.json").exists()


@pytest.mark.parametrize("metric", [float("nan"), float("inf"), None])
def test_pointers_are_valid_json_whatever_the_metric(run: RunDirectory, metric: float | None) -> None:
    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    run.point(Scan(whole=[Saved(step=30, metric=metric)]), "loss")
    for file in run.path.glob("*.json"):
        assert json.loads(file.read_text(), parse_constant=refuse)["step"] == 30


def test_an_unchanged_pointer_is_not_written_again(run: RunDirectory) -> None:
    run.point(FOUND, "accuracy")
    before = (run.path / "latest.json").stat().st_ino
    run.point(FOUND, "accuracy")
    assert (run.path / "latest.json").stat().st_ino == before


@pytest.mark.parametrize("stage", ["fsync", "rename"])
def test_a_pointer_is_the_old_one_until_the_new_one_is_whole(
    run: RunDirectory, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash at any call before the rename leaves the old text; and the file is synced before it is renamed."""
    run.point(FOUND, "accuracy")
    old = (run.path / "latest.json").read_text()

    def crash(*_: Any) -> None:
        raise RuntimeError("the machine went down")

    monkeypatch.setattr(*((rundir.os, "fsync") if stage == "fsync" else (Path, "rename")), crash)
    with pytest.raises(RuntimeError, match="the machine went down"):
        run.point(Scan(whole=[Saved(step=99, metric=None)]), "accuracy")
    assert (run.path / "latest.json").read_text() == old


def test_a_replacement_is_synced_renamed_and_its_directory_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    sync, rename = os.fsync, Path.rename

    def fsync(handle: int) -> None:
        calls.append("directory" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        sync(handle)

    def renamed(self: Path, target: Path) -> Path:
        calls.append("rename")
        return rename(self, target)

    monkeypatch.setattr(rundir.os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", renamed)
    replace_file(tmp_path / "latest.json", "new")
    assert calls == ["file", "rename", "directory"]
    assert (tmp_path / "latest.json").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_start_cut_short_before_the_spec_was_written_can_be_started_again(tmp_path: Path) -> None:
    """Nothing of the user's is in such a directory: only our own empty folder and side file."""
    run = RunDirectory(tmp_path / "run")
    run.checkpoints.mkdir(parents=True)
    replace_file(run.path / "side", "torch\n")
    run.open(SPEC, "torch")
    assert (run.path / "spec.toml").read_text() == to_toml(SPEC)

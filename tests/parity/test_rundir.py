"""Only whole checkpoints count, pointers are never half written, and a directory belongs to one run."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parity.checkpoints import Scan, Seal, seal
from parity.contract import RunPlan, StepRecord, read_records, record_line
from parity.errors import CheckpointError, RunDirectoryError, SpecMismatchError, UnsealedError
from parity.policy import Saved
from parity.runs import RunDirectory
from parity.spec import from_toml, identity_of, preset, to_toml
from parity.storage import append, read_lines, replace_file
from tests.support.small import record

SPEC = preset("mlp-digits")
ACCURACY, LOSS = SPEC.plan, replace(SPEC, metric="loss").plan


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    opened = RunDirectory(tmp_path / "run")
    opened.open(identity_of(SPEC), "torch")
    return opened


def checkpoints(run: RunDirectory, *names: str) -> None:
    for name in names:
        (run.checkpoints / name).mkdir()


def examine(path: Path) -> Seal:
    """Take metrics from the file `metric`; a file `broken` or `foreign` says what is wrong with the seal."""
    if (path / "broken").exists():
        raise CheckpointError("its seal is broken")
    if (path / "foreign").exists():
        raise UnsealedError("it has no seal")
    metric = float((path / "metric").read_text()) if (path / "metric").exists() else None
    return Seal(step=int(path.name), metric=metric, saved_at=0.0, side="torch", spec_hash="")


def sealed(run: RunDirectory, step: int, metric: float | None = None, saved_at: float = 0.0) -> Path:
    """Make a whole checkpoint with one file."""
    draft = run.checkpoints / ".draft-of-test"
    draft.mkdir()
    (draft / "state.pt").write_bytes(b"weights")
    final = run.checkpoints / str(step)
    seal.commit(draft, final, Seal(step=step, metric=metric, saved_at=saved_at, side="torch", spec_hash=""))
    return final


def test_a_new_run_writes_down_its_spec_and_side(run: RunDirectory) -> None:
    assert run.exists
    assert from_toml(run.identity_text()) == SPEC
    assert (run.path / "side").read_text() == "torch\n"
    assert list(run.checkpoints.iterdir()) == []


def test_a_run_is_opened_again_and_takes_over_the_free_fields(run: RunDirectory) -> None:
    longer = replace(SPEC, steps=5000, name="longer", validate_every=7)
    RunDirectory(run.path).open(identity_of(longer), "torch")
    assert from_toml(run.identity_text()) == longer


def test_a_run_that_an_earlier_version_wrote_lacks_fields_and_is_the_same_run(run: RunDirectory) -> None:
    """What was added since has its default: a field that may not change (clip_norm), and one that may."""
    file = run.path / "spec.toml"
    lines = file.read_text().splitlines(keepends=True)
    old = [line for line in lines if not line.startswith(("clip_norm", "save_priority"))]
    assert len(old) == len(lines) - 2
    file.write_text("".join(old))
    with pytest.raises(SpecMismatchError) as caught:
        run.open(identity_of(replace(SPEC, clip_norm=2.0)), "torch")
    assert caught.value.differences == {"clip_norm": (1.0, 2.0)}
    run.open(identity_of(SPEC), "torch")
    assert run.identity_text() == to_toml(SPEC)


def test_a_run_of_another_meaning_is_refused_and_stays_as_it_was(run: RunDirectory) -> None:
    other = replace(SPEC, seed=1, steps=5, optimizer=replace(SPEC.optimizer, lr=0.5))
    with pytest.raises(SpecMismatchError, match="seed: run has 0, asked for 1") as caught:
        run.open(identity_of(other), "torch")
    assert caught.value.differences == {"seed": (0, 1), "optimizer.lr": (1e-3, 0.5)}
    assert from_toml(run.identity_text()) == SPEC


def test_the_run_of_the_other_side_is_refused(run: RunDirectory) -> None:
    with pytest.raises(RunDirectoryError, match="holds a run of side 'torch', not 'jax'; choose another --dir"):
        run.open(identity_of(SPEC), "jax")


def test_a_directory_with_something_else_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunDirectoryError, match="is not empty and holds no run; choose another --dir"):
        RunDirectory(tmp_path).open(identity_of(SPEC), "torch")
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("look", ["iterdir", "exists"])
def test_a_run_that_starts_while_the_directory_is_looked_at_is_not_taken_for_something_else(
    look: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, original, looked = RunDirectory(tmp_path / "run"), getattr(Path, look), []
    run.path.mkdir()

    def start_meanwhile(path: Path) -> Any:
        answer = original(path)
        if path == {"iterdir": run.path, "exists": run.path / "spec.toml"}[look] and not looked:
            looked.append(path)  # as the other process does: after this one has asked, and before it goes on
            other = RunDirectory(run.path)
            other.open(identity_of(SPEC), "torch")
            other.begin_attempt(0, None, {})
            answer = original(path) if look == "iterdir" else answer
        return answer

    monkeypatch.setattr(Path, look, start_meanwhile)
    run.require_free()
    assert looked
    assert run.exists


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    RunDirectory(tmp_path).open(identity_of(SPEC), "jax")
    assert RunDirectory(tmp_path).exists


def test_mending_cuts_torn_records_off_so_that_the_next_start_a_line_of_their_own(run: RunDirectory) -> None:
    append(run.steps, [record_line(record(1))])
    with run.steps.open("a") as file:
        file.write('{"attempt": 0, "st')
    assert run.repair() == []
    append(run.steps, [record_line(record(2))])
    assert [row.step for row in read_records(run.steps, StepRecord)] == [1, 2]


def test_mending_says_which_file_lost_lines_and_keeps_them(run: RunDirectory) -> None:
    append(run.steps, [record_line(record(1)), "\0" * 40, record_line(record(2))])
    assert run.repair() == ["moved 1 unreadable line of steps.jsonl to steps.jsonl.damaged"]
    assert [row.step for row in read_records(run.steps, StepRecord)] == [1, 2]
    assert (run.path / "steps.jsonl.damaged").read_bytes() == b"\0" * 40 + b"\n"


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
    checkpoints(run, "100", "20", "30", "60", ".draft-40-1", "50.orbax-checkpoint-tmp-0", "notes")
    (run.checkpoints / "30" / "broken").touch()
    (run.checkpoints / "60" / "foreign").touch()
    (run.checkpoints / "20" / "metric").write_text("0.75")
    scan = run.store.scan(examine)
    assert scan.whole == [Saved(step=20, metric=0.75), Saved(step=100, metric=None)]
    assert scan.unsealed == [Saved(step=60, metric=None)]
    assert scan.damaged == [("30", "its seal is broken")]
    assert {name for name, _ in scan.unfinished} == {".draft-40-1", "50.orbax-checkpoint-tmp-0", "notes"}
    assert {why for _, why in scan.unfinished} == {
        "has not got its final name: the save was cut short, or is under way"
    }


@pytest.mark.parametrize("name", ["²", "٣", "007", "-5", "5 ", "1e3"])
def test_a_name_that_is_no_plain_step_number_never_counts(run: RunDirectory, name: str) -> None:
    """`"²".isdigit()` holds and `int("²")` raises; `007` would be looked for as `7`."""
    checkpoints(run, name)
    assert run.store.scan(examine).whole == []


def test_a_scan_of_an_absent_directory_finds_nothing(tmp_path: Path) -> None:
    assert RunDirectory(tmp_path / "none").store.scan() == Scan(whole=[])


def test_a_scan_goes_by_the_seals_and_needs_no_side(run: RunDirectory) -> None:
    sealed(run, 10, metric=0.5, saved_at=7.0)
    (sealed(run, 20) / "state.pt").write_bytes(b"short")
    (sealed(run, 30) / seal.FILE).unlink()
    sealed(run, 40).rename(run.checkpoints / "50")
    scan = run.store.scan()
    assert scan.whole == [Saved(step=10, metric=0.5, saved_at=7.0)]
    assert scan.unsealed == [Saved(step=30, metric=None)]
    assert scan.damaged == [
        ("20", "state.pt has 5 bytes, was sealed with 7"),
        ("50", "its seal is of step 40; the directory was renamed"),
    ]


@pytest.mark.parametrize("what", ["a link", "a file"])
def test_what_only_has_the_name_of_a_step_does_not_count(run: RunDirectory, what: str, tmp_path: Path) -> None:
    """A link to a whole checkpoint elsewhere is none of this run's."""
    if what == "a link":
        other = RunDirectory(tmp_path / "other")
        other.open(identity_of(SPEC), "torch")
        (run.checkpoints / "10").symlink_to(sealed(other, 10), target_is_directory=True)
    else:
        (run.checkpoints / "10").write_text("not a directory")
    assert run.store.scan().whole == []


def test_a_metric_given_later_counts_and_the_last_one_given_wins(run: RunDirectory) -> None:
    for step, metric in ((10, None), (20, 0.5)):
        sealed(run, step, metric, saved_at=float(step))
    before = (run.checkpoints / "10" / seal.FILE).read_bytes()
    run.store.note_metric(10, 0.25, ACCURACY)
    run.store.note_metric(10, 0.75, ACCURACY)
    assert [s.metric for s in run.store.scan().whole] == [0.75, 0.5]
    assert json.loads((run.path / "best.json").read_text())["step"] == 10
    assert (run.checkpoints / "10" / seal.FILE).read_bytes() == before, "the checkpoint stays as it was sealed"
    run.store.note_metric(10, float("nan"), ACCURACY)
    assert json.loads((run.path / "best.json").read_text())["step"] == 20, "NaN is never best"


def test_a_metric_is_of_one_save_and_not_of_a_later_one_of_the_same_step(run: RunDirectory) -> None:
    sealed(run, 10, None, saved_at=1.0)
    run.store.note_metric(10, 0.75, ACCURACY)
    run.abandon_after(0, 1, records=True)
    sealed(run, 10, None, saved_at=2.0)
    assert run.store.scan().whole == [Saved(step=10, metric=None, saved_at=2.0)]


def test_a_metric_of_no_checkpoint_is_refused(run: RunDirectory) -> None:
    sealed(run, 10)
    with pytest.raises(CheckpointError, match=r"no whole checkpoint of step 20 in .* \(whole steps: 10\)"):
        run.store.note_metric(20, 0.5, ACCURACY)
    assert not run.metrics.exists()


def test_a_damaged_file_of_metrics_is_an_error_that_names_it(run: RunDirectory) -> None:
    sealed(run, 10)
    append(run.metrics, ['{"step": 10}'])
    with pytest.raises(RunDirectoryError, match=r"metrics\.jsonl: a row is no metric \(it has no 'saved_at'\)"):
        run.store.scan()


def test_leftovers_are_cleaned_and_nothing_else(run: RunDirectory, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "thesis.tex").write_text("precious")
    run = RunDirectory(run.path, drafts=["*.orbax-checkpoint-tmp*"])
    sealed(run, 10)
    leftovers = (".draft-20-7", ".removed-5-7", ".removed-orbax", "30.orbax-checkpoint-tmp-3")
    checkpoints(run, *leftovers, "notes", "40")
    (run.checkpoints / leftovers[0] / "state.pt").write_bytes(b"half")
    (run.checkpoints / ".draft-50-7").symlink_to(outside, target_is_directory=True)
    (run.path / ".latest.json.123").write_text("half")
    (run.path / ".latest.json.bak").write_text("mine")
    assert set(run.clean()) == {*leftovers, ".draft-50-7", ".latest.json.123"}
    assert {entry.name for entry in run.checkpoints.iterdir()} == {"10", "40", "notes"}
    assert (outside / "thesis.tex").exists(), "what a link points to is not ours"
    assert (run.path / ".latest.json.bak").exists()
    assert run.clean() == []


FOUND = Scan(
    whole=[Saved(step=10, metric=0.9), Saved(step=20, metric=0.9), Saved(step=30, metric=0.1)],
    unfinished=[(".draft-40-1", "cut short")],
    damaged=[("50", "holds step 7")],
)


@pytest.mark.parametrize(
    ("which", "plan", "step"),
    [("latest", ACCURACY, 30), ("best", ACCURACY, 20), ("best", LOSS, 30), (10, LOSS, 10)],
)
def test_the_chosen_checkpoint_is_the_policy_s(run: RunDirectory, which: Any, plan: RunPlan, step: int) -> None:
    assert run.store.choose(replace(FOUND, damaged=[]), which, plan) == step
    assert run.store.choose(FOUND, which, plan, or_next=True) == step


def test_a_damaged_latest_is_named_with_the_one_that_would_be_taken(run: RunDirectory) -> None:
    with pytest.raises(
        CheckpointError, match=r"latest checkpoint .* is of step 50 .* step 30 \(loss 0.1\); --or-next"
    ):
        run.store.choose(FOUND, "latest", LOSS)


def test_the_best_is_not_the_next_best_when_it_is_damaged(run: RunDirectory) -> None:
    """Its own seal, or the pointer, says what it was."""
    sealed(run, 10, metric=0.4)
    sealed(run, 20, metric=0.7)
    run.store.point(run.store.scan(), ACCURACY)
    (run.checkpoints / "20" / "state.pt").write_bytes(b"cut")
    for harm in (None, seal.FILE):
        if harm:
            (run.checkpoints / "20" / harm).write_bytes(b"no seal any more")
        with pytest.raises(
            CheckpointError, match=r"best .* is of step 20 \(accuracy 0.7\) .* step 10 \(accuracy 0.4\)"
        ):
            run.store.choose(run.store.scan(), "best", ACCURACY)
        assert run.store.choose(run.store.scan(), "best", ACCURACY, or_next=True) == 10


def test_a_best_that_is_gone_is_not_the_next_best_either(run: RunDirectory) -> None:
    sealed(run, 10, metric=0.4)
    (sealed(run, 20, metric=0.7) / "state.pt").touch()
    run.store.point(run.store.scan(), ACCURACY)
    shutil.rmtree(run.checkpoints / "20")
    with pytest.raises(CheckpointError, match=r"step 20 .*\n  20: is not in .*, though best.json names it"):
        run.store.choose(run.store.scan(), "best", ACCURACY)
    assert run.store.pointed("best") is None
    assert run.store.pointed_step("best") == 20


@pytest.mark.parametrize("which", ["latest", "best", 50])
def test_when_nothing_can_be_chosen_the_error_lists_what_was_found(run: RunDirectory, which: Any) -> None:
    scan = Scan(whole=[], unfinished=FOUND.unfinished, damaged=FOUND.damaged)
    with pytest.raises(
        CheckpointError, match=r"no whole .*checkpoint.* \(whole steps: none\)\n  50: holds step 7"
    ) as caught:
        run.store.choose(scan, which, LOSS)
    assert caught.value.found == [("50", "holds step 7"), (".draft-40-1", "cut short")]


def test_a_checkpoint_without_a_seal_is_chosen_by_its_step_only(run: RunDirectory) -> None:
    scan = Scan(whole=[], unsealed=[Saved(step=70, metric=None)])
    assert run.store.choose(scan, 70, LOSS) == 70
    for which in ("latest", "best", 60):
        with pytest.raises(
            CheckpointError,
            match=r"no whole .*\n  70: has no seal: seal\.json is missing; --resume 70 takes it unverified",
        ):
            run.store.choose(scan, which, LOSS)  # type: ignore[arg-type]
    scan = Scan(whole=[Saved(step=10, metric=0.5)], unsealed=[Saved(step=70, metric=9.0)])
    assert run.store.choose(scan, "latest", ACCURACY) == run.store.choose(scan, "best", ACCURACY) == 10


def test_the_error_names_the_steps_that_are_there(run: RunDirectory) -> None:
    with pytest.raises(CheckpointError, match=r"no whole checkpoint of step 50 in .* \(whole steps: 10, 20, 30\)"):
        run.store.choose(FOUND, 50, LOSS)


def test_newer_checkpoints_and_records_go_to_abandoned(run: RunDirectory) -> None:
    checkpoints(run, "5", "10", "15", "20", ".draft-25-1")
    lines = [record_line(record(step, loss=float("nan"))) for step in (5, 10, 11, 20)]
    append(run.steps, lines)
    assert sorted(run.abandon_after(10, 3, records=True)) == ["15", "20"]
    assert {entry.name for entry in run.checkpoints.iterdir()} == {"5", "10", ".draft-25-1"}
    abandoned = run.path / "abandoned" / "3"
    assert {entry.name for entry in abandoned.iterdir()} == {"15", "20", "steps.jsonl"}
    assert run.steps.read_text().splitlines() == lines[:2]
    assert (abandoned / "steps.jsonl").read_text().splitlines() == lines[2:]


def test_what_is_set_aside_never_replaces_what_was_before(run: RunDirectory) -> None:
    for turn in range(3):
        checkpoints(run, "10")
        (run.checkpoints / "10" / "turn").write_text(str(turn))
        assert run.store.set_aside(["10"], run.abandoned(2)) == ["10"]
    home = run.path / "abandoned" / "2"
    assert {entry.name: (entry / "turn").read_text() for entry in home.iterdir()} == {
        "10": "0",
        "10.1": "1",
        "10.2": "2",
    }


def test_the_newest_is_set_aside_first_so_that_a_kill_leaves_no_gap(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints(run, "5", "9", "10", "100")
    moved: list[str] = []
    monkeypatch.setattr("parity.checkpoints.store.move", lambda source, target: moved.append(source.name))
    run.abandon_after(5, 1, records=False)
    assert moved == ["100", "10", "9"]


def test_records_stay_when_a_kill_left_them_behind_the_newest_checkpoint(run: RunDirectory) -> None:
    append(run.steps, [record_line(record(step)) for step in (5, 10, 11)])
    assert run.abandon_after(10, 1, records=False) == []
    assert len(read_lines(run.steps)) == 3
    assert not (run.path / "abandoned").exists()


def test_pointers_name_the_latest_and_the_best(run: RunDirectory) -> None:
    run.store.point(FOUND, ACCURACY)
    latest, best = (json.loads((run.path / f"{name}.json").read_text()) for name in ("latest", "best"))
    assert latest == {"step": 30, "metric": 0.1, "path": "checkpoints/30"}
    assert best == {"step": 20, "metric": 0.9, "path": "checkpoints/20", "mode": "max"}


def test_a_pointer_to_nothing_is_removed(run: RunDirectory) -> None:
    run.store.point(FOUND, ACCURACY)
    run.store.point(Scan(whole=[Saved(step=30, metric=None)]), ACCURACY)
    assert (run.path / "latest.json").exists()
    assert not (run.path / "best.json").exists()


@pytest.mark.parametrize("metric", [float("nan"), float("inf"), None])
def test_pointers_are_valid_json_whatever_the_metric(run: RunDirectory, metric: float | None) -> None:
    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    run.store.point(Scan(whole=[Saved(step=30, metric=metric)]), LOSS)
    for file in run.path.glob("*.json"):
        assert json.loads(file.read_text(), parse_constant=refuse)["step"] == 30


def test_an_unchanged_pointer_is_not_written_again(run: RunDirectory) -> None:
    run.store.point(FOUND, ACCURACY)
    before = (run.path / "latest.json").stat().st_ino
    run.store.point(FOUND, ACCURACY)
    assert (run.path / "latest.json").stat().st_ino == before


@pytest.mark.parametrize("stage", ["fsync", "rename"])
def test_a_pointer_is_the_old_one_until_the_new_one_is_whole(
    run: RunDirectory, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash at any call before the rename leaves the old text; and the file is synced before it is renamed."""
    run.store.point(FOUND, ACCURACY)
    old = (run.path / "latest.json").read_text()

    def crash(*_: Any) -> None:
        raise RuntimeError("the machine went down")

    monkeypatch.setattr(*((os, "fsync") if stage == "fsync" else (Path, "rename")), crash)
    with pytest.raises(RuntimeError, match="the machine went down"):
        run.store.point(Scan(whole=[Saved(step=99, metric=None)]), ACCURACY)
    assert (run.path / "latest.json").read_text() == old


def test_a_start_cut_short_before_the_spec_was_written_can_be_started_again(tmp_path: Path) -> None:
    """Nothing of the user's is in such a directory: only our own empty folder and side file."""
    run = RunDirectory(tmp_path / "run")
    run.checkpoints.mkdir(parents=True)
    replace_file(run.path / "side", "torch\n")
    run.open(identity_of(SPEC), "torch")
    assert (run.path / "spec.toml").read_text() == to_toml(SPEC)

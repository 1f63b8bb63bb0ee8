"""A process goes on from the newest whole checkpoint, says what that costs, and throws nothing away."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from parity.checkpoints import FILE, require_verified
from parity.contract import record_line
from parity.errors import CheckpointError, DamagedError, UnsealedError
from parity.runs import RunDirectory, compare_topology, resume_run, skips_before
from parity.spec import RunSpec, identity_of, preset
from parity.storage import append, read_lines
from tests.support.sealed import flip, save
from tests.support.small import record

SPEC = preset("mlp-digits")


class Restoring:
    """What of a trainer a resume asks for: it verifies what it restores, as the sides do."""

    def __init__(self, run: RunDirectory) -> None:
        self.run, self.plan = run, SPEC.plan
        self.tried: list[int] = []
        self.unfit: set[int] = set()
        """Steps whose checkpoints are whole and do not fit the run."""

    def restore(self, step: int) -> int:
        self.tried.append(step)
        path = self.run.checkpoints / str(step)
        try:
            require_verified(path)
        except UnsealedError:
            assert (path / "params").is_dir()
        if step in self.unfit:
            raise CheckpointError(f"checkpoint of step {step} does not fit this run")
        return step


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file be small: a look at a checkpoint reads none, as with files of gigabytes."""
    monkeypatch.setattr("parity.checkpoints.seal.SMALL", -1)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return a run with checkpoints of steps 10, 20 and 30, the best of them the first."""
    opened = RunDirectory(tmp_path / "run")
    opened.open(identity_of(SPEC), "torch")
    for step, metric in ((10, 0.9), (20, 0.5), (30, 0.7)):
        save(opened.checkpoints, step, metric)
    append(opened.steps, [record_line(record(step)) for step in range(1, 36)])
    return opened


def damage(run: RunDirectory, *steps: int) -> None:
    """Flip a bit of the bias: no scan sees it, only reading every byte does."""
    for step in steps:
        flip(run.checkpoints / str(step) / "params/shard", 7)


def cut(run: RunDirectory, *steps: int) -> None:
    for step in steps:
        (run.checkpoints / str(step) / "params/shard").write_bytes(b"weight")


def resume(
    run: RunDirectory, which: Any = "auto", trainer: Any = None, attempt: int = 1, **options: Any
) -> tuple[Any, list[str]]:
    """Return the step that is gone on from, and what was said."""
    said: list[str] = []
    return resume_run(run, trainer or Restoring(run), which, attempt, said.append, **options), said


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir()) if path.exists() else []


def pointed(run: RunDirectory) -> tuple[int, int]:
    latest, best = (json.loads((run.path / f"{name}.json").read_text())["step"] for name in ("latest", "best"))
    return latest, best


def test_the_newest_is_taken_and_nothing_else_happens(run: RunDirectory) -> None:
    trainer = Restoring(run)
    assert resume(run, trainer=trainer) == (30, ["resumed from step 30 (latest)"])
    assert trainer.tried == [30]
    assert names(run.checkpoints) == ["10", "20", "30"]
    assert not (run.path / "abandoned").exists()
    assert pointed(run) == (30, 10)


@pytest.mark.parametrize("harm", [damage, cut])
def test_a_damaged_newest_is_moved_aside_with_its_reason_and_the_loss_is_said(run: RunDirectory, harm: Any) -> None:
    harm(run, 30)
    trainer = Restoring(run)
    step, said = resume(run, trainer=trainer)
    assert step == 20
    assert trainer.tried == ([30, 20] if harm is damage else [20]), "what a scan sees is not tried"
    assert said[0].startswith("moved checkpoint 30 to abandoned/1: ")
    assert "params/shard" in said[0]
    assert "(leaves: model.params.bias)" in said[0]
    assert said[1:] == ["10 steps are lost with it and trained again", "resumed from step 20 (latest)"]
    assert names(run.checkpoints) == ["10", "20"]
    assert names(run.path / "abandoned" / "1") == ["30"], "never deleted; the records stay, a new attempt overrides"
    assert len(read_lines(run.steps)) == 35
    assert pointed(run) == (20, 10)


def test_two_damaged_in_a_row_are_both_moved_and_named(run: RunDirectory) -> None:
    damage(run, 30, 20)
    trainer = Restoring(run)
    step, said = resume(run, trainer=trainer)
    assert (step, trainer.tried) == (10, [30, 20, 10])
    assert [line.partition(":")[0] for line in said] == [
        "moved checkpoint 30 to abandoned/1",
        "moved checkpoint 20 to abandoned/1",
        "20 steps are lost with it and trained again",
        "resumed from step 10 (latest)",
    ]
    assert names(run.path / "abandoned" / "1") == ["20", "30"]


@pytest.mark.parametrize("which", ["auto", "latest"])
def test_when_every_one_is_damaged_the_error_lists_each_and_nothing_is_moved(run: RunDirectory, which: str) -> None:
    damage(run, 20, 30)
    cut(run, 10)
    with pytest.raises(CheckpointError, match="no whole") as caught:
        resume(run, which)
    assert sorted(name for name, _ in caught.value.found) == ["10", "20", "30"]
    assert all("params/shard" in why for _, why in caught.value.found)
    assert names(run.checkpoints) == ["10", "20", "30"]
    assert not (run.path / "abandoned").exists()


def test_when_a_scan_sees_that_every_one_is_damaged_starting_over_is_refused_too(run: RunDirectory) -> None:
    cut(run, 10, 20, 30)
    with pytest.raises(CheckpointError, match="starting over would hide the loss") as caught:
        resume(run)
    assert [name for name, _ in caught.value.found] == ["10", "20", "30"]


@pytest.mark.parametrize("harm", [damage, cut])
def test_a_damaged_step_that_was_asked_for_is_an_error_and_stays_where_it_is(run: RunDirectory, harm: Any) -> None:
    harm(run, 20)
    kind = DamagedError if harm is damage else CheckpointError
    with pytest.raises(kind, match="20") as caught:
        resume(run, 20)
    assert "params/shard" in str(caught.value)
    assert names(run.checkpoints) == ["10", "20", "30"]
    assert not (run.path / "abandoned").exists()


def test_a_latest_that_is_gone_is_told_with_what_that_costs(run: RunDirectory) -> None:
    run.store.point(run.store.scan(), SPEC.plan)
    shutil.rmtree(run.checkpoints / "30")
    assert resume(run) == (
        20,
        [
            "latest.json names a checkpoint of step 30, which is gone: steps after 20 are trained again",
            "resumed from step 20 (latest)",
        ],
    )


@pytest.mark.parametrize("harm", [damage, cut])
def test_a_damaged_best_is_an_error_that_names_the_next_best_and_nothing_is_moved(
    run: RunDirectory, harm: Any
) -> None:
    harm(run, 10)
    with pytest.raises(CheckpointError, match=r"best .* step 10 \(accuracy 0.9\) .* step 30 \(accuracy 0.7\)"):
        resume(run, "best")
    assert names(run.checkpoints) == ["10", "20", "30"]
    assert not (run.path / "abandoned").exists()


def test_a_damaged_best_gives_way_to_the_next_best_where_that_was_asked_for(run: RunDirectory) -> None:
    damage(run, 10)
    step, said = resume(run, "best", or_next=True)
    assert step == 30
    assert said[0].startswith("moved checkpoint 10 to abandoned/1: ")
    assert said[1:] == ["resumed from step 30 (best)"], "nothing is lost: it is older"
    assert names(run.checkpoints) == ["20", "30"]


def test_an_older_damaged_one_is_moved_and_no_loss_is_said(run: RunDirectory) -> None:
    cut(run, 10)
    step, said = resume(run)
    assert step == 30
    assert said == [
        "moved checkpoint 10 to abandoned/1: "
        "params/shard: has 6 bytes, was sealed with 16 (leaves: model.params.bias)",
        "resumed from step 30 (latest)",
    ]


@pytest.mark.parametrize("which", [10, "best"])
def test_going_back_on_purpose_moves_the_newer_and_their_records_and_is_no_loss(
    run: RunDirectory, which: Any
) -> None:
    step, said = resume(run, which)
    assert step == 10
    assert not [line for line in said if "lost" in line]
    assert {line for line in said if line.startswith("moved")} == {
        f"moved checkpoint {step} to abandoned/1: it is newer, and was given up" for step in (20, 30)
    }
    assert names(run.checkpoints) == ["10"]
    assert names(run.path / "abandoned" / "1") == ["20", "30", "steps.jsonl"]
    assert [row["step"] for row in read_lines(run.steps)] == list(range(1, 11))
    assert pointed(run) == (10, 10)


@pytest.mark.parametrize("which", ["auto", "latest", "best"])
def test_a_checkpoint_without_a_seal_is_never_picked(run: RunDirectory, which: str) -> None:
    (save(run.checkpoints, 40, 1.0) / FILE).unlink()
    trainer = Restoring(run)
    step, _ = resume(run, which, trainer)
    assert step == (10 if which == "best" else 30)
    assert 40 not in trainer.tried
    assert names(run.path / "abandoned" / "1").count("40") == 1, "newer than what is trained now, it is kept aside"


def test_a_checkpoint_that_is_moved_aside_is_named_whatever_the_reason(run: RunDirectory) -> None:
    """A foreign one that is newer than the one gone on from was put there by somebody, who will look for it."""
    (save(run.checkpoints, 40) / FILE).unlink()
    said = resume(run)[1]
    assert [line for line in said if "40" in line and "abandoned/1" in line]


def test_a_checkpoint_without_a_seal_is_taken_by_its_step_and_that_is_said(run: RunDirectory) -> None:
    (run.checkpoints / "20" / FILE).unlink()
    step, said = resume(run, 20)
    assert step == 20
    assert said == [
        "checkpoint 20 has no seal: restored unverified",
        "moved checkpoint 30 to abandoned/1: it is newer, and was given up",
        "resumed from step 20 (step)",
    ]
    assert names(run.path / "abandoned" / "1") == ["30", "steps.jsonl"]


def test_with_foreign_ones_only_the_error_says_how_to_take_one(run: RunDirectory) -> None:
    for step in (10, 20, 30):
        (run.checkpoints / str(step) / FILE).unlink()
    with pytest.raises(
        CheckpointError, match=r"30: has no seal: seal\.json is missing; --resume 30 takes it unverified"
    ):
        resume(run)


def test_what_does_not_fit_costs_no_newer_checkpoint(run: RunDirectory) -> None:
    """It is whole: a run of another model, perhaps. The one before would not fit either."""
    trainer = Restoring(run)
    trainer.unfit = {20, 30}
    for which in ("auto", 20):
        with pytest.raises(CheckpointError, match="does not fit this run"):
            resume(run, which, trainer)
    assert trainer.tried == [30, 20]
    assert names(run.checkpoints) == ["10", "20", "30"]
    assert not (run.path / "abandoned").exists()


def test_leftovers_are_removed_before_anything_is_picked_and_named(run: RunDirectory) -> None:
    run = RunDirectory(run.path, drafts=["*.orbax-checkpoint-tmp*"])
    for name in (".draft-40-7", ".removed-5-7", "40.orbax-checkpoint-tmp-1"):
        (run.checkpoints / name).mkdir()
    (run.path / ".best.json.77").touch()
    step, said = resume(run)
    assert step == 30
    assert said[-1] == "resumed from step 30 (latest)"
    assert {line.split()[1] for line in said[:-1]} == {
        ".draft-40-7:",
        ".removed-5-7:",
        "40.orbax-checkpoint-tmp-1:",
        ".best.json.77:",
    }
    assert all("the leftover of a save or removal that was cut short" in line for line in said[:-1])
    assert names(run.checkpoints) == ["10", "20", "30"]


def test_a_kill_before_the_first_checkpoint_leaves_a_run_that_starts_anew(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.open(identity_of(SPEC), "torch")
    (run.checkpoints / ".draft-10-7").mkdir()
    trainer = Restoring(run)
    step, said = resume(run, trainer=trainer)
    assert step is None
    assert trainer.tried == []
    assert said[-1] == "starting from step 0"


def test_the_next_damage_in_the_same_attempt_s_folder_replaces_nothing(run: RunDirectory) -> None:
    """A process that dies behind the move counts as no attempt; the next one uses the same folder."""
    for _ in range(2):
        damage(run, 30)
        assert resume(run)[0] == 20
        save(run.checkpoints, 30)
    assert names(run.path / "abandoned" / "1") == ["30", "30.1"]


def test_what_changed_of_the_topology_is_said(run: RunDirectory) -> None:
    said: list[str] = []
    compare_topology(run, {"threads": 1}, 10, said.append)
    run.begin_attempt(0, None, {"threads": 1, "devices": 1})
    for now, start in (({"threads": 1, "devices": 1}, 10), ({"threads": 2, "devices": 1}, None)):
        compare_topology(run, now, start, said.append)
    assert said == []
    compare_topology(run, {"threads": 2, "devices": 1}, 10, said.append)
    assert said == [
        "topology changed (threads 1 -> 2): continuing, but bitwise equality is not to be expected",
    ]


def test_skips_in_a_row_are_counted_up_to_the_step_and_over_attempts(run: RunDirectory) -> None:
    run.steps.unlink()
    skipped = {3: True, 5: True, 6: True, 7: True}
    append(run.steps, [record_line(record(step, skipped=step in skipped)) for step in range(1, 9)])
    assert [skips_before(run, step) for step in (2, 3, 4, 6, 7, 8)] == [0, 1, 0, 2, 3, 0]
    append(run.steps, [record_line(record(6, attempt=1, skipped=False))])
    assert skips_before(run, 7) == 1


def test_the_specification_s_metric_decides_what_is_best(run: RunDirectory) -> None:
    trainer = Restoring(run)
    trainer.plan = RunSpec(**{**vars(SPEC), "metric": "loss"}).plan
    assert resume(run, "best", trainer)[0] == 20

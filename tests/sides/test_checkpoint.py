"""What the checkpoints of both sides do alike: they come back bit for bit or not at all."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parity import sides
from parity.checkpoints import FILE, read_seal, require_verified, verify
from parity.errors import CheckpointError, DamagedError, OtherRunError, SaveError
from parity.runs import RunDirectory
from parity.spec import override
from parity.state import compare_states, leaf_digests, orders_of
from tests.support.saving import SPECS, assert_resumes, saved
from tests.support.sealed import flip
from tests.support.small import small, state_of

each_side = pytest.mark.parametrize("side", ["jax", "torch"])
ADAM = SPECS["adam"]


@pytest.mark.takes_seconds("jax")
@each_side
def test_a_first_step_that_overflowed_is_saved_with_no_update_applied(side: str, tmp_path: Path) -> None:
    spec = small("mlp-digits", "float16", "scaler.overflow_steps=[1]", "steps=50", "execution.chunk=1")
    trainer, path = saved(sides.load(side), spec, tmp_path, steps=1)
    state = trainer.export_state()
    assert state.scalars["counters.updates"] == state.scalars["optimizer.step"] == 0
    leaves = require_verified(path).leaves
    assert leaves == leaf_digests(state, orders_of(leaves))
    assert_resumes(trainer, tmp_path)


@pytest.mark.takes_seconds("best-jax", "latest-jax")
@each_side
@pytest.mark.parametrize("which", ["latest", "best"])
def test_without_a_seal_it_is_restored_by_its_step_only(side: str, which: Any, tmp_path: Path) -> None:
    trainer, path = saved(sides.load(side), ADAM, tmp_path)
    state = trainer.export_state()
    trainer.close()
    (path / FILE).unlink()
    other = sides.load(side).build(ADAM, tmp_path)
    start = state_of(other)
    with pytest.raises(
        CheckpointError, match=r"3: has no seal: seal\.json is missing; --resume 3 takes it unverified"
    ):
        other.restore(which)
    assert state_of(other) == start
    assert other.restore(3) == 3
    assert compare_states(state, other.export_state()) == []
    assert [s.step for s in RunDirectory(tmp_path).store.scan().unsealed] == [3], "reported as what it is"


@pytest.mark.takes_seconds
@pytest.mark.parametrize(
    ("side", "leaf", "file"),
    [
        ("jax", "optimizer.first_moment.layers.0.weight", "optimizer/"),
        ("torch", "optimizer.first_moment.layers.1.bias", r"state\.pt: "),
    ],
    ids=["jax", "torch"],
)
def test_one_flipped_bit_is_refused_before_anything_is_loaded(
    side: str, leaf: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parity.checkpoints.seal.SMALL", -1)  # as with files of gigabytes: only a restore reads them
    trainer, path = saved(sides.load(side), ADAM, tmp_path)
    trainer.close()
    place = max(read_seal(path).places[leaf], key=lambda place: place.size)
    flip(path / place.file, place.start)
    other = sides.load(side).build(ADAM, tmp_path)
    before = state_of(other)
    for which in ("latest", 3):
        with pytest.raises(DamagedError, match=rf"3 is not what was sealed:\n  {file}.*{leaf}"):
            other.restore(which)
    assert state_of(other) == before


@pytest.mark.takes_seconds
@each_side
@pytest.mark.parametrize(
    "overrides",
    [["seed=8"], ["optimizer.lr=0.5"], ["model.hidden=[17]"], ["precision=float64"], ["optimizer.kind=sgd"]],
)
def test_a_whole_checkpoint_of_another_run_is_refused_before_anything_of_it_is_read(
    side: str, overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, path = saved(sides.load(side), ADAM, tmp_path)
    trainer.close()
    assert verify(path).whole
    other = sides.load(side).build(override(ADAM, overrides), tmp_path)
    before = state_of(other)
    monkeypatch.setattr("parity.checkpoints.saving.read_meta", None)
    hashes = rf"'{trainer.spec_hash[:12]}', this run has '{other.spec_hash[:12]}'"
    for which in ("latest", 3):
        with pytest.raises(OtherRunError, match=rf"step 3 is of another run .*{hashes}"):
            other.restore(which)
    assert state_of(other) == before
    other.close()


@each_side
def test_a_step_is_saved_once(side: str, tmp_path: Path) -> None:
    trainer, path = saved(sides.load(side), ADAM, tmp_path)
    before = (path / FILE).read_bytes()
    with pytest.raises(CheckpointError, match="3 exists already; it is not overwritten"):
        trainer.save(0.9)
    assert (path / FILE).read_bytes() == before
    trainer.close()


@pytest.mark.takes_seconds
@each_side
def test_a_failure_in_the_background_is_told_once_and_costs_nothing_else(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, path = saved(sides.load(side), ADAM, tmp_path)
    list(trainer.steps(5))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("parity.checkpoints.saving.commit", full)
        trainer.save(None)
        with pytest.raises(SaveError, match=r"step 5 could not be saved: .*No space left on device"):
            trainer.wait()
    trainer.wait()
    assert [s.step for s in RunDirectory(tmp_path).store.scan().whole] == [3]
    assert verify(path).whole
    list(trainer.steps(7))
    trainer.save(None)
    trainer.close()
    assert [s.step for s in RunDirectory(tmp_path).store.scan().whole] == [3, 7]


@pytest.mark.takes_seconds
@each_side
def test_what_the_policy_does_not_keep_is_gone_and_what_has_no_seal_stays(side: str, tmp_path: Path) -> None:
    spec = replace(ADAM, save=replace(ADAM.save, keep_latest=1, keep_best=1))
    trainer = sides.load(side).build(spec, tmp_path)
    for step, metric in ((1, 0.5), (2, 0.9), (3, 0.1), (4, 0.2), (5, None)):
        list(trainer.steps(step))
        trainer.save(metric)
        trainer.wait()
        if step == 1:
            (tmp_path / "checkpoints" / "1" / FILE).unlink()
    trainer.close()
    assert sorted(entry.name for entry in (tmp_path / "checkpoints").iterdir()) == ["1", "2", "5"]

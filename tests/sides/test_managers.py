"""Managers beside each other: what a reader finds while another saves, and which saves a manager takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.checkpoints import CheckpointStore, saving
from parity.checkpoints.trees import single
from parity.errors import CheckpointError, DamagedError, UnsealedError
from parity.policy import Rules, Saved, best, kept
from tests.support.sealed import flip
from tests.support.tree_states import array, side_of

each_side = pytest.mark.parametrize("side", ["jax", "torch"])
NEWEST = Rules(keep_latest=1)


def items(side: str, step: int) -> dict[str, Any]:
    return {"state": {"w": array(side, np.full(8, step)), "step": step}}


def save(manager: Any, side: str, step: int, metric: float | None = None) -> None:
    assert manager.save(step, items(side, step), metric)
    manager.wait()


# A reader beside a writer


def once_verified(patch: pytest.MonkeyPatch, act: Callable[[], None], times: int = 1) -> list[int]:
    """Act after each of the first verifications, as another process might; return a list with an entry for each."""
    real, calls = saving.require_verified, [0]

    def verified(path: Path) -> Any:
        found = real(path)
        calls.append(1)
        if len(calls) <= times + 1:
            act()
        return found

    patch.setattr(saving, "require_verified", verified)
    return calls


@each_side
@pytest.mark.parametrize("which", ["latest", "best"])
def test_one_that_is_removed_while_it_is_read_is_not_taken_for_damaged(
    side: str, which: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = side_of(side)
    with module.CheckpointManager(tmp_path, keep=Rules(mode="max", keep_latest=1)) as writer:
        save(writer, side, 1, 0.1)
        steps = iter(range(2, 9))

        def saves() -> None:
            step = next(steps)
            save(writer, side, step, step / 10)

        once_verified(monkeypatch, saves, 3)
        found = module.CheckpointManager(tmp_path).restore(which)
        assert (found.step, found.tree["state"]["step"]) == (4, 4)


def test_a_reader_that_looks_once_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.checkpoints.trees.manager.steadily", lambda folder, which, read: read())
    with pytest.raises(CheckpointError, match=r"."):
        test_one_that_is_removed_while_it_is_read_is_not_taken_for_damaged("torch", "latest", tmp_path, monkeypatch)


@each_side
def test_a_step_that_is_removed_while_it_is_read_was_removed(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = side_of(side)
    with module.CheckpointManager(tmp_path, keep=NEWEST) as writer:
        save(writer, side, 1)
        once_verified(monkeypatch, lambda: save(writer, side, 2))
        with pytest.raises(
            CheckpointError, match=r"checkpoints/1 was removed while it was read: .* this is no damage"
        ):
            module.CheckpointManager(tmp_path).restore(1)


@each_side
def test_a_path_that_is_removed_while_it_is_read_was_removed(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = side_of(side)
    with module.CheckpointManager(tmp_path, keep=NEWEST) as writer:
        save(writer, side, 1)
        real = single.read_tree
        monkeypatch.setattr(single, "read_tree", lambda *a, **k: save(writer, side, 2) or real(*a, **k))
        with pytest.raises(CheckpointError, match=r"checkpoints/1 was removed while it was read"):
            module.restore(tmp_path / "checkpoints" / "1")


@each_side
def test_damage_beside_a_writer_is_damage_and_read_once(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = side_of(side)
    with module.CheckpointManager(tmp_path) as writer:
        save(writer, side, 1)
        meta = tmp_path / "checkpoints" / "1" / "meta.json"
        monkeypatch.setattr("parity.checkpoints.seal.SMALL", -1)  # as with large files: a scan does not read them
        flip(meta, 20)
        calls = once_verified(monkeypatch, lambda: None)
        with pytest.raises(DamagedError, match=r"is not what was sealed:\n  meta.json"):
            module.CheckpointManager(tmp_path).restore()
        assert len(calls) == 1, "it failed in the verification, which is not repeated"


def test_a_directory_that_never_rests_ends_with_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with side_of("torch").CheckpointManager(tmp_path, keep=NEWEST) as writer:
        save(writer, "torch", 1)
        steps = iter(range(2, 99))
        once_verified(monkeypatch, lambda: save(writer, "torch", next(steps)), 99)
        with pytest.raises(
            CheckpointError, match=r"changed at each of 20 readings, so no latest checkpoint was read"
        ):
            side_of("torch").CheckpointManager(tmp_path).restore()


def test_a_look_at_a_directory_misses_none_that_took_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = side_of("torch").CheckpointManager(tmp_path, keep=NEWEST)
    save(manager, "torch", 1)
    real, left = CheckpointStore.steps, [2, 3]

    def steps(store: CheckpointStore) -> list[int]:
        found = real(store)
        if left and found:
            step = left.pop(0)
            with monkeypatch.context() as patch:
                patch.setattr(CheckpointStore, "steps", real)
                save(manager, "torch", step)
        return found

    monkeypatch.setattr(CheckpointStore, "steps", steps)
    assert side_of("torch").CheckpointManager(tmp_path).latest_step() == 3
    manager.close()


# Which saves are taken


@each_side
def test_a_step_that_the_rules_would_remove_at_once_is_refused(side: str, tmp_path: Path) -> None:
    module = side_of(side)
    with module.CheckpointManager(tmp_path, keep=Rules(mode="max", keep_latest=2, keep_every=100)) as manager:
        for step, metric in ((10, 0.5), (20, 0.9), (30, 0.7)):
            save(manager, side, step, metric)
        with pytest.raises(CheckpointError, match=r"step 5 is older than 20, 30 .* keep more: keep_latest=3"):
            manager.save(5, items(side, 5), 0.6)
        with pytest.raises(CheckpointError, match=r"step 5 is older than .* would be removed as soon"):
            manager.save(5, items(side, 5))
        assert manager.all_steps() == [20, 30]
        save(manager, side, 6, 0.95)  # the best
        assert manager.all_steps() == [6, 20, 30]
        save(manager, side, 25, None)
        assert manager.all_steps() == [6, 25, 30]
    with module.CheckpointManager(tmp_path, keep=Rules(mode="max", keep_latest=9)) as manager:
        save(manager, side, 5)
        assert manager.all_steps() == [5, 6, 25, 30]


@each_side
def test_a_manager_saves_at_its_interval_and_the_first_step(side: str, tmp_path: Path) -> None:
    module = side_of(side)
    with module.CheckpointManager(tmp_path, keep=Rules(keep_latest=9), save_interval_steps=3) as manager:
        assert [step for step in range(1, 10) if manager.save(step, items(side, step))] == [1, 3, 6, 9]
        assert manager.save(10, items(side, 10), force=True)
        manager.wait()
        assert manager.all_steps() == [1, 3, 6, 9, 10]
        assert (manager.should_save(11), manager.should_save(12)) == (False, True)
    with module.CheckpointManager(tmp_path, save_interval_steps=3) as manager:
        assert not manager.save(11, items(side, 11)), "the directory has a first one"
    for interval in (0, -1):
        with pytest.raises(ValueError, match=r"save_interval_steps must be at least 1"):
            module.CheckpointManager(tmp_path, save_interval_steps=interval)


@each_side
def test_rules_without_a_best_need_no_mode_and_take_no_metric(side: str, tmp_path: Path) -> None:
    module = side_of(side)
    with module.CheckpointManager(tmp_path, keep=Rules(keep_latest=2)) as manager:
        for step in (1, 2, 3):
            save(manager, side, step)
        assert (manager.all_steps(), manager.best_step()) == ([2, 3], None)
        with pytest.raises(CheckpointError, match=r"metric 0\.5: the rules do not say whether a larger or a smaller"):
            manager.save(4, items(side, 4), 0.5)
        with pytest.raises(CheckpointError, match=r"no whole best checkpoint"):
            manager.restore("best")
    assert not (tmp_path / "best.json").exists()


def test_the_best_that_are_asked_for_need_a_mode() -> None:
    for count in (1, 2):
        with pytest.raises(ValueError, match=rf"keep_best={count} needs a mode: min or max"):
            Rules(keep_best=count)
    assert (Rules().keep_best, Rules(keep_best=0).keep_best, Rules(mode="min").keep_best) == (0, 0, 1)
    run = [Saved(step=step, metric=float(step)) for step in (1, 2, 3)]
    assert kept(run, Rules(keep_latest=1)) == {3}
    assert best(run, None) is None


def test_an_unsealed_checkpoint_of_a_manager_is_not_restored(tmp_path: Path) -> None:
    with side_of("torch").CheckpointManager(tmp_path) as manager:
        save(manager, "torch", 1)
        (tmp_path / "checkpoints" / "1" / "seal.json").unlink()
        with pytest.raises(UnsealedError, match=r"has no seal"):
            manager.restore(1)

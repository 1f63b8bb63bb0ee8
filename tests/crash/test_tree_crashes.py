"""After any crash while a tree is saved, the old checkpoint or the new one is there, and whole.

A real save is recorded below Python, as `test_crash_states.py` does with those of runs; every directory that a crash
may leave is judged by the seals, and one of every outcome is really restored.
"""

import re
import sys
from pathlib import Path

import pytest

from parity.checkpoints import CheckpointStore, verify
from tests.crash.disk import Stage, Tree, put
from tests.crash.operations import Operations, Sync
from tests.crash.record import traced
from tests.crash.states import crashes
from tests.crash.test_planted_crashes import edited
from tests.crash.tree_workload import ALONE, READY, REPLACED, STEPS, tree
from tests.support.tree_states import same, side_of

pytestmark = pytest.mark.processes
OLD, NEW = STEPS
MOST = 400
_recorded: dict[str, Operations] = {}


@pytest.fixture(params=["torch", pytest.param("jax", marks=pytest.mark.soak)])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Operations]:
    """Return a side and what its process did; recorded once."""
    side = request.param
    if side not in _recorded:
        workload = str(Path(__file__).with_name("tree_workload.py"))
        run = tmp_path.resolve() / "run"
        _recorded[side] = traced([sys.executable, "-W", "ignore", workload, side, str(run)], run, tmp_path / "trace")
    return side, _recorded[side]


def outcome_of(home: Path) -> tuple[int | None, list[str]]:
    """Return the newest whole step that a crash left, and what must never be."""
    scan = CheckpointStore(home).scan()
    wrong = [f"{name} looks like a checkpoint: {why}" for name, why in scan.damaged]
    wrong += [f"{one.step} has no seal" for one in scan.unsealed]
    wrong += [f"{s.step} is not whole" for s in scan.whole if not verify(home / "checkpoints" / str(s.step)).whole]
    return max((saved.step for saved in scan.whole), default=None), wrong


def commit(operations: Operations) -> int:
    """Return the index of the rename that gives the second checkpoint its name."""
    what = rf"rename \S+ to checkpoints/{NEW}"
    return next(i for i, one in enumerate(operations.done) if re.fullmatch(what, one.what))


def survey(operations: Operations, start: int, stop: int) -> tuple[dict[int | None, Tree], list[str]]:
    """Judge crashes of the second save of a manager: outcome to a crash that gives it, and what was wrong."""
    found: dict[int | None, Tree] = {}
    faults = []
    with Stage() as stage:
        for crash in crashes(operations, start, stop + 1, most=MOST):
            step, wrong = outcome_of(stage.show(crash.tree))
            wrong += (
                [f"the newest is {step}"] if step not in (OLD, NEW) or (crash.after > stop and step != NEW) else []
            )
            faults += [f"{fault}, after {crash.after} operations, {crash.how}" for fault in wrong]
            found.setdefault(step, crash.tree)
    return found, faults


def test_a_manager_has_the_old_or_the_new_checkpoint(recorded: tuple[str, Operations], tmp_path: Path) -> None:
    side, operations = recorded
    found, faults = survey(operations, operations.mark(READY), operations.mark(REPLACED))
    assert faults == []
    assert set(found) == {OLD, NEW}
    for step, left in found.items():
        assert step is not None
        with side_of(side).CheckpointManager(put(left, tmp_path / str(step))) as manager:
            assert same(tree(side, step), manager.restore(like=tree(side, 9)).tree) == []
            manager.save(7, tree(side, 7))
            manager.wait()
            names = {entry.name for entry in (tmp_path / str(step) / "checkpoints").iterdir()}
            assert names - {str(OLD), str(NEW), "7"} == set(), "what the crash left is removed"


def test_a_tree_by_itself_is_whole_or_absent(recorded: tuple[str, Operations], tmp_path: Path) -> None:
    side, operations = recorded
    outcomes, left = set(), Tree()
    with Stage() as stage:
        for crash in crashes(operations, operations.mark(REPLACED), operations.mark(ALONE) + 1, most=MOST):
            alone = stage.show(crash.tree) / "alone"
            outcomes.add(alone.exists())
            assert not alone.exists() or verify(alone).whole, f"after {crash.after} operations, {crash.how}"
            assert alone.exists() or crash.after <= operations.mark(ALONE), "what returned is durable"
            left = left if alone.exists() else crash.tree
    assert outcomes == {True, False}
    again = put(left, tmp_path / "again")
    side_of(side).save(again / "alone", tree(side, 5))
    assert same(tree(side, 5), side_of(side).restore(again / "alone", like=tree(side, 0)).tree) == []
    assert not [entry.name for entry in again.iterdir() if "draft" in entry.name]


@pytest.mark.parametrize("fault", ["no sync", "rename first"])
def test_a_planted_crash_is_found(fault: str, recorded: tuple[str, Operations]) -> None:
    _, operations = recorded
    start, stop = operations.mark(READY), operations.mark(REPLACED)
    order = list(range(len(operations.done)))
    if fault == "no sync":
        order = [i for i in order if i < start or i > stop or not isinstance(operations.done[i], Sync)]
    else:
        order.insert(start + 8, order.pop(commit(operations)))
    planted = edited(operations, order)
    _, faults = survey(planted, start, planted.mark(REPLACED))
    assert faults != []

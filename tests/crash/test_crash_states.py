"""After any crash of a save, a run goes on from the old or the new checkpoint, bit for bit.

A real save is recorded below Python, with everything that Orbax, TensorStore and PyTorch do; every directory that a
crash may leave is judged by recovery without a framework; one of every outcome is really restored.
"""

import pytest

from tests.crash.disk import put
from tests.crash.record import record
from tests.crash.survey import FIRST, SECOND, Survey, survey
from tests.crash.workload import NEW, OLD, train

pytestmark = pytest.mark.processes

SIDES = ("jax", "torch")
ENOUGH = {"jax": 6_000, "torch": 6_000}
"""Distinct directories: more than 10,000 of both sides, even of those that differ in more than the records."""
FURTHER = NEW + 2


def run_on(side, tree, home, step):
    """Go on with a run that a crash left, up to a step, and return the digests of the live state."""
    return train(side, put(tree, home), step)


def restore_every_outcome(side, found: Survey, home):
    """Go on from one crash of every outcome: as recovery does, in a directory of its own, by the framework."""
    leaves = record(side).leaves
    chosen = {}
    for number, (step, crash) in enumerate(found.outcomes.values()):
        if step is not None:  # the run was to stop there: nothing is trained
            assert run_on(side, crash.tree, home / str(number), step) == leaves[step], crash.how
        chosen.setdefault(step, crash)
    return chosen


def check_faults(found: Survey):
    assert not found.faults, f"{len(found.faults)} of {found.judged} crashes:\n" + "\n".join(found.faults[:5])


@pytest.mark.parametrize("side", SIDES)
def test_after_any_crash_of_a_save_the_old_or_the_new_checkpoint_is_gone_on_from(side, tmp_path):
    found = survey(record(side), SECOND, most=ENOUGH[side])

    check_faults(found)
    assert found.judged == ENOUGH[side]
    assert found.apart > 5_000
    assert found.again > 500
    assert {step for step, _ in found.outcomes.values()} == {OLD, NEW}
    chosen = restore_every_outcome(side, found, tmp_path)
    clean = {OLD: record(side).old, NEW: record(side).new}
    for step, crash in chosen.items():
        expected = run_on(side, clean[step], tmp_path / f"clean {step}", FURTHER)
        assert run_on(side, crash.tree, tmp_path / f"crashed {step}", FURTHER) == expected


@pytest.mark.parametrize("side", SIDES)
def test_after_any_crash_of_the_first_save_a_run_starts_over_or_goes_on_from_it(side, tmp_path):
    found = survey(record(side), FIRST, most=1_000)

    check_faults(found)
    assert {step for step, _ in found.outcomes.values()} == {None, OLD}
    restore_every_outcome(side, found, tmp_path)
    expected = train(side, tmp_path / "clean", OLD)
    for number, (step, crash) in enumerate(found.outcomes.values()):
        if step is None:
            assert run_on(side, crash.tree, tmp_path / f"over {number}", OLD) == expected, crash.how


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("save", [FIRST, SECOND])
def test_after_any_crash_the_records_before_the_checkpoint_are_there(side, save):
    found = survey(record(side), save, most=1_000)

    assert not found.records, f"{len(found.records)} times:\n" + "\n".join(found.records[:5])


@pytest.mark.soak
@pytest.mark.parametrize("side", SIDES)
def test_ten_times_as_many_crashes(side, tmp_path):
    found = survey(record(side), SECOND, most=10 * ENOUGH[side])

    check_faults(found)
    assert found.judged == 10 * ENOUGH[side]
    restore_every_outcome(side, found, tmp_path)

"""Retention and pointers: a run stopped and continued leaves what the policy keeps; planted rules are found."""

from dataclasses import replace

import pytest

from parity import sides
from parity.errors import RunDirectoryError, SpecError
from parity.runs import QUIET, RunDirectory, train
from parity.spec import load
from parity.state import leaf_digests
from tests.faults.fault import MLP, Planted, nothing
from tests.faults.policies import ACCURACY, BY_AUDIT, audit

SPEC = load(MLP[0], None, [*MLP[1], "save.keep_latest=2", "save.keep_best=1", "steps=60", "schedule.horizon=80"])


def scripted(trainer):
    evaluate = trainer.evaluate
    trainer.evaluate = lambda: evaluate()._replace(value=ACCURACY[trainer.step])


def trained(side, plant, path):
    """Train to step 30, and to the end in a second process start; return the audit, or why that start was refused."""
    planted = Planted(side, scripted, plant)
    try:
        for steps in (30, 60):
            train(planted, side, replace(SPEC, steps=steps), path, observers=QUIET)
    except RunDirectoryError as error:
        return [str(error).partition(": ")[2].partition(",")[0]]
    return audit(RunDirectory(path), SPEC)


@pytest.mark.parametrize("side", ["torch", "jax"])
def test_a_sound_run_passes_the_audit(side, tmp_path):
    assert trained(side, nothing, tmp_path) == []


@pytest.mark.parametrize("side", ["torch", "jax"])
@pytest.mark.parametrize("name", BY_AUDIT)
def test_a_planted_rule_is_found(name, side, tmp_path):
    plant, said = BY_AUDIT[name]
    assert said in trained(side, plant, tmp_path)


def test_keep_all_cannot_be_written_as_a_negative_number():
    """keep_all_deletes_all: no number means "all", so none can be compared with a count."""
    with pytest.raises(SpecError, match=r"save\.keep_latest: must be above 0, got -1"):
        load("mlp-digits", None, ["save.keep_latest=-1"])


def _followed(trainer):
    """Tell whether an exported state changes when the trainer goes on."""
    list(trainer.steps(5))
    state = trainer.export_state()
    before = leaf_digests(state)
    list(trainer.steps(10))
    return leaf_digests(state) != before


@pytest.mark.parametrize("side", ["torch", "jax"])
def test_an_exported_state_stays_as_it_was(side):
    assert not _followed(sides.load(side).build(SPEC))


def test_best_weights_by_reference_follow_the_run(monkeypatch):
    monkeypatch.setattr("torch_side.state._copied", lambda value: value.detach().cpu().numpy())
    assert _followed(sides.load("torch").build(SPEC))

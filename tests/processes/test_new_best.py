"""A new best between two saves is saved at once, and no checkpoint names a best that is not on disk."""

import json

import pytest

from parity import sides
from parity.errors import SpecError
from parity.runs import Observers, RunDirectory, train
from parity.spec import load

SMALL = ["model.hidden=[16]", "batch=16", "execution.chunk=5", "data.validation=100"]
STEPS = 60


def spec_of(*overrides):
    return load("mlp-digits", None, [*SMALL, f"steps={STEPS}", *overrides])


def trained(side, path, *overrides, plant=lambda trainer: None):
    """Train; return the run, what was said, and validations by step."""
    said, metrics = [], {}
    chosen = sides.load(side)

    class Planted:
        topology = staticmethod(chosen.topology)

        @staticmethod
        def build(*args, **options):
            trainer = chosen.build(*args, **options)
            plant(trainer)
            return trainer

    def on_validation(validation):
        metrics[validation.step] = validation.value

    observers = Observers(log=said.append, on_validation=on_validation)
    train(Planted, side, spec_of(*overrides), path, observers=observers)
    return RunDirectory(path), said, metrics


def scripted(values):
    """Return a plant that replaces what validations measure."""

    def plant(trainer):
        evaluate = trainer.evaluate
        trainer.evaluate = lambda: evaluate()._replace(value=values[trainer.step])

    return plant


def best_in_state(run, step):
    """Return what the state of a checkpoint says is the best."""
    path = run.checkpoints / str(step)
    file = path / "meta.json" if (path / "meta.json").exists() else path / "meta" / "metadata"
    return json.loads(file.read_text())["scalars"]["best"]


VALUES = {7: 0.3, 14: 0.5, 21: 0.4, 28: 0.9, 35: 0.8, 42: 0.9, 49: 0.1, 56: float("inf")}
"""A validation every 7 steps; a save every 20."""


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_new_best_is_saved_where_intervals_do_not_meet(side, tmp_path):
    intervals = ["save.every=20", "validate_every=7", "save.keep_latest=9"]
    run, said, _ = trained(side, tmp_path / "run", *intervals, plant=scripted(VALUES))
    assert [s.step for s in run.store.scan().whole] == [7, 14, 20, 28, 40, 42, 60], (
        "an equal metric later is a new best"
    )
    assert run.store.pointed("best").step == 42
    assert (
        "save.every=20 and validate_every=7 never meet in 60 steps: a validation that is a new best is saved at once "
        "(save.on_best)"
    ) in said
    assert {step: (best_in_state(run, step) or {}).get("step") for step in (7, 20, 28, 40, 42, 60)} == {
        7: 7,
        20: 14,
        28: 28,
        40: 28,
        42: 42,
        60: 42,
    }


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_without_it_no_state_names_a_best_that_was_not_saved(side, tmp_path):
    intervals = ["save.every=20", "validate_every=7", "save.on_best=never"]
    run, said, _ = trained(side, tmp_path / "run", *intervals, plant=scripted(VALUES))
    assert [s.step for s in run.store.scan().whole] == [20, 40, 60]
    assert run.store.pointed("best") is None
    assert {best_in_state(run, step) for step in (20, 40, 60)} == {None}
    (line,) = [line for line in said if "validate_every" in line]
    assert "no other validation can be the best checkpoint; --set save.on_best=always" in line


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_validations_more_often_than_saves_name_only_what_was_saved(side, tmp_path):
    values = {step: (0.9 if step == 30 else step / 100) for step in range(10, 70, 10)}
    run, said, _ = trained(side, tmp_path / "run", "save.every=20", "validate_every=10", plant=scripted(values))
    assert best_in_state(run, 40) == {"metric": 0.4, "step": 40}
    assert not [line for line in said if "validate_every" in line], "every save has a metric"


@pytest.mark.breaks_first("torch")
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_it_survives_a_restart(side, tmp_path):
    intervals = ["save.every=20", "validate_every=7", "save.keep_latest=1"]
    path = tmp_path / "run"
    trained(side, path, *intervals, "steps=30", plant=scripted(VALUES))
    run, _, _ = trained(side, path, *intervals, plant=scripted(VALUES))
    assert [s.step for s in run.store.scan().whole] == [42, 60]
    assert best_in_state(run, 60) == {"metric": 0.9, "step": 42}


@pytest.mark.parametrize(
    ("overrides", "at_once", "warned"),
    [
        (["save.every=100", "validate_every=100"], False, False),
        (["save.every=100", "validate_every=50"], False, False),
        (["save.every=50", "validate_every=100"], False, False),
        (["save.every=100", "validate_every=30"], True, True),
        (["save.every=100", "validate_every=50", "save.on_best=always"], True, False),
        (["save.every=100", "validate_every=30", "save.on_best=never"], False, True),
        (["save.every=100", "validate_every=30", "save.keep_best=0"], False, False),
        (["save.every=100", "validate_every=0"], False, False),
    ],
)
def test_when_it_is_on(overrides, at_once, warned):
    spec = load("mlp-digits", None, overrides)
    assert spec.plan.saves_new_best == at_once
    assert (spec.plan.warning() is not None) == warned


@pytest.mark.parametrize("without", ["save.keep_best=0", "validate_every=0"])
def test_without_effect_it_is_refused(without):
    with pytest.raises(SpecError, match=r"save\.on_best: 'always' has no effect"):
        load("mlp-digits", None, ["save.on_best=always", without])

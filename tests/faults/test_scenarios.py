"""Each scenario of the twins' check: clean runs hold in all; a bug that shows in one is found there, and named."""

from dataclasses import replace
from functools import partial

import pytest

from parity.checks.scenarios import MEANINGS
from parity.reference.planned import check_scenarios, drive_here, plan_scenarios
from parity.spec import load, override
from parity.storage import read_lines
from parity.twins import factor
from tests.faults.fault import Planted, nothing
from tests.faults.plants import after_restore, reset, rewrite

# 1,637 samples in batches of 128 are 12 steps to an epoch; the schedule ends where the run does.
SPEC = load(
    "mlp-digits",
    "float32",
    (
        *("steps=50", "save.every=10", "validate_every=10", "execution.chunk=5", "model.hidden=[16]"),
        *("schedule.warmup=8", "schedule.horizon=50", "batch=128", "data.validation=160"),
    ),
)
EPOCH = 12


def change(spec, changes):
    return override(spec, [f"{name}={value}" for name, value in changes.items()])


def check(side, path, scenarios, plant=nothing, base=nothing, spec=SPEC):
    planned, closed = plan_scenarios(scenarios, spec.plan, EPOCH)
    clean, faulty = Planted(side, base), Planted(side, base, plant)
    drive = partial(drive_here, spec, clean, spec.plan, path, planned, change=change, resuming=faulty)
    return check_scenarios(drive, closed, name=spec.name, precision=spec.precision, side=side)


def late_schedule(trainer):
    trainer.schedule_step += 1


def when(condition, spoil=late_schedule):
    """Return a plant that spoils a trainer behind a restore under a condition."""
    return after_restore(lambda trainer: spoil(trainer) if condition(trainer) else None)


def last_record(trainer):
    """Return the last step that the process before recorded."""
    run = trainer.checkpoints.store.path.parent
    return read_lines(run / "steps.jsonl")[-1]["step"]


def given_up_for(chosen):
    """Return a plant that loses the second moments of a checkpoint for which newer ones are given up."""

    def plant(trainer):
        store, whole = trainer.checkpoints.store, trainer.restore
        reset("optimizer.second_moment")(trainer)
        losing = trainer.restore
        trainer.restore = lambda step: (losing if max(store.steps()) > step and chosen(store, step) else whole)(step)

    return plant


def position_of_the_epoch_before(trainer):
    epoch, batch = trainer.counters.epoch, trainer.spec.batch
    trainer.feed.seek({"epoch": epoch, "batch": 0, "samples": epoch * EPOCH * batch, "batch_size": batch})


def never_started_twice(trainer):
    """What was restored once and not trained on is taken for done: its moments are dropped."""
    note = trainer.checkpoints.store.path.parent / "restored"

    def spoil(trainer):
        if note.exists() and note.read_text() == str(trainer.step):
            late_schedule(trainer)
        note.write_text(str(trainer.step))

    after_restore(spoil)(trainer)


def fresh_start_warmed_up(trainer):
    if trainer.attempt:
        late_schedule(trainer)


def horizon_of_the_process(trainer):
    shape = replace(trainer.spec.schedule, horizon=trainer.plan.steps)
    trainer.scheduler.lr_lambdas = [lambda step: factor(shape, step)]


def evaluation_changes_the_model(trainer):
    evaluate = trainer.evaluate

    def changing():
        rewrite(trainer, lambda leaves: {k: v * 1.5 for k, v in leaves.items() if k.startswith("model.params")})
        return evaluate()

    trainer.evaluate = changing


FAULTS = {
    "kill": (when(lambda trainer: trainer.step == 20), nothing, "schedule.step"),
    "again": (never_started_twice, nothing, "schedule.step"),
    "third": (when(lambda trainer: trainer.attempt == 2 and trainer.step > 20), nothing, "schedule.step"),
    "first-save": (when(lambda trainer: trainer.step == 10), nothing, "schedule.step"),
    "before-save": (fresh_start_warmed_up, nothing, "schedule.step"),
    "at-zero": (when(lambda trainer: trainer.step == 0), nothing, "schedule.step"),
    "epoch-end": (
        when(lambda trainer: trainer.step % EPOCH == 0 and trainer.step > 0, position_of_the_epoch_before),
        nothing,
        "data.position",
    ),
    "mid-epoch": (when(lambda trainer: trainer.step % EPOCH == EPOCH // 2), nothing, "schedule.step"),
    "on-validation": (when(lambda trainer: last_record(trainer) == 20), nothing, "schedule.step"),
    "off-validation": (when(lambda trainer: last_record(trainer) == 15), nothing, "schedule.step"),
    "intervals": (nothing, evaluation_changes_the_model, "model.params"),
    "best": (
        given_up_for(lambda store, step: store.pointed_step("best") == step),
        nothing,
        "optimizer.second_moment",
    ),
    "older": (given_up_for(lambda store, step: True), nothing, "optimizer.second_moment"),
    "extend": (horizon_of_the_process, nothing, "schedule.step"),
}
"""The scenario in which it shows, what is planted into resumed runs, into both, and what must be suspected first."""
OTHERS = {"kill": ("intervals",), "before-save": ("intervals",)}
"""Scenarios beside which a fault must not show; `kill` where nothing is named."""


@pytest.mark.parametrize("scenario", FAULTS)
def test_a_fault_of_one_scenario_is_found_there_and_named(scenario, tmp_path):
    plant, base, suspect = FAULTS[scenario]
    quiet = OTHERS.get(scenario, ("kill",))
    record = check("torch", tmp_path, (*quiet, scenario), plant, base)
    assert record.verdict == "broken"
    assert record.suspects[0] == suspect, record.notes
    assert record.notes
    assert {note.partition(":")[0] for note in record.notes} == {f"scenario {scenario}"}, (
        "the quick scenario does not see it"
    )


@pytest.mark.parametrize(("side", "scenarios"), [("torch", tuple(MEANINGS)), ("jax", ("at-zero", "best", "extend"))])
def test_a_clean_run_holds_on_its_scenarios(side, scenarios, tmp_path):
    """JAX compiles anew at every process start: it takes those that no other test takes; the rest is in the soak."""
    record = check(side, tmp_path, scenarios)
    assert record.verdict == "holds", record.notes
    assert record.notes == ()
    assert record.steps_compared == SPEC.steps


def test_every_scenario_has_its_fault():
    assert set(FAULTS) == set(MEANINGS)


def test_scenarios_that_a_run_cannot_be_driven_along_are_listed_with_the_reason():
    bare = override(SPEC, ["validate_every=0", "save.every=1", "save.keep_latest=1"])
    planned, closed = plan_scenarios(tuple(MEANINGS), bare.plan, None)
    assert [scenario.name for scenario in planned] == [
        "kill",
        "again",
        "third",
        "first-save",
        "at-zero",
        "intervals",
        "extend",
    ]
    assert set(closed) == set(MEANINGS) - {scenario.name for scenario in planned}
    assert closed["before-save"] == "the first step is saved"
    assert closed["older"] == "one checkpoint is kept"
    assert closed["epoch-end"] == "no later epoch ends within the 50 steps"

"""Twins with every schedule of `parity.schedules`: the same rates on both sides, which cross and resume."""

from pathlib import Path
from typing import Any

import pytest

import jax_side
import torch_side
from parity import sides
from parity.errors import ScheduleError, SpecError, StateError, UnknownNameError
from parity.reference.across import run_from
from parity.schedules import RULES
from parity.spec import RunSpec, from_toml, identity_of, override, to_toml
from parity.state import compare_states
from tests.support.options import RULE_TEXTS
from tests.support.small import bits_of, small, with_leaf

STEPS, MIDDLE = 12, 5
SIDES = ("jax", "torch")
FAST = ("one_cycle", "beside")
"""Rules that move the momentum, and by a metric and by steps."""

each_rule = pytest.mark.parametrize("kind", RULE_TEXTS)
each_side = pytest.mark.parametrize("side", SIDES)


def run(kind: str, *more: str) -> RunSpec:
    rule = ["schedule.kind=rule", f"schedule.rule={{{RULE_TEXTS[kind]}}}", "validate_every=2"]
    momentum = ["optimizer.momentum=0.9", "data.validation=16"]
    return small("linear-regression", "float64", *momentum, *rule, *more)


def test_every_rule_is_here() -> None:
    assert RULE_TEXTS.keys() == RULES.keys()


@each_rule
def test_a_rule_reads_back_from_text(kind: str) -> None:
    spec = run(kind)
    assert from_toml(to_toml(spec)) == spec
    assert spec.schedule.rule.kind == kind  # type: ignore[union-attr]


@each_rule
def test_both_sides_have_the_same_rates_and_the_position_crosses(kind: str) -> None:
    spec = run(kind)
    theirs, again, ours = torch_side.build(spec), torch_side.build(spec), jax_side.build(spec)
    assert ours.step_inputs(0, MIDDLE).lr[0] == theirs.optimizer.param_groups[0]["lr"]
    run_from(theirs, MIDDLE)
    state = theirs.export_state()
    ours.import_state(state)
    assert compare_states(state, ours.export_state()) == []
    again.import_state(ours.export_state())
    assert compare_states(state, again.export_state()) == []
    expected = ours.step_inputs(MIDDLE, 1).lr.tolist()
    curves = [run_from(trainer, STEPS) for trainer in (theirs, again)]
    assert bits_of([*curves[0].values()]) == bits_of([*curves[1].values()])
    assert expected == [curves[0][MIDDLE + 1].lr]
    rates = {record.lr for record in curves[0].values()}
    assert len(rates) > 1 or kind == "constant", "a schedule that never moves would prove nothing"


each_trained = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in FAST else pytest.mark.soak) for kind in RULE_TEXTS]
)


@each_trained
@pytest.mark.takes_seconds
def test_the_twins_agree_and_resume_from_files(kind: str, tmp_path: Path) -> None:
    spec = run(kind)
    curves = {}
    for side in SIDES:
        whole, first, second = (sides.load(side).build(spec, tmp_path / d if d else None) for d in ("", side, side))
        curves[side] = run_from(whole, STEPS)
        run_from(first, MIDDLE)
        first.save(None)
        first.close()
        assert second.restore("latest") == MIDDLE
        assert compare_states(first.export_state(), second.export_state()) == []
        rest = run_from(second, STEPS)
        assert bits_of([*rest.values()]) == bits_of([curves[side][step] for step in rest])
        left = compare_states(whole.export_state(), second.export_state())
        assert [difference for difference in left if difference.leaf != "best"] == []
        second.close()
    for a, b in zip(curves["jax"].values(), curves["torch"].values(), strict=True):
        assert a.lr == b.lr
        assert abs(a.loss - b.loss) < 1e-12 * max(1.0, abs(b.loss))


@pytest.mark.takes_seconds
@each_side
def test_a_plateau_follows_the_metric_of_validations_that_are_due(side: str) -> None:
    trainer: Any = sides.load(side).build(run("plateau"))
    rates = []
    for _ in range(3):
        rates += [record.lr for record in trainer.steps(trainer.step + 2)]
        trainer.evaluate()
        trainer.evaluate()  # the second one of a step moves nothing
    assert rates == [0.1, 0.1, 0.1, 0.1, 0.05, 0.05]
    assert trainer.export_state().scalars["schedule.measured"] == 6
    list(trainer.steps(7))
    before = trainer.export_state().scalars["schedule.position"]
    trainer.evaluate()  # none is due at step 7
    assert trainer.export_state().scalars["schedule.position"] == before


@each_side
def test_a_position_that_is_none_is_refused_and_changes_nothing(side: str) -> None:
    trainer: Any = sides.load(side).build(run("step"))
    list(trainer.steps(3))
    state = trainer.export_state()
    for leaf, value in (("schedule.position", {"epoch": 1}), ("schedule.groups", None), ("schedule.schema", 9)):
        with pytest.raises(StateError, match="schedule"):
            trainer.import_state(with_leaf(state, leaf, value))
        assert compare_states(state, trainer.export_state()) == []
    with pytest.raises(StateError, match=r"schedule\.rule: belongs to a run of another schedule"):
        trainer.import_state(with_leaf(state, "schedule.rule", {**state.scalars["schedule.rule"], "gamma": 0.25}))


def test_constants_of_a_scheduler_that_changed_are_found() -> None:
    trainer = torch_side.build(run("step"))
    list(trainer.steps(2))
    trainer.scheduler.parts[0].gamma = 0.25  # type: ignore[union-attr]
    with pytest.raises(StateError, match=r"schedule\.rule: expected Step\(.*PyTorch's scheduler has Step"):
        trainer.export_state()


BAD: list[tuple[list[str], type[Exception], str]] = [
    (['schedule.rule={kind="triangle"}'], UnknownNameError, "unknown rule 'triangle'"),
    (['schedule.rule={kind="step"}'], SpecError, "schedule.rule: "),
    (['schedule.rule={kind="one_cycle", peak=1.0}'], SpecError, "schedule.rule: "),
    (["schedule.rule=5"], SpecError, "schedule.rule: "),
    (["schedule.warmup=5"], UnknownNameError, "unknown field 'schedule.warmup'"),
    (
        ["optimizer.momentum=0.0", f"schedule.rule={{{RULE_TEXTS['cyclic']}}}"],
        SpecError,
        "moves the momentum, and sgd",
    ),
    ([f"schedule.rule={{{RULE_TEXTS['plateau']}}}", "validate_every=0"], SpecError, "validate_every is 0"),
]


@pytest.mark.parametrize(("texts", "error", "words"), BAD)
def test_a_rule_that_cannot_be_is_refused(texts: list[str], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        override(run("step"), texts)


def test_a_rule_for_other_groups_is_refused() -> None:
    spec = override(run("step"), ['schedule.rule={kind="cyclic", base_lr=[0.1, 0.2, 0.3], max_lr=1.0}'])
    for side in SIDES:
        with pytest.raises(ScheduleError, match="3 values for 1 parameter groups"):
            sides.load(side).build(spec)


def test_how_often_a_run_validates_is_free_unless_its_rates_follow() -> None:
    for kind, differs in (("step", False), ("plateau", True)):
        spec = run(kind)
        other = override(spec, ["validate_every=3"])
        assert bool(identity_of(spec).differences(to_toml(other))) == differs
        assert (identity_of(spec).hash("data") != identity_of(other).hash("data")) == differs

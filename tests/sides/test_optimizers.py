"""Twins with every optimizer: they agree in float64, their states cross, and their runs resume from files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity import sides
from parity.errors import SpecError
from parity.spec import OPTIMIZER_SPECS, RunSpec
from parity.state import OPTIMIZERS, compare_states
from tests.support.options import CASES
from tests.support.small import bits_of, overflowing, small

STEPS = 12
SIDES = ("jax", "torch")
FAST = ("nadam", "rmsprop", "adagrad", "adafactor", "lion", "adamw in groups")
"""Those that together have a slot of every form, one that is there from the start, no count, no class in torch."""


def cases(fast: tuple[str, ...]) -> pytest.MarkDecorator:
    """Return all cases, of which all but some wait for the soak."""
    marked = [pytest.param(case, marks=[] if case in fast else pytest.mark.soak) for case in CASES]
    return pytest.mark.parametrize("case", marked)


def run(case: str, precision: Any = "float64", *more: str) -> RunSpec:
    preset, overrides = CASES[case]
    return small(preset, precision, *overrides, *more)


def relative(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """Return the largest difference relative to the largest value, at least 1."""
    pair = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.abs(pair[0] - pair[1]).max(initial=0) / max(1.0, np.abs(pair[1]).max(initial=0)))


def test_every_optimizer_of_the_table_is_here() -> None:
    assert {case.split()[0] for case in CASES} == {name.lower() for name in OPTIMIZERS} == {*OPTIMIZER_SPECS}


@cases(FAST)
@pytest.mark.takes_seconds
def test_the_twins_agree_and_their_states_cross_bit_for_bit(case: str) -> None:
    spec = run(case)
    ours, theirs = (sides.load(side).build(spec) for side in SIDES)
    assert compare_states(ours.export_state(), theirs.export_state()) == []
    curves = [list(trainer.steps(STEPS)) for trainer in (ours, theirs)]
    for a, b in zip(*curves, strict=True):
        assert (a.lr, a.batch, a.skipped) == (b.lr, b.batch, b.skipped)
        assert relative(a.loss, b.loss) < 1e-12, a.step
    states = [trainer.export_state() for trainer in (ours, theirs)]
    assert states[0].arrays.keys() == states[1].arrays.keys()
    assert max(relative(value, states[1].arrays[leaf]) for leaf, value in states[0].arrays.items()) < 1e-12
    for state, other in zip(states, reversed(SIDES), strict=True):
        crossed: Any = sides.load(other).build(spec)
        crossed.import_state(state)
        assert compare_states(state, crossed.export_state()) == []
    rest = [list(trainer.steps(STEPS + 5)) for trainer in (ours, crossed)]
    assert all(relative(a.loss, b.loss) < 1e-12 for a, b in zip(*rest, strict=True))


@cases(("nadam", "adafactor"))
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.takes_seconds
def test_a_run_resumes_from_its_checkpoint_bit_for_bit(case: str, side: str, tmp_path: Path) -> None:
    spec = run(case, "float32")
    whole, first, second = (sides.load(side).build(spec, tmp_path / d if d else None) for d in ("", "a", "a"))
    curve = list(whole.steps(2 * STEPS))
    list(first.steps(STEPS))
    first.save(None)
    first.close()
    assert second.restore("latest") == STEPS
    assert compare_states(first.export_state(), second.export_state()) == []
    assert bits_of(list(second.steps(2 * STEPS))) == bits_of(curve[STEPS:])
    assert [d for d in compare_states(whole.export_state(), second.export_state()) if d.leaf != "best"] == []
    second.close()


@cases(("adagrad", "adafactor"))
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.takes_seconds
def test_a_skipped_first_step_leaves_the_start(case: str, side: str) -> None:
    """A handover before the first update must start torch's entries as torch would."""
    spec = run(case, "float16", *overflowing("float16", 1), "execution.chunk=1")
    trainer, other = (sides.load(one).build(spec) for one in (side, *(s for s in SIDES if s != side)))
    before = trainer.export_state()
    assert [record.skipped for record in trainer.steps(1)] == [True]
    after = trainer.export_state()
    changed = {d.leaf.split(".")[0] for d in compare_states(before, after)}
    assert "optimizer" not in changed
    other.import_state(after)
    assert compare_states(after, other.export_state()) == []


@pytest.mark.takes_seconds
@pytest.mark.parametrize("side", SIDES)
def test_a_group_has_its_own_rate_and_decay(side: str) -> None:
    groups = "optimizer.groups=[{names=['*.bias'], lr=1e-30}, {names=['layers.1.*'], ndim=[2], weight_decay=10.0}]"
    overrides = ["optimizer.kind=sgd", "optimizer.lr=0.1", "optimizer.weight_decay=0.0", "optimizer.momentum=0.0"]
    spec = small("mlp-digits", "float64", *overrides, groups, "schedule.warmup=0", "clip_norm=1e-9")
    trainer: Any = sides.load(side).build(spec)
    before = trainer.export_state().group("model.params")
    assert [record.lr for record in trainer.steps(1)] == [1e-30], "the record names the rate of the first group"
    after = trainer.export_state().group("model.params")
    moved = {name for name, value in after.items() if np.abs(value - before[name]).max() > 1e-20}
    assert moved == {"layers.0.weight", "layers.1.weight"}
    decayed = np.abs(after["layers.1.weight"] / before["layers.1.weight"])
    assert decayed.max() < 1e-5, "a rate of 0.1 and a decay of 10 leave nothing but the clipped step"


BAD: list[tuple[list[str], str]] = [
    (["optimizer.decay=matrices", "optimizer.groups=[{ndim=[1]}]"], r"optimizer\.decay: has no effect beside"),
    (["optimizer.groups=[{}, {lr=0.1}]"], r"optimizer\.groups: 2 groups have no condition"),
    (["optimizer.groups=[{lr=nan}]"], r"optimizer\.groups\.lr: must be finite"),
    (["optimizer.kind=rprop", "optimizer.groups=[{ndim=[1], weight_decay=0.1}]"], "Rprop has no weight_decay"),
    (["optimizer.groups=5"], r"optimizer\.groups: must be a list"),
]


@pytest.mark.parametrize(("texts", "words"), BAD)
def test_groups_that_cannot_be_are_refused(texts: list[str], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        small("mlp-digits", "float64", *texts)


@pytest.mark.parametrize("side", SIDES)
def test_a_group_that_takes_nothing_is_refused_by_both_sides(side: str) -> None:
    spec = small("mlp-digits", "float64", "optimizer.groups=[{names=['head.*']}]")
    with pytest.raises(SpecError, match=r"groups: group 0: takes none of the parameters layers\.0\.bias"):
        sides.load(side).build(spec)

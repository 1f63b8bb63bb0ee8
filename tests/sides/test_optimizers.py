"""Twins with every optimizer: they agree in float64, their states cross, and their runs resume from files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity import sides
from parity.spec import OPTIMIZER_SPECS, RunSpec
from parity.state import OPTIMIZERS, compare_states
from tests.support.small import bits_of, overflowing, small

STEPS = 12
SIDES = ("jax", "torch")
CASES: dict[str, tuple[str, list[str]]] = {
    "adam": ("mlp-digits", ["optimizer.kind=adam", "optimizer.amsgrad=true", "optimizer.decay=matrices"]),
    "adamw": ("mlp-digits", ["optimizer.maximize=true"]),
    "sgd": ("mlp-digits", ["optimizer.kind=sgd", "optimizer.dampening=0.3"]),
    "nadam": ("mlp-digits", ["optimizer.kind=nadam", "optimizer.decoupled_weight_decay=true"]),
    "radam": ("mlp-digits", ["optimizer.kind=radam"]),
    "adamax": ("mlp-digits", ["optimizer.kind=adamax"]),
    "rmsprop": (
        "cnn-digits",
        ["optimizer.kind=rmsprop", "optimizer.centered=true", "optimizer.momentum=0.9", "optimizer.lr=0.001"],
    ),
    "adagrad": ("mlp-digits", ["optimizer.kind=adagrad", "optimizer.initial_accumulator_value=0.1"]),
    "adadelta": ("mlp-digits", ["optimizer.kind=adadelta", "optimizer.lr=1.0"]),
    "rprop": ("mlp-digits", ["optimizer.kind=rprop"]),
    "asgd": ("mlp-digits", ["optimizer.kind=asgd", "optimizer.lr=0.05", "optimizer.t0=4"]),
    "adafactor": ("mlp-digits", ["optimizer.kind=adafactor", "optimizer.decay=matrices"]),
    "muon": ("mlp-digits", ["optimizer.kind=muon", "optimizer.lr=0.02"]),
    "lion": ("mlp-digits", ["optimizer.kind=lion"]),
    "adafactor of convolutions": ("cnn-digits", ["optimizer.kind=adafactor"]),
    "muon of a gpt": ("gpt-text", ["optimizer.kind=muon", "optimizer.adjust_lr_fn=match_rms_adamw"]),
}
"""Case to preset and overrides; the first word is the optimizer."""

FAST = ("nadam", "rmsprop", "adagrad", "adafactor", "lion")
"""Those that together have a slot of every form, one that is there from the start, no count, no class in torch."""

each_case = pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[] if c in FAST else pytest.mark.soak) for c in CASES]
)


def run(case: str, precision: Any = "float64", *more: str) -> RunSpec:
    preset, overrides = CASES[case]
    return small(preset, precision, *overrides, *more)


def relative(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """Return the largest difference relative to the largest value, at least 1."""
    pair = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.abs(pair[0] - pair[1]).max(initial=0) / max(1.0, np.abs(pair[1]).max(initial=0)))


def test_every_optimizer_of_the_table_is_here() -> None:
    assert {case.split()[0] for case in CASES} == {name.lower() for name in OPTIMIZERS} == {*OPTIMIZER_SPECS}


@each_case
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


@each_case
@pytest.mark.parametrize("side", SIDES)
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


@each_case
@pytest.mark.parametrize("side", SIDES)
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

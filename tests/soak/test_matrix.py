"""The full product of presets, precisions and sides: `make soak`, about 40 minutes on two cores."""

from dataclasses import replace

import pytest

from parity import sides
from parity.checks.scenarios import MEANINGS
from parity.reference import check_twin_resume, check_twin_scenarios, drill_spec, with_overflows
from parity.reference.across import TwinPair, check_handover, check_twins, losses, run_from
from parity.spec import PRECISIONS, PRESETS, preset

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("compiled_anew")]

SHORT = 200
"""Steps of a run in which every step counts; float16 is slow on CPU."""
LONG = 1000
PATHS = (("jax", "torch"), ("torch", "jax"), ("jax", "torch", "jax"), ("torch", "jax", "torch"))


@pytest.mark.parametrize("side", ["jax", "torch"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_resumes_bitwise_in_every_precision(name, precision, side, tmp_path):
    spec = with_overflows(drill_spec(preset(name, precision), SHORT))
    record = check_twin_resume(spec, side, sides.load(side), tmp_path)
    assert record.verdict == "holds", record
    assert record.steps_compared == SHORT


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_agrees_and_can_be_handed_over_in_every_precision(name, precision):
    steps = LONG if precision == "float64" else SHORT
    spec = with_overflows(replace(drill_spec(preset(name, precision), SHORT), steps=steps))
    pair = TwinPair(spec, {side: sides.load(side) for side in ("jax", "torch")}, cache=False)
    records = [check_twins(pair), *(check_handover(pair, path) for path in PATHS)]
    assert [r.verdict for r in records] == ["holds"] * 5, records
    if precision == "float64":
        assert pair.floor < 1e-13


@pytest.mark.parametrize("name", PRESETS)
def test_scan_and_loop_are_bitwise_equal_over_a_thousand_steps(name):
    spec = preset(name)
    side = sides.load("jax")
    loop = replace(spec, execution=replace(spec.execution, jax="loop"))
    assert losses(run_from(side.build(spec), LONG)) == losses(run_from(side.build(loop), LONG))


@pytest.mark.parametrize("side", ["jax", "torch"])
@pytest.mark.parametrize("name", ["mlp-digits", "cnn-digits", "gpt-text"])
def test_every_preset_holds_in_all_scenarios(name, side, tmp_path):
    spec = drill_spec(preset(name, "float32"), SHORT)
    record = check_twin_scenarios(spec, side, sides.load(side), tmp_path, tuple(MEANINGS))
    assert record.verdict == "holds", record
    assert record.steps_compared == SHORT

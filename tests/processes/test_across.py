"""A covering choice of presets and precisions across sides; the full product is `make soak`."""

from dataclasses import replace

import pytest

from parity import sides
from parity.reference import check_twin_resume, drill_spec, with_overflows
from parity.reference.across import TwinPair, check_handover, check_twins
from parity.spec import load

SMALL_GPT = ("model.width=16", "model.layers=1", "model.heads=2", "model.tied=true", "model.embedding_std=0.02")
PATHS = (("jax", "torch"), ("torch", "jax"), ("jax", "torch", "jax"), ("torch", "jax", "torch"))
CASES = [
    ("mlp-digits", "float64", 1000, ()),
    ("cnn-digits", "float64", 1000, ()),
    ("gpt-text", "float64", 100, ()),
    ("linear-regression", "float64", 1000, ()),
    ("linear-regression", "float32", 50, ("model.outputs=3", "optimizer.momentum=0.9", "accumulation=4")),
    (
        "linear-regression",
        "float64",
        200,
        ("model.kind=mlp", "model.hidden=[16]", "model.inputs=8", "model.classes=3"),
    ),
    ("mlp-digits", "float32", 100, ()),
    ("cnn-digits", "bfloat16", 50, ("model.channels=[4, 8]",)),
    ("gpt-text", "float16", 20, SMALL_GPT),
]


@pytest.mark.parametrize(("name", "precision", "steps", "overrides"), CASES)
def test_twins_agree_and_runs_can_be_handed_over(name, precision, steps, overrides):
    spec = with_overflows(replace(drill_spec(load(name, precision, overrides), 20), steps=steps))
    pair = TwinPair(spec, {side: sides.load(side) for side in ("jax", "torch")}, cache=False)
    records = [check_twins(pair), *(check_handover(pair, path) for path in PATHS)]
    assert [r.verdict for r in records] == ["holds"] * 5, records
    if precision == "float64":
        assert pair.floor < 1e-13, "the preset's own noise floor lets float64 judge"
    if precision == "float16":
        assert {s for s, r in pair.curve("torch").items() if r.skipped} == set(spec.scaler.overflow_steps)


@pytest.mark.processes
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_gpt_resumes_bitwise_in_bfloat16(side, tmp_path):
    record = check_twin_resume(
        drill_spec(load("gpt-text", "bfloat16", SMALL_GPT), 40), side, sides.load(side), tmp_path
    )
    assert record.verdict == "holds", record


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_sgd_whose_first_step_overflows_starts_from_zero_momentum(side):
    spec = load("cnn-digits", "float16", ["scaler.overflow_steps=[1]", "model.channels=[4, 8]", "execution.chunk=1"])
    trainer = sides.load(side).build(spec)
    assert [record.skipped for record in trainer.steps(1)] == [True]
    assert all((value == 0).all() for value in trainer.export_state().group("optimizer.momentum").values())


def test_two_kills_in_one_chunk_are_two_process_starts(tmp_path):
    spec = drill_spec(load("mlp-digits", None, ["model.hidden=[8]"]), 40)
    record = check_twin_resume(spec, "torch", sides.load("torch"), tmp_path, (19, 18, 19))
    assert record.verdict == "holds", record

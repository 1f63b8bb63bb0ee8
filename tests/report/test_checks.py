"""The checks keep what a report shows: curves, marks, bands, the resolved spec and digests."""

import pytest

from parity import sides
from parity.checks import SuiteRequest, run_checks
from parity.checks.across import ENVELOPE_LIMIT, FLOAT64_LIMIT, TwinPair, check_handover, check_twins
from parity.report.html import check_page
from parity.spec import from_toml, load
from tests.report.samples import ENVIRONMENT

pytestmark = pytest.mark.takes_seconds

SMALL = ("steps=12", "model.hidden=[8]", "batch=64", "data.validation=64", "execution.chunk=3")


@pytest.fixture(scope="module")
def pairs():
    both = {name: sides.load(name) for name in ("jax", "torch")}
    made = {p: TwinPair(load("mlp-digits", p, SMALL), both, seeds=2, cache=False) for p in ("float64", "float32")}
    yield made
    for pair in made.values():
        for trainer in pair.trainers.values():
            trainer.close()


def test_twins_keep_both_curves_and_what_passes(pairs):
    pair = pairs["float64"]
    record = check_twins(pair)
    a, b = pair.curve("jax"), pair.curve("torch")
    curves = record.curves
    assert record.verdict == "holds"
    assert curves.labels == ("jax", "torch")
    assert curves.steps == tuple(range(1, 13))
    assert curves.loss == (tuple(r.loss for r in a.values()), tuple(r.loss for r in b.values()))
    assert curves.difference == tuple(b[s].loss - a[s].loss for s in curves.steps)
    assert max(map(abs, curves.difference)) == record.max_abs_diff
    assert curves.allowed == tuple(FLOAT64_LIMIT * r.loss for r in a.values())
    assert curves.envelope is None


def test_twins_below_float64_keep_the_measured_envelope(pairs):
    pair = pairs["float32"]
    curves = check_twins(pair).curves
    assert curves.envelope == tuple(pair.envelope.width)
    assert curves.allowed == tuple(ENVELOPE_LIMIT["float32"] * pair.envelope.width)


def test_a_handover_keeps_where_it_changed_sides(pairs):
    pair = pairs["float64"]
    record = check_handover(pair, ("torch", "jax", "torch"))
    curves = record.curves
    assert record.verdict == "holds"
    assert curves.handovers == (6, 9)
    assert curves.labels == ("torch, uninterrupted", "torch > jax > torch")
    assert curves.total == 12
    assert curves.difference[:6] == (0.0,) * 6, "before it, both are one run"
    assert curves.allowed[:6] == (None,) * 6, "which is not judged"
    assert None not in curves.allowed[6:]


@pytest.mark.processes
def test_a_resume_keeps_its_kills_and_the_run_it_is_of(tmp_path):
    spec = load("mlp-digits", "float16", ("model.hidden=[8]", "batch=64", "data.validation=64"))
    request = SuiteRequest(
        checks=("resume",), specs=[spec], sides={"torch": sides.load("torch")}, steps=20, workdir=tmp_path
    )
    (record,) = run_checks(request, lambda line: None)
    curves, resolved = record.curves, from_toml(record.resolved.toml)
    assert record.verdict == "holds", record.notes
    assert curves.steps == tuple(range(1, 21))
    assert curves.kills == (10, 14)
    assert curves.resumes == (8, 12)
    assert curves.difference == (0.0,) * 20
    assert curves.skipped == resolved.scaler.overflow_steps
    assert curves.validations.steps == (4, 8, 12, 16, 20)
    assert (resolved.steps, resolved.model.hidden) == (20, (8,))
    assert len(record.resolved.hash) == 32
    assert record.digests["final state, resumed"] == record.digests["final state, uninterrupted"]
    assert set(record.digests) == {"data", "batches", "final state, uninterrupted", "final state, resumed"}
    assert "killed at step 10" in check_page([record], ENVIRONMENT)

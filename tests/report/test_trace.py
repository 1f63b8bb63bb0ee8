"""Traces: what a record keeps of two runs, whole when they are short, thinned by one rule when they are long."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from parity.checks import MOST_STEPS, digest_batches, digest_leaves, trace
from parity.checks.criteria import ENVELOPE_LIMIT, FLOAT64_LIMIT
from parity.contract import StepRecord, Validation
from parity.reference.across import Envelope, agree
from parity.reference.planned import LeafEvent, RunEvidence, describe_evidence, judge, trace_resume

LABELS = ("a", "b")
ONE, TWO = {"model.params.w": "float32[1] 11"}, {"model.params.w": "float32[1] 22"}


def record(step, loss=None, attempt=0, **fields):
    values = {
        "lr": 0.1,
        "grad_norm": 1.0,
        "loss_scale": 1.0,
        "skipped": False,
        "batch": f"{step:032x}",
        "epoch": 0,
        "samples": step,
        "seconds": 0.1,
    }
    return StepRecord(attempt=attempt, step=step, loss=1 / step if loss is None else loss, **(values | fields))


def curve(steps, **fields):
    return {step: record(step, **fields) for step in range(1, steps + 1)}


def test_a_short_run_is_kept_whole():
    a, b = curve(MOST_STEPS), curve(MOST_STEPS, lr=0.2)
    curves = trace(a, b, LABELS)
    assert curves.steps == tuple(range(1, MOST_STEPS + 1))
    assert curves.total == MOST_STEPS
    assert curves.loss == (tuple(r.loss for r in a.values()),) * 2
    assert set(curves.lr[0]) == {0.1}
    assert set(curves.lr[1]) == {0.2}
    assert curves.difference == (0.0,) * MOST_STEPS


def test_differences_are_the_second_run_less_the_first():
    a = {1: record(1, 0.5), 2: record(2, math.nan), 3: record(3, math.inf), 4: record(4, 1.0), 5: record(5, 1.0)}
    b = {1: record(1, 0.75), 2: record(2, math.nan), 3: record(3, math.inf), 4: record(4, math.nan)}
    found = trace(a, b, LABELS).difference
    assert found[:3] == (0.25, 0.0, 0.0)
    assert math.isnan(found[3])
    assert found[4] is None


def test_nothing_is_kept_of_nothing():
    assert trace({}, {}, LABELS) is None


@pytest.mark.parametrize("steps", [MOST_STEPS + 1, 1000, 12_345])
def test_a_long_run_keeps_its_extremes_and_where_it_parts(steps):
    draw = random.Random(steps)
    parted, spike, dip, steep, worst = sorted(draw.sample(range(2, steps), 5))
    a = curve(steps)
    a[spike], a[dip] = record(spike, 50.0), record(dip, -50.0)
    a[steep] = a[steep]._replace(grad_norm=1e6)
    b = dict(a)
    for step in range(parted, steps + 1):
        more = 1.0 if step == worst else 1e-12 if step == parted else 1e-9
        b[step] = b[step]._replace(loss=a[step].loss + more)
    curves = trace(a, b, LABELS, keep=(parted + 1, None), handovers=(steps // 3,))
    assert {1, parted, spike, dip, steep, worst, steps // 3, steps} <= set(curves.steps)
    assert list(curves.steps) == sorted(set(curves.steps))
    assert len(curves.steps) <= MOST_STEPS + 5
    assert curves.total == steps
    assert curves.loss[0] == tuple(a[step].loss for step in curves.steps)


def test_a_step_only_one_run_has_is_none_in_the_other():
    curves = trace(curve(3), curve(2), LABELS)
    assert curves.loss[1][2] is None
    assert curves.grad_norm[0][2] == 1.0


def evidence(records, resumed_from=(None,), validations=(), events=()):
    return RunEvidence(
        records=list(records), validations=list(validations), resumed_from=list(resumed_from), events=list(events)
    )


def killed():
    """Return a run of 10 steps, and one killed at 5 and 8, resumed from 4 and 6."""
    whole = evidence(curve(10).values(), events=[LeafEvent(event="final", attempt=0, step=10, leaves=ONE)])
    parts = [record(s, attempt=0) for s in range(1, 6)]
    parts += [record(s, attempt=1) for s in range(5, 9)] + [record(s, attempt=2) for s in range(7, 11)]
    final = LeafEvent(event="final", attempt=2, step=10, leaves=TWO)
    return whole, evidence(parts, (None, 4, 6), events=[final])


def test_kills_and_resumes_are_where_the_processes_were():
    curves = trace_resume(*killed())
    assert curves.kills == (5, 8)
    assert curves.resumes == (4, 6)
    assert curves.labels == ("uninterrupted", "killed and resumed")
    assert curves.difference == (0.0,) * 10


def test_a_process_that_died_before_its_first_record_was_killed_where_it_started():
    whole, resumed = killed()
    early = replace(resumed, records=[r for r in resumed.records if r.attempt != 1])
    assert trace_resume(whole, early).kills == (5, 4)


def test_validations_of_both_runs_are_kept():
    whole, resumed = killed()
    rows = [Validation(attempt=0, step=s, metric="accuracy", value=s / 10, loss=1.0) for s in (5, 10)]
    curves = trace_resume(replace(whole, validations=rows), replace(resumed, validations=rows[:1]))
    assert curves.validations.metric == "accuracy"
    assert curves.validations.steps == (5, 10)
    assert curves.validations.value == ((0.5, 1.0), (0.5, None))


def test_the_evidence_of_a_resume_is_described_by_curves_and_digests():
    whole, resumed = killed()
    fields = describe_evidence(whole, resumed, judge(whole, resumed, (None, 4, 6)))
    assert fields["digests"] == {
        "batches": digest_batches(whole.curve),
        "final state, uninterrupted": digest_leaves(ONE),
        "final state, resumed": digest_leaves(TWO),
    }
    assert fields["digests"]["final state, resumed"] != fields["digests"]["final state, uninterrupted"]
    assert fields["curves"].kills == (5, 8)


def test_a_digest_of_batches_tells_their_order():
    a = curve(3)
    swapped = {1: a[1]._replace(batch=a[2].batch), 2: a[2]._replace(batch=a[1].batch), 3: a[3]}
    assert digest_batches(a) != digest_batches(swapped)
    assert digest_batches(a) == digest_batches(dict(reversed(a.items())))


def none():
    raise AssertionError("not asked for in this precision")


def test_what_passes_in_float64_is_a_share_of_the_loss():
    a = curve(4)
    found = agree(a, a, "float64", floor=lambda: 1e-15, envelope=none)
    assert found.allowed == {step: FLOAT64_LIMIT * (1 / step) for step in a}
    assert found.envelope is None


def test_what_passes_below_float64_is_a_multiple_of_the_envelope():
    a = curve(4)
    width = np.array([1e-6, 2e-6, 3e-6, 4e-6])
    found = agree(
        a, a, "bfloat16", floor=none, envelope=lambda: Envelope(width=width, seeds=2, sides=("jax", "torch"))
    )
    assert found.envelope == {1: 1e-6, 2: 2e-6, 3: 3e-6, 4: 4e-6}
    assert found.allowed == {step: ENVELOPE_LIMIT["bfloat16"] * w for step, w in found.envelope.items()}

"""Two curves of different sides are judged by the criterion of their precision, and by that alone."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from parity.checks.criteria import ENVELOPE_LIMIT, FLOAT64_LIMIT, FLOAT64_NOISE_FLOOR
from parity.contract import StepRecord
from parity.reference.across import EXACT, Envelope, StepCurve, agree
from parity.results import Verdict
from parity.spec import Precision
from tests.support.small import record

LOSSES = {1: 4.0, 2: 2.0, 3: 1.0}
FORWARD, UPDATE = ("model.params", "rng"), ("optimizer", "model.buffers")
LATER: dict[str, Any] = {"batch": "ff", "epoch": 1, "samples": 1, "lr": 2e-3, "loss_scale": 2.0, "skipped": True}


def curve(losses: Mapping[int, float], **changes: Any) -> StepCurve:
    return {step: record(step, loss=loss, **changes) for step, loss in losses.items()}


def moved(step: int, relative: float) -> StepCurve:
    return curve({**LOSSES, step: LOSSES[step] * (1 + relative)})


def never() -> Any:
    raise AssertionError("measured though nobody asks")


def width(*values: float) -> Envelope:
    return Envelope(width=np.array(values), seeds=16, sides=("jax", "torch"))


@pytest.mark.parametrize(
    ("other", "verdict", "suspects"),
    [
        (moved(1, 0.0), "holds", ()),
        (moved(2, FLOAT64_LIMIT / 2), "holds", ()),
        (moved(1, 2 * FLOAT64_LIMIT), "broken", FORWARD),
        (moved(3, 2 * FLOAT64_LIMIT), "broken", UPDATE),
    ],
)
def test_in_float64_the_limit_decides_and_the_step_names_the_stage(
    other: StepCurve, verdict: Verdict, suspects: tuple[str, ...]
) -> None:
    found = agree(curve(LOSSES), other, "float64", floor=lambda: 0.0, envelope=never)
    assert (found.verdict, found.criterion, found.suspects) == (verdict, "float64", suspects)
    assert found.allowed == {step: FLOAT64_LIMIT * loss for step, loss in LOSSES.items()}
    assert (found.first is None) == (verdict == "holds")


@pytest.mark.parametrize("floor", [FLOAT64_NOISE_FLOOR, 1.0, math.inf, math.nan])
def test_a_spec_whose_own_noise_is_too_large_is_never_judged_in_float64(floor: float) -> None:
    found = agree(curve(LOSSES), curve(LOSSES), "float64", floor=lambda: floor, envelope=never)
    assert found.verdict == "inconclusive"
    assert "too chaotic to judge" in found.notes[0]


@pytest.mark.parametrize("precision", ENVELOPE_LIMIT)
@pytest.mark.parametrize(("multiple", "verdict"), [(0.0, "holds"), (3.0, "holds"), (3.25, "broken")])
def test_below_float64_the_multiple_of_the_envelope_decides(
    multiple: float, verdict: Verdict, precision: Precision
) -> None:
    other = curve({**LOSSES, 2: LOSSES[2] + multiple * 0.5})
    found = agree(curve(LOSSES), other, precision, floor=never, envelope=lambda: width(0.5, 0.5, 0.25))
    assert (found.verdict, found.criterion, found.multiple) == (verdict, "envelope", multiple)
    assert found.envelope == {1: 0.5, 2: 0.5, 3: 0.25}
    assert found.allowed == {1: 1.5, 2: 1.5, 3: 0.75}
    assert found.first is None if verdict == "holds" else found.first is not None and found.first.step == 2


def test_the_envelope_of_a_later_part_of_a_run_is_that_of_its_own_steps() -> None:
    found = agree(curve({3: 1.0}), curve({3: 1.5}), "float32", floor=never, envelope=lambda: width(9.0, 9.0, 0.25))
    assert (found.multiple, found.envelope) == (2.0, {3: 0.25})


def test_an_infinite_envelope_judges_nothing() -> None:
    other = curve({**LOSSES, 3: 1e9})
    found = agree(curve(LOSSES), other, "float32", floor=never, envelope=lambda: width(0.5, 0.5, math.inf))
    assert found.verdict == "inconclusive"


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("quantity", EXACT)
def test_what_must_be_equal_bit_for_bit_breaks_at_once(quantity: str, precision: Precision) -> None:
    other = curve(LOSSES) | {2: record(2, loss=2.0, **{quantity: LATER[quantity]})}
    found = agree(curve(LOSSES), other, precision, floor=never, envelope=never)
    assert found.verdict == "broken"
    assert found.first is not None
    assert (found.first.step, found.first.quantity, found.first.got) == (2, quantity, LATER[quantity])
    assert found.suspects
    assert set(EXACT) == set(LATER) <= set(StepRecord._fields)


def test_a_step_that_one_side_lacks_is_broken() -> None:
    found = agree(curve(LOSSES), curve({1: 4.0, 2: 2.0}), "float64", floor=never, envelope=never)
    assert (found.verdict, found.suspects) == ("broken", ("counters.step",))


def test_nothing_compared_is_no_success() -> None:
    assert agree({}, {}, "float64", floor=never, envelope=never).verdict == "empty"
    assert agree(curve({1: 1.0}), curve({2: 1.0}), "float64", floor=never, envelope=never).verdict == "empty"


@pytest.mark.parametrize(("other", "verdict"), [(math.nan, "inconclusive"), (2.0, "broken")])
def test_a_loss_that_is_not_finite_is_the_run_s_own_or_one_side_s(other: float, verdict: Verdict) -> None:
    a, b = curve({**LOSSES, 2: math.nan}), curve({**LOSSES, 2: other})
    assert agree(a, b, "float64", floor=never, envelope=never).verdict == verdict
    skipped = {**a, 2: a[2]._replace(skipped=True)}
    found = agree(skipped, skipped, "float64", floor=lambda: 0.0, envelope=never)
    assert found.verdict == "holds", "a step that the scaler skips may overflow"

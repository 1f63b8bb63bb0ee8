"""The judge of the resume check: from evidence alone, what differs first names what was lost."""

from dataclasses import replace
from typing import Any

import pytest

from parity import sides
from parity.contract import QUANTITIES, StepRecord, Validation, first_divergence
from parity.reference.planned import LeafEvent, RunEvidence, judge
from tests.support.small import CHANGED, record, small, with_leaf

EXPECTED = [None, 4]
"""Where each process of the killed run starts: from nothing, then from the checkpoint of step 4."""


def leaves(step: int, **changes: str) -> dict[str, str]:
    names = ("model.params.weight", "optimizer.first_moment.weight", "schedule.step", "scaler.growth_tracker")
    return dict.fromkeys(names, f"float32[2] {step:032x}") | changes


def event(kind: str, attempt: int, step: int, **changes: str) -> LeafEvent:
    return LeafEvent(event=kind, attempt=attempt, step=step, leaves=leaves(step, **changes))


def validation(attempt: int, step: int) -> Validation:
    return Validation(attempt=attempt, step=step, metric="loss", value=1.0 / step, loss=1.0 / step)


REFERENCE = RunEvidence(
    records=[record(step) for step in range(1, 9)],
    validations=[validation(0, 4), validation(0, 8)],
    resumed_from=[None],
    events=[event(kind, 0, step) for step in (4, 8) for kind in ("saving", "saved")] + [event("final", 0, 8)],
)
RESUMED = RunEvidence(
    records=[record(step) for step in range(1, 7)] + [record(step, attempt=1) for step in range(5, 9)],
    validations=[validation(0, 4), validation(1, 8)],
    resumed_from=[None, 4],
    events=[
        *(event(kind, 0, 4) for kind in ("saving", "saved")),
        event("restored", 1, 4),
        *(event(kind, 1, 8) for kind in ("saving", "saved", "final")),
    ],
)


def with_record(step: int, **changes: Any) -> RunEvidence:
    """Return the killed run with one record changed, of its second process."""
    rows = [r._replace(**changes) if (r.attempt, r.step) == (1, step) else r for r in RESUMED.records]
    return replace(RESUMED, records=rows)


def with_event(kind: str, attempt: int, step: int, **changes: str) -> RunEvidence:
    events = [event(kind, attempt, step, **changes) if (e.event, e.attempt, e.step) == (kind, attempt, step) else e
              for e in RESUMED.events]  # fmt: skip
    return replace(RESUMED, events=events)


def test_a_run_that_resumed_exactly_has_no_findings() -> None:
    found = judge(REFERENCE, RESUMED, EXPECTED)
    assert (found.broken, found.notes, found.suspects, found.first) == (False, [], [], None)
    assert (found.steps_compared, found.max_abs, found.max_rel) == (8, 0.0, 0.0)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_every_quantity_of_a_record_is_judged(quantity: str) -> None:
    found = judge(REFERENCE, with_record(7, **{quantity: CHANGED[quantity]}), EXPECTED)
    assert found.broken
    assert found.first is not None
    assert (found.first.step, found.first.quantity, found.first.got) == (7, quantity, CHANGED[quantity])
    assert found.suspects


def test_a_loss_scale_that_differs_points_to_the_scale_and_to_its_growth() -> None:
    found = judge(REFERENCE, with_record(7, loss_scale=2.0), EXPECTED)
    assert found.suspects == ["scaler.scale", "scaler.growth_tracker"]


def test_a_lost_growth_tracker_shows_in_the_loss_scale_first() -> None:
    """Why a loss scale that differs points to the tracker too: the scale itself was restored as it was."""
    spec = small("mlp-digits", "float16", "scaler.init_scale=1024", "scaler.growth_interval=4", "steps=10")
    trainer = sides.load("torch").build(spec)

    def run(until: int) -> dict[int, StepRecord]:
        return {r.step: r for r in trainer.steps(until)}

    run(3)
    state = trainer.export_state()
    whole = run(10)
    trainer.import_state(with_leaf(state, "scaler.growth_tracker", 0))
    found = first_divergence(whole, run(10))
    assert found is not None
    assert (found.step, found.quantity, found.expected, found.got) == (5, "loss_scale", 2048.0, 1024.0)


def test_a_leaf_that_was_restored_wrongly_is_named_before_all_it_makes_differ() -> None:
    wrong = with_event("restored", 1, 4, **{"optimizer.first_moment.weight": "float32[2] " + "f" * 32})
    rows = [r._replace(loss=9.0) if r.attempt == 1 else r for r in wrong.records]
    found = judge(REFERENCE, replace(wrong, records=rows), EXPECTED)
    assert found.suspects[0] == "optimizer.first_moment"
    assert "restored at step 4 is not what was saved" in found.notes[0]


def test_a_save_that_changes_the_live_run_is_found() -> None:
    wrong = with_event("saved", 0, 4, **{"schedule.step": "int 9"})
    assert any("saving step 4 changed the live run" in note for note in judge(REFERENCE, wrong, EXPECTED).notes)


@pytest.mark.parametrize(
    ("changes", "suspect"),
    [
        ({"resumed_from": [None, None]}, "counters.step"),
        ({"resumed_from": [None]}, "counters.step"),
        ({"records": [r for r in RESUMED.records if (r.attempt, r.step) != (1, 5)]}, "counters.step"),
        ({"records": [r for r in RESUMED.records if (r.attempt, r.step) != (1, 7)]}, "counters.step"),
        ({"records": [r for r in RESUMED.records if (r.attempt, r.step) != (1, 8)]}, "counters.step"),
        ({"events": [e for e in RESUMED.events if e.event != "final"]}, "counters.step"),
        ({"validations": RESUMED.validations[:1]}, "model.buffers"),
        ({"validations": [validation(0, 4), validation(1, 8)._replace(loss=9.0)]}, "model.buffers"),
    ],
)
def test_starts_ends_and_validations_are_judged_too(changes: dict[str, Any], suspect: str) -> None:
    found = judge(REFERENCE, replace(RESUMED, **changes), EXPECTED)
    assert found.broken
    assert suspect in found.suspects


def test_a_checkpoint_that_was_not_found_again_is_named() -> None:
    """Two saves were complete; the process after the kill starts from nothing all the same."""
    early = [record(step) for step in range(1, 7)] + [record(step, attempt=1) for step in range(1, 9)]
    events = [*(event(kind, 0, step) for step in (2, 4) for kind in ("saving", "saved")), *RESUMED.events[3:]]
    found = judge(REFERENCE, replace(RESUMED, records=early, resumed_from=[None, None], events=events), [None, None])
    assert "checkpoints" in found.suspects


def test_a_final_state_that_differs_is_found_though_every_record_is_equal() -> None:
    wrong = with_event("final", 1, 8, **{"model.params.weight": "float32[2] " + "f" * 32})
    found = judge(REFERENCE, wrong, EXPECTED)
    assert found.suspects == ["model.params"]

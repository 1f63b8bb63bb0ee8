"""The classic experiment: five epochs, a kill or a handover, five more; the validation curve goes through in both."""

import json
from typing import Any

import pytest

from parity import sides
from parity.cli.main import main
from parity.contract import Validation
from parity.reference import epochs_spec
from parity.reference.across import TwinPair, check_handover
from parity.spec import load

SMALL = ("model.hidden=[8]", "batch=200")
BATCHES = 7
"""(1,797 - 360) digits in batches of 200."""


@pytest.mark.processes
@pytest.mark.soak
def test_both_sides_resume_and_hand_over_and_every_validation_is_compared(capsys: Any) -> None:
    given = [word for text in SMALL for word in ("--set", text)]
    assert main(["check", "resume", "--preset", "five-epochs", "--json", *given]) == 0
    records = json.loads(capsys.readouterr().out)["checks"]
    found = {(record["name"], tuple(record["sides"])) for record in records}
    assert found == {
        ("resume", ("jax",)),
        ("resume", ("torch",)),
        ("handover jax-torch", ("jax", "torch")),
        ("handover torch-jax", ("torch", "jax")),
    }
    assert {record["verdict"] for record in records} == {"holds"}
    for record in records:
        resumed = record["name"] == "resume"
        assert (record["spec"], record["precision"]) == ("mlp-digits", "float64")
        assert record["steps_compared"] == (10 if resumed else 5) * BATCHES
        if resumed:
            assert record["curves"]["kills"] == [5 * BATCHES + BATCHES // 2]
            assert record["curves"]["validations"]["steps"] == [BATCHES * epoch for epoch in range(1, 11)]
        else:
            assert record["curves"]["validations"]["steps"] == [BATCHES * epoch for epoch in range(6, 11)]
            assert record["curves"]["handovers"] == [5 * BATCHES]
            assert "5 validations after the handover, largest relative difference" in record["notes"][-1]


@pytest.mark.parametrize("path", [("jax", "torch"), ("torch", "jax")])
def test_one_validation_after_a_handover_that_is_another_is_named(path: Any, monkeypatch: Any) -> None:
    """Planted: the training curve is as it was, one point of the validation curve is not."""
    spec, _ = epochs_spec(load("mlp-digits", "float64", SMALL))
    pair = TwinPair(spec, {name: sides.load(name) for name in path}, cache=False)
    assert check_handover(pair, path).verdict == "holds"
    trainer: Any = pair.trainers[path[-1]]
    real = type(trainer).evaluate
    for epoch in (6, 10):

        def evaluate(self: Any, step: int = epoch * BATCHES) -> Validation:
            found: Validation = real(self)
            return found._replace(loss=found.loss * (1 + 1e-11)) if self.step == step else found

        monkeypatch.setattr(type(trainer), "evaluate", evaluate)
        record = check_handover(pair, path)
        assert record.verdict == "broken"
        assert f"validation loss of step {epoch * BATCHES} is" in record.notes[-1]
    monkeypatch.setattr(type(trainer), "evaluate", lambda self: None if self.step < 0 else real(self))
    assert check_handover(pair, path).verdict == "holds"


def test_a_preset_that_sets_the_steps_takes_none(capsys: Any) -> None:
    for more in (["--steps", "50"], ["--kill-at", "20"]):
        assert main(["check", "resume", "--preset", "five-epochs", *more]) == 2
        assert "five-epochs sets the steps and the kill" in capsys.readouterr().err

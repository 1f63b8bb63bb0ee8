"""A trainer driven by callbacks, with its state deep inside: one mark in a callback sees all of it."""

import pytest

import parity
from tests.live.deep_trainer import train

FAULTS = {
    "model": ("model.params", "trainer._engine.model.0.bias"),
    "optimizer": ("optimizer.step", "trainer._engine.optimizer.state[trainer._engine.model.0.bias].step"),
    "schedule": ("schedule.step", "trainer._engine.schedule.last_epoch"),
    "callbacks": ("ema", "trainer._callbacks[0].shadow['0.bias']"),
    "streams": ("rng.torch", "torch.default_generator"),
    "shuffle": ("rng.trainer._shuffle", "trainer._shuffle"),
    "order": ("data.position", "trainer._order"),
    "batch": ("data.position", "fit().batch[0]"),
}
"""Fault, to the component that is lost and where the trainer keeps it."""


def test_it_resumes_although_it_saves_when_it_is_interrupted() -> None:
    """Killed within this process it saves at step 17 on its way out; as a killed process it resumes at 15."""
    found = parity.resumes(train, steps=21, stop_at=17, mode="inline")
    assert (found.verdict, found.scenarios) == ("holds", ("kill", "again", "third")), found.text()


@pytest.mark.parametrize("fault", FAULTS)
def test_what_it_loses_is_named_by_the_path_in_its_own_objects(fault: str) -> None:
    found = parity.resumes(train, steps=17, stop_at=12, mode="inline", scenarios="kill", options={"fault": fault})
    assert found.verdict == "broken", found.text()
    first = found.suspects[0]
    assert (first.component, first.path, first.step) == (*FAULTS[fault], 10), found.text()

"""Lightning's `Trainer` under the check, marked by a callback; skipped, and said, without the extra `peers`."""

from typing import Any

import pytest

pytest.importorskip("lightning", reason="lightning is not installed: pip install 'parity-suite[peers]'")

import parity
from parity.results import Resumption
from tests.live.lightning_trainer import train

SOUND: dict[str, Any] = {"stateful": True, "every": 5}
"""Saved within the epoch; the loader and the generators save their own state, which Lightning does not."""


def check(**options: Any) -> Resumption:
    return parity.resumes(train, steps=25, stop_at=17, mode="inline", options=options)


@pytest.mark.parametrize(
    "more", [{}, {"averages": True, "validates": True}, {"validates": True, "patience": 50}], ids=str
)
def test_a_trainer_that_saves_all_of_its_state_resumes(more: dict[str, Any]) -> None:
    found = check(**SOUND, **more)
    assert found.verdict == "holds", found.text()
    assert found.scenarios == ("kill", "again", "third")


FAULTS: dict[str, tuple[str, str]] = {
    "optimizer": ("optimizer.step", "trainer.optimizers[0].state[pl_module.net.0.bias].step"),
    "schedule": ("schedule.step", "trainer.lr_schedulers[0].last_epoch"),
    "weights": ("model.params", "pl_module.net.0.bias"),
    "streams": ("rng.torch", "torch.default_generator"),
    "loader": ("data.position", ".position"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named_as_users_know_it(fault: str) -> None:
    found = check(fault=fault, **SOUND)
    assert found.verdict == "broken", found.text()
    component, path = FAULTS[fault]
    assert found.components[0] == component, found.text()
    assert found.suspects[0].path.endswith(path), found.text()


def test_an_average_that_reaches_nothing_is_listed() -> None:
    found = check(fault="average", averages=True, **SOUND)
    assert found.verdict == "holds", found.text()
    assert "trainer.callbacks[2].shadow['net.0.bias']" in found.text()


LOSES: dict[str, tuple[dict[str, Any], int, str]] = {
    "order of an epoch that is interrupted": ({"every": 5}, 25, "rng"),
    "dropout and shuffling": ({"every": 8, "fault": "streams"}, 24, "rng"),
    "epochs begun, saved at the last step of one": ({"every": 8}, 24, "counters"),
    "where an epoch ends, saved at its end": ({}, 24, "data.position"),
    "sum of gradients, resumed twice": ({"stateful": True, "every": 3, "accumulates": 2}, 12, "gradients"),
}
"""What Lightning 2.6 loses by itself; docs/your-trainer.md lists it, and what to do."""


@pytest.mark.parametrize("what", LOSES)
def test_what_lightning_loses_by_itself_is_seen(what: str) -> None:
    options, steps, component = LOSES[what]
    found = parity.resumes(train, steps=steps, stop_at=9 if steps == 12 else 17, mode="inline", options=options)
    assert found.verdict == "broken", found.text()
    assert found.components[0].startswith(component), found.text()


def test_in_processes_that_are_killed() -> None:
    found = parity.resumes(train, steps=15, stop_at=8, mode="process", scenarios="kill", options=SOUND)
    assert (found.verdict, found.mode) == ("holds", "process"), found.text()

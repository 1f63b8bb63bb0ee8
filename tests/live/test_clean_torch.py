"""Training functions that resume exactly are never called broken: kinds, stops, scenarios, processes."""

import pytest

import parity
from tests.live.clean_torch import CLEAN, with_workers

STOPS = ((7, "all"), (11, "quick"), (13, "all"), (14, "third"))
SCENARIOS = ("quick", "all", "third,again", "kill", "epoch-end,mid-epoch,first-save")
SOAK = [(name, stop, scenarios) for name in CLEAN for stop in range(6, 19) for scenarios in SCENARIOS]


@pytest.mark.parametrize(("stop", "scenarios"), STOPS)
@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_trainer_holds_at_every_stop(name: str, stop: int, scenarios: str) -> None:
    train, steps, _ = CLEAN[name]
    found = parity.resumes(train, steps=steps, stop_at=stop, mode="inline", scenarios=scenarios)
    assert found.verdict == "holds", found.text()
    assert found.compared > 3
    assert found.changed > 5


@pytest.mark.processes
def test_a_loader_with_workers_holds() -> None:
    """In processes of their own: this one may hold threads of JAX, which must not be forked."""
    found = parity.resumes(with_workers, steps=20, stop_at=13, mode="process", scenarios="kill")
    assert found.verdict == "holds", found.text()


@pytest.mark.processes
@pytest.mark.parametrize("name", ["class_style", "prefetched"])
def test_a_clean_trainer_holds_in_processes_that_are_killed(name: str) -> None:
    train, steps, stop = CLEAN[name]
    found = parity.resumes(train, steps=steps, stop_at=stop, mode="process", scenarios="third")
    assert found.verdict == "holds", found.text()
    assert found.mode == "process"


@pytest.mark.soak
@pytest.mark.parametrize(("name", "stop", "scenarios"), SOAK)
def test_no_clean_run_is_called_broken(name: str, stop: int, scenarios: str) -> None:
    train, steps, _ = CLEAN[name]
    found = parity.resumes(train, steps=steps, stop_at=stop, mode="inline", scenarios=scenarios)
    assert found.verdict == "holds", found.text()


@pytest.mark.soak
@pytest.mark.parametrize("stop", range(6, 19))
@pytest.mark.parametrize("name", CLEAN)
def test_no_clean_run_in_processes_is_called_broken(name: str, stop: int) -> None:
    train, steps, _ = CLEAN[name]
    found = parity.resumes(train, steps=steps, stop_at=stop, mode="process")
    assert found.verdict == "holds", found.text()

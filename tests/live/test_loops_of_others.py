"""Well-known shapes of loops: clean ones are green, and what each loses is named."""

from typing import Any

import pytest

import parity
from tests.live.loops_of_others import epochs, events, memmap

LOOPS: dict[str, Any] = {"memmap": memmap, "epochs": epochs, "events": events}
STOPS = {"memmap": (14, 12), "epochs": (16, 11), "events": (14, 12)}
FAULTS = {
    ("memmap", "file"): "data",
    ("memmap", "window"): ("rng", "data"),
    ("memmap", "groups"): "optimizer.hyperparameters",
    ("epochs", "average"): "ema",
    ("epochs", "frozen"): "model.requires_grad",
    ("epochs", "generator"): "rng",
    ("events", "noise"): "rng",
    ("events", "penalty"): ("gradients", "events().penalty"),  # the first is no more than what follows from it
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_clean_loop_resumes(name: str) -> None:
    steps, stop = STOPS[name]
    found = parity.resumes(LOOPS[name], steps=steps, stop_at=stop, mode="inline")
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_what_a_loop_loses_is_named(name: str, fault: str) -> None:
    steps, stop = STOPS[name]
    options = {"fault": fault}
    found = parity.resumes(LOOPS[name], steps=steps, stop_at=stop, mode="inline", scenarios="kill", options=options)
    assert found.verdict == "broken", found.text()
    assert found.components[0].startswith(FAULTS[name, fault]), found.text()

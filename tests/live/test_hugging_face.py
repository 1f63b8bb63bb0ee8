"""Hugging Face's `Trainer` under the check, marked by a callback; skipped, and said, without the extra `peers`."""

from typing import Any

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'parity-suite[peers]'")
pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'parity-suite[peers]'")

import parity
from parity.results import Resumption
from tests.live.hugging_face_trainer import train


def check(**options: Any) -> Resumption:
    return parity.resumes(train, steps=18, stop_at=12, mode="inline", options=options)


CLEAN: tuple[dict[str, Any], ...] = (
    {"validates": True},
    {"accumulates": 2},
    {"load_best_model_at_end": True, "validates": True, "every": 4},
    {"lr_scheduler_type": "reduce_lr_on_plateau", "validates": True},
)


@pytest.mark.parametrize("options", CLEAN, ids=str)
def test_it_resumes_within_an_epoch(options: dict[str, Any]) -> None:
    found = check(**options)
    assert found.verdict == "holds", found.text()
    assert found.scenarios == ("kill", "again", "third")


FAULTS: dict[str, tuple[str, str]] = {
    "weights only": ("schedule.step", ".lr_scheduler.last_epoch"),
    "optimizer": ("schedule.step", ".lr_scheduler.last_epoch"),  # both are loaded or none
    "order": ("rng.torch", "torch.default_generator"),  # restored only where batches are skipped
    "streams": ("rng.torch", "torch.default_generator"),
    "average": ("ema", ".callbacks[2].shadow['lm_head.weight']"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named_as_users_know_it(fault: str) -> None:
    found = check(fault=fault)
    assert found.verdict == "broken", found.text()
    component, path = FAULTS[fault]
    assert found.components[0] == component, found.text()
    assert found.suspects[0].path.endswith(path), found.text()  # it begins with a frame of this version's loop


def test_draws_of_the_data_set_are_lost_by_its_prefetched_batch() -> None:
    """The generators are put back after the first batch was drawn; that one was drawn with others."""
    found = check(noise=True)
    assert found.verdict == "broken", found.text()
    assert found.components[0] == "rng.torch", found.text()

"""Trainers of two processes in PyTorch and JAX under the resume check, clean and with something lost on one rank."""

import re
from collections.abc import Callable
from typing import Any

import pytest

import parity
from tests.live import rank_jax, rank_torch

CASES = {
    "replicated": (rank_torch.replicated, "moments of rank 1", r"rank1:optimizer\.state"),
    "generators": (rank_torch.replicated, "generators", r"rank\d:torch\.default_generator"),
    "fsdp2": (rank_torch.sharded, "moments of rank 1", r"rank1:optimizer\.state\[.*exp_avg"),
    "jax": (rank_jax.sharded, "momentum of rank 1", r"rank1:momentum"),
}
each = pytest.mark.parametrize(("train", "fault", "named"), CASES.values(), ids=CASES)


@pytest.mark.soak
@each
def test_what_one_rank_loses_is_named(train: Callable[..., Any], fault: str, named: str) -> None:
    options = {"fault": fault}
    found = parity.resumes(train, steps=10, stop_at=7, processes=2, scenarios="kill", options=options)
    assert found.verdict == "broken", found.text()
    assert re.match(named, found.suspects[0].path), found.text()


@pytest.mark.soak
@pytest.mark.parametrize("train", [rank_torch.replicated, rank_torch.sharded, rank_jax.sharded])
def test_a_clean_trainer_resumes_exactly(train: Callable[..., Any]) -> None:
    found = parity.resumes(train, steps=10, stop_at=7, processes=2, scenarios="kill,again,third,one-rank")
    assert found.verdict == "holds", found.text()

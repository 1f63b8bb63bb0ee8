"""The record of a resume check says in which precision any trainer trained."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import parity
from tests.live.test_bad_input import plain


def trainer(dtype: torch.dtype):
    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, start = torch.nn.Linear(3, 2, dtype=dtype), 0
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        if (folder / "saved.pt").exists():
            weights, start = torch.load(folder / "saved.pt")
            model.load_state_dict(weights)
        for step in range(start, steps):
            yield step
            optimizer.zero_grad()
            model(torch.ones(4, 3, dtype=dtype)).square().mean().backward()
            optimizer.step()
            torch.save((model.state_dict(), step + 1), folder / "saved.pt")

    return train


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "float16"])
def test_the_precision_is_that_of_the_parameters(name: str) -> None:
    found = parity.resumes(trainer(getattr(torch, name)), steps=6, stop_at=3, mode="inline", scenarios="kill")
    assert (found.verdict, found.record().precision) == ("holds", name)


def test_numpy_trains_in_float64() -> None:
    assert parity.resumes(plain, steps=12, stop_at=7, mode="inline", scenarios="kill").record().precision == "float64"

"""Leaves that rounding alone moves: a bias before a norm of the batch, whose gradient is zero but for rounding.

Adam divides what rounding leaves by its root, so that two right trainers part there by about their own noise. Where
an update takes long the noise is measured by one nudged run of each side, and one run now and then measures little.
Here what rounding does is a function of the last bits of a weight, so that every machine sees the same.
"""

import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.checks.proving import walk

SIZE = 1e-11
"""Largest noise of the bias."""


def scattered(weight, factor):
    """Return numbers from 0 to 1, same shape, that the last bits decide."""
    bits = weight.double().view(torch.int64) & 0xFFFFFFFF
    return ((bits * factor) & 0xFFFFFFFF).double() / 2**32


def trainer(seed, factor, wrong=0.0):
    def model():
        torch.manual_seed(seed)
        return nn.Linear(2, 2)

    def batch(step):
        draws = np.random.default_rng([5, step])
        return {"x": draws.normal(size=(8, 2)), "y": draws.normal(size=(8, 2))}

    def loss(model, batch):
        x, y = (torch.as_tensor(batch[name], dtype=model.weight.dtype) for name in ("x", "y"))
        return ((model(x) - y) ** 2).mean()

    def start(model):
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=1e-3)}

    def step(state, batch):
        model, value = state["model"], loss(state["model"], batch)
        state["optimizer"].zero_grad()
        value.backward()
        noise = scattered(model.weight.detach()[:, 0], factor)
        state["optimizer"].step()
        with torch.no_grad():
            model.bias += SIZE * noise + wrong
        return state, value.item()

    return {"Model": model, "inputs": ["f[8,2]"], "batch": batch, "loss": loss, "start": start, "step": step}


@pytest.fixture
def slow(monkeypatch):
    """Every update counts as one that takes long."""
    monkeypatch.setattr(walk, "SLOW", 0.0)


def prove(seed, wrong=0.0):
    return parity.prove_port(torch=[trainer(seed, 2654435761), trainer(seed, 40503, wrong)], steps=2, until="steps")


SEEDS = (0, 13)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_port_is_not_refused_for_what_one_run_of_noise_did_not_reach(slow, seed, monkeypatch):
    assert prove(seed).verdict == "holds", prove(seed).text()
    monkeypatch.setattr(walk, "WIDER", 0)
    assert prove(seed).verdict == "broken"  # the noise of the first run alone


@pytest.mark.parametrize("wrong", [1e-9, 1e-10])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_wrong_at_such_a_leaf_parts_all_the_same(slow, seed, wrong):
    found = prove(seed, wrong)
    assert (found.verdict, found.parted.name) == ("broken", "update"), found.text()

"""What both sides make of an input may be rounded in other ways: no right port is refused for it, a wrong one is."""

import math
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.checks.proving.losses import nudged_batch

PERIODS = 0.004 * 1000.0 ** np.linspace(0.0, 1.0, 8)


def batch(step):
    draws = np.random.default_rng(step)
    return {"time": (20 * draws.random(6)).astype(np.float32), "wanted": draws.random(6).astype(np.float32)}


def trainer(name, angles, monkeypatch):
    """Return the name of a module that trains on sines of a time whose angles are written in one way."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 1)

        def forward(self, time):
            return self.head(torch.sin(angles(time, torch.as_tensor(PERIODS, dtype=time.dtype)))).squeeze(-1)

    def loss(model, batch):
        made = model(torch.as_tensor(batch["time"]))
        return ((made - torch.as_tensor(batch["wanted"])) ** 2).mean()

    module = ModuleType(name)
    vars(module).update(Model=Model, loss=loss, batch=batch)
    monkeypatch.setitem(sys.modules, name, module)
    return name


def first(time, periods):
    return time[:, None] * (2 * math.pi / periods)


def other(time, periods):
    return time[:, None] * 2 * math.pi / periods


def wrong(time, periods):
    return time[:, None] * ((2 + 1e-11) * math.pi / periods)


@pytest.mark.parametrize(("angles", "verdict"), [(other, "equal"), (wrong, "broken")])
def test_angles_that_are_rounded_otherwise_are_no_difference(angles, verdict, monkeypatch):
    torch.manual_seed(0)
    names = trainer("angles_here", first, monkeypatch), trainer("angles_there", angles, monkeypatch)
    found = parity.prove_port(torch=list(names), until="gradients")
    assert found.verdict == ("holds" if verdict == "equal" else "broken"), found.text()


def test_whole_numbers_stay_as_they_are():
    given = {"mask": np.array([0.0, 1.0, 3.0]), "x": np.array([0.25, 0.5, 1.0]), "label": np.arange(3), "scale": 0.5}
    found = nudged_batch(given, 1)
    assert np.array_equal(found["mask"], given["mask"])
    assert (found["x"] != given["x"]).tolist() == [True, True, False]
    assert np.allclose(found["x"], given["x"], rtol=3e-16, atol=0.0)
    assert found["label"] is given["label"]
    assert found["scale"] == 0.5

"""A check in this process leaves the user's own arrays as they were, though nudged starts move what looks trained."""

import sys
from types import ModuleType

import numpy as np
import pytest

import parity
from parity.checks.running import recorder

beside = ModuleType("beside")
beside.weight = np.array([1.0, 5.0], np.float32)  # of a module that is merely imported


@pytest.fixture(autouse=True)
def there(monkeypatch):
    """Only here: every check sees the arrays of all modules that a user may have written."""
    monkeypatch.setitem(sys.modules, "beside", beside)
    beside.weight[:] = [1.0, 5.0]


def train(folder, steps):
    model = {"weight": np.array([1.0, 2.0, 3.0])}
    for step in range(steps):
        yield step
        model["weight"] -= 0.1 * model["weight"] + 0.0 * beside.weight[0]


def train_in_the_module(folder, steps):
    beside.weight[:] = [2.0, 7.0]
    for step in range(steps):
        yield step
        beside.weight[:] *= np.float32(0.5)


def nudged(monkeypatch, train):
    """Return the paths that a check of a trainer and its port, which calls it, moved."""
    moved = []
    real = recorder.nudge_parameters

    def noted(*given):
        paths, put_back = real(*given)
        moved.extend(paths)
        return paths, put_back

    monkeypatch.setattr(recorder, "nudge_parameters", noted)

    def port(folder, steps):
        return train(folder, steps)

    parity.twins_agree(train, port, steps=6, mode="inline", precision="float64")
    return set(moved)


def test_what_a_module_holds_is_put_back(monkeypatch):
    assert "beside:weight" in nudged(monkeypatch, train)
    assert beside.weight.tolist() == [1.0, 5.0]


def test_what_a_run_has_trained_stays_as_it_left_it(monkeypatch):
    assert "beside:weight" in nudged(monkeypatch, train_in_the_module)
    assert np.abs(beside.weight / (np.array([2.0, 7.0]) * 0.5**6) - 1).max() < 1e-5

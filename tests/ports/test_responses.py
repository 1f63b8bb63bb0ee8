"""Models that compute the same and pass other gradients back are mapped by their outputs, and the stop is named."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.checks.models import map_models, responses

WIDTH = 6


class Layers(torch.nn.Module):
    def __init__(self, detached=False):
        super().__init__()
        self.detached = detached
        self.mixing = torch.nn.ModuleList([torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.gains = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(WIDTH)) for _ in range(3)])

    def forward(self, x):
        for one, gain in zip(self.mixing, self.gains, strict=True):
            shares = torch.softmax(one(x), -1)
            x = x + gain * (shares.detach() if self.detached else shares) * torch.sin(x)
        return x


def stacked(stopped):
    draws = np.random.default_rng(0)
    params = {
        "w": jnp.asarray(draws.normal(size=(3, WIDTH, WIDTH))),
        "b": jnp.asarray(draws.normal(size=(3, WIDTH))),
        "gain": jnp.asarray(draws.normal(size=(3, WIDTH))),
    }

    def apply(params, x):
        def layer(x, one):
            shares = jax.nn.softmax(x @ one["w"] + one["b"])
            shares = jax.lax.stop_gradient(shares) if stopped else shares
            return x + one["gain"] * shares * jnp.sin(x), None

        return jax.lax.scan(layer, x, params)[0]

    return params, apply


@pytest.mark.parametrize(("here", "there"), [(False, True), (True, False)])
def test_a_stop_leaves_every_row_told_and_the_gradients_part(here, there):
    with jax.enable_x64(True):
        found = map_models(torch=Layers(here), jax=stacked(there), inputs=["f[4,6]"])
    assert found.verdict == "broken", found.text()
    assert len(found.rules) == 3, found.text()
    assert "part: gradient" in found.text() or "parts: gradient" in found.text()
    assert "parts: output" not in found.text()


def test_models_that_both_stop_are_the_same():
    with jax.enable_x64(True):
        found = map_models(torch=Layers(True), jax=stacked(True), inputs=["f[4,6]"])
    assert "parts:" not in found.text()
    assert found.verdict in ("holds", "inconclusive"), found.text()


def test_pairs_that_together_do_not_hold_are_none(monkeypatch):
    """Whatever single pieces seem to be: all of them get values of their own at last, and the outputs must be one."""
    told = responses._told

    def exchanged(left, right, least):
        found = told(left, right, least)
        if len(found) < 2:
            return found
        one, two = found[:2]
        return [replace(one, second=two.second), replace(two, second=one.second), *found[2:]]

    monkeypatch.setattr(responses, "_told", exchanged)
    with jax.enable_x64(True):
        found = map_models(torch=Layers(), jax=stacked(True), inputs=["f[4,6]"])
    assert found.verdict == "inconclusive", found.text()

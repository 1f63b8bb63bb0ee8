"""Dropout in a port: what was off is said, and another place or rate is told without equal random numbers."""

from functools import partial

import flax.linen
import jax
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

import parity

WIDTH = 6
inputs = np.random.default_rng(5).normal(size=(4, WIDTH))


class Model(nn.Module):
    def __init__(self, rate=0.1, kind=nn.Dropout):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(WIDTH, 9), nn.Linear(9, WIDTH), kind(rate)
        self.last = kind(rate)

    def forward(self, x):
        h = self.drop(torch.tanh(self.up(x)))
        return x + self.last(self.down(h))


class Port(nnx.Module):
    def __init__(self, rate=0.1, last=0.1, place="", shared=(), *, rngs):
        self.wide, self.narrow = nnx.Linear(WIDTH, 9, rngs=rngs), nnx.Linear(9, WIDTH, rngs=rngs)
        self.first = nnx.Dropout(rate, broadcast_dims=shared, rngs=rngs)
        self.second, self.place = nnx.Dropout(last, rngs=rngs), place

    def __call__(self, x):
        h = self.wide(x)
        h = jax.numpy.tanh(self.first(h)) if self.place == "before tanh" else self.first(jax.numpy.tanh(h))
        h = self.narrow(h)
        if self.place == "none":
            return x + h
        return self.second(x + h) if self.place == "after the sum" else x + self.second(h)


class Linen(flax.linen.Module):
    rate: float = 0.1

    @flax.linen.compact
    def __call__(self, x, deterministic=True):
        h = jax.numpy.tanh(flax.linen.Dense(9, name="a")(x))
        h = flax.linen.Dropout(self.rate, deterministic=deterministic)(h)
        h = flax.linen.Dense(WIDTH, name="b")(h)
        return x + flax.linen.Dropout(0.1, deterministic=deterministic)(h)


def prove(port, model=Model):
    return parity.prove_port(
        torch={"Model": model, "inputs": inputs, "batch": lambda step: {"x": inputs}},
        jax={"Model": port, "batch": lambda step: {"x": inputs}}, until="forward", steps=2,
    )  # fmt: skip


@pytest.mark.parametrize("port", [Port, Linen], ids=["nnx", "linen"])
def test_equal_places_and_rates_hold_and_are_said_to_be_off(port):
    found = prove(port)
    assert found.verdict == "holds", found.text()
    assert "note: dropout was off: 2 places and rates agree by what goes through them" in found.text()


FAULTS = {
    "rate": (partial(Port, 0.2), "dropout at one place: drop (rate 0.1) in"),
    "another rate of the last": (partial(Port, last=0.5), "dropout at one place: last (rate 0.1) in"),
    "after the sum": (partial(Port, place="after the sum"), "dropout at another place: last (rate 0.1) of"),
    "before tanh": (partial(Port, place="before tanh"), "dropout at another place: drop (rate 0.1) of"),
    "left out": (partial(Port, place="none"), "dropout at another place: last (rate 0.1) of"),
    "of whole rows": (partial(Port, shared=(1,)), "1 axes share a draw"),
    "of linen": (partial(Linen, 0.3), "dropout at one place: drop (rate 0.1) in"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_another_place_or_rate_parts_at_forward(fault):
    port, said = FAULTS[fault]
    found = prove(port)
    assert (found.verdict, found.parted.name) == ("broken", "forward"), found.text()
    assert said in found.parted.said, found.text()
    assert found.cause.startswith("dropout at")


def test_a_dropout_that_the_other_does_not_show_is_never_equal():
    found = prove(partial(Port, 0.0, 0.0))
    assert found.verdict == "inconclusive"
    assert "drops at drop (rate 0.1), last (rate 0.1), and no module of" in found.text()
    assert prove(partial(Port, 0.0, 0.0), partial(Model, 0.0)).verdict == "holds"


class Odd(nn.Module):
    """Drops by a rate of its own name."""

    def __init__(self, rate):
        super().__init__()
        self.chance = rate

    def forward(self, x):
        return x


class DropPath(Odd):
    pass


def test_a_module_that_drops_and_says_no_rate_cannot_be_compared():
    found = prove(Port, partial(Model, kind=DropPath))
    assert found.verdict == "inconclusive"
    assert "what these drop cannot be compared" in found.text()

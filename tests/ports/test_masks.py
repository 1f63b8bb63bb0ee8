"""Dropout on in a port: both sides are given equal masks, and loss and gradients are compared under them."""

from functools import partial

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

import parity
from parity.contract import DropoutMasks

WIDTH = 6


def batch(step):
    return {"x": np.random.default_rng([5, step]).normal(size=(4, 3, WIDTH))}


class Model(nn.Module):
    def __init__(self, rate=0.1):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 9), nn.Linear(9, WIDTH)
        self.first, self.last = nn.Dropout(rate), nn.Dropout(rate)

    def forward(self, x):
        return x + self.last(self.down(self.first(torch.tanh(self.up(x)))))


class PlainDropout(nnx.Dropout):
    """Leaves what stays as it is."""

    def __call__(self, x):
        return super().__call__(x) * (1.0 if self.deterministic or not self.rate else 1.0 - self.rate)


class Port(nnx.Module):
    def __init__(self, kind=nnx.Dropout, turned=False, *, rngs):
        self.wide, self.narrow = nnx.Linear(WIDTH, 9, rngs=rngs), nnx.Linear(9, WIDTH, rngs=rngs)
        self.one, self.two, self.turned = nnx.Dropout(0.1, rngs=rngs), kind(0.1, rngs=rngs), turned

    def __call__(self, x):
        h = jnp.tanh(self.wide(x))
        h = self.one(h.swapaxes(0, 1)).swapaxes(0, 1) if self.turned else self.one(h)
        return x + self.two(self.narrow(h))


class Linen(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x, train=False):
        h = flax.linen.Dropout(0.1, deterministic=not train)(jnp.tanh(flax.linen.Dense(9, name="a")(x)))
        return x + flax.linen.Dropout(0.1, deterministic=not train)(flax.linen.Dense(WIDTH, name="b")(h))


def torch_loss(model, batch):
    return model(torch.from_numpy(batch["x"])).square().mean()


def nnx_loss(model, batch):
    return jnp.square(model(jnp.asarray(batch["x"]))).mean()


def linen_loss(model, batch):
    module, variables = model
    made = module.apply(variables, jnp.asarray(batch["x"]), train=True, rngs={"dropout": jax.random.key(3)})
    return jnp.square(made).mean()


def prove(port=Port, loss=nnx_loss, model=Model, its_loss=torch_loss):
    return parity.prove_port(
        torch={"Model": model, "inputs": batch(0)["x"], "batch": batch, "loss": its_loss},
        jax={"Model": port, "batch": batch, "loss": loss}, until="gradients", steps=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("port", "loss"),
    [
        pytest.param(Port, nnx_loss, marks=pytest.mark.soak),
        (partial(Port, turned=True), nnx_loss),
        pytest.param(Linen, linen_loss, marks=pytest.mark.soak),
    ],
    ids=["nnx", "another layout", "linen"],
)
def test_a_port_that_drops_alike_agrees_under_equal_masks(port, loss):
    own = jax.random.bernoulli
    found = prove(port, loss)
    assert found.verdict == "holds", found.text()
    assert "with dropout on, and equal masks at 2 places, loss and gradients agree to" in found.text()
    assert jax.random.bernoulli is own


def test_what_stays_and_is_not_scaled_parts_at_the_gradients():
    found = prove(partial(Port, PlainDropout))
    assert (found.verdict, found.parted.name) == ("broken", "gradients"), found.text()
    assert "and agree without it" in found.parted.said
    assert found.cause.startswith("dropout")


@pytest.mark.soak
def test_a_loss_that_gives_no_keys_is_not_compared_and_says_why():
    def without(model, batch):
        return jnp.square(model[0].apply(model[1], jnp.asarray(batch["x"]), train=True)).mean()

    found = prove(Linen, without)
    assert found.verdict == "holds"
    assert "with dropout on: loss: of jax:Model fails: InvalidRngError" in found.text()


def drawn(rate):
    """Return a loss of NNX that drops in a function, by another key each time."""
    keys = iter(range(1000))

    def loss(model, batch):
        x, key = jnp.asarray(batch["x"]), jax.random.key(next(keys))
        kept = jax.random.bernoulli(key, 1 - rate, x.shape)
        return jnp.square(model(jnp.where(kept, x / (1 - rate), 0.0))).mean()

    return loss


def drawn_in_torch(model, batch):
    return model(nn.functional.dropout(torch.from_numpy(batch["x"]), 0.2)).square().mean()


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        pytest.param(0.2, "equal masks at 3 places, loss and gradients agree to", marks=pytest.mark.soak),
        (0.3, "has rate 0.2 in one and 0.3 in the other"),
    ],
)
def test_rates_inside_functions_are_compared_and_the_verdict_stays_open(rate, said):
    found = prove(loss=drawn(rate), its_loss=drawn_in_torch)
    assert found.verdict == "inconclusive"
    assert "is another one when it is asked again" in found.text()
    assert said in found.text()


def test_a_mask_goes_with_its_axes():
    one, two = (DropoutMasks().mask(0.3, shape) for shape in ((4, 2, 3), (3, 4, 2)))
    assert np.array_equal(one.transpose(2, 0, 1), two)
    assert not np.array_equal(DropoutMasks([1]).mask(0.3, (4, 2, 3)), one)

"""Modules of equinox with their `State`: running statistics are mapped, proven, and trained in a port."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn

import parity
from parity.errors import SpecError

eqx = pytest.importorskip("equinox")


class TorchNet(nn.Module):
    def __init__(self, norm=nn.BatchNorm1d):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), norm(12), nn.Tanh(), nn.Dropout(0.2), nn.Linear(12, 3))

    def forward(self, x):
        return self.layers(x)


class Biased(nn.BatchNorm1d):
    """A batch norm that keeps the variance over n, as equinox does."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.running_mean.lerp_(x.mean(0), 0.1)
            self.running_var.lerp_(x.var(0, correction=0), 0.1)
        return nn.functional.batch_norm(x, None, None, self.weight, self.bias, training=True)


class Net(eqx.Module):
    first: eqx.nn.Linear
    norms: list
    last: eqx.nn.Linear
    drop: eqx.nn.Dropout

    def __init__(self, mode="batch", eps=1e-5, momentum=0.9, axis="batch", *, key):
        one, two = jax.random.split(key)
        self.first, self.last = eqx.nn.Linear(6, 12, key=one), eqx.nn.Linear(12, 3, key=two)
        self.norms = [eqx.nn.BatchNorm(12, axis, eps=eps, momentum=momentum, mode=mode)]
        self.drop = eqx.nn.Dropout(0.2)

    def __call__(self, x, state, key=None):
        h, state = self.norms[0](self.first(x), state)
        return self.last(self.drop(jnp.tanh(h), key=key)), state


class Batched(Net):
    """The same, of a whole batch."""

    def __call__(self, x, state, key=None):
        return over_a_batch(partial(super().__call__, key=key))(x, state)


def over_a_batch(module):
    return jax.vmap(module, axis_name="batch", in_axes=(0, None), out_axes=(0, None))


def made(cls=Net, **how):
    return lambda: eqx.nn.make_with_state(cls)(**how, key=jax.random.key(0))


@pytest.mark.parametrize(
    ("cls", "mode"), [(Net, "batch"), pytest.param(Net, "ema", marks=pytest.mark.soak), (Batched, "batch")]
)
def test_running_statistics_are_mapped_and_proven(cls, mode):
    found = parity.map_models(torch=TorchNet, jax=made(cls, mode=mode), inputs=["f[8,6]"])
    assert found.verdict == "holds", found.text()
    rows = {row.first: row for row in found.found.rows}
    assert rows[("layers.1.running_mean",)].second == (f"norms.0.{mode}_state_index.0",)
    assert rows[("layers.1.running_var",)].rule.collection == "state"
    assert ("takes one example" in found.text()) == (cls is Net)


@pytest.mark.parametrize(
    ("change", "verdict", "said"),
    [({}, "holds", "calls of modules compared"),
     ({"eps": 1e-4}, "broken", "eps 1e-05 here, epsilon 0.0001 there"),
     ({"momentum": 0.99}, "inconclusive", "momentum 0.1 here, momentum 0.99 there")],
)  # fmt: skip
def test_where_looks_at_stateful_modules(change, verdict, said):
    found = parity.find_parting(torch=TorchNet, jax=made(**change), inputs=["f[8,6]"])
    assert found.verdict == verdict, found.text()
    assert said in found.text()


def test_a_stateful_model_that_cannot_be_called_is_one_error():
    with pytest.raises(SpecError, match="cannot be called with them and its State"):
        parity.map_models(torch=TorchNet, jax=made(), inputs=["f[8,7]"])
    with pytest.raises(SpecError, match="give it within your own vmap"):
        parity.map_models(torch=TorchNet, jax=made(axis=("a", "b")), inputs=["f[8,6]"])


def batch(step):
    draws = np.random.default_rng([3, step])
    return {"x": draws.normal(size=(8, 6)), "y": draws.integers(0, 3, 8)}


def torch_loss(model, batch):
    return nn.functional.cross_entropy(model(torch.from_numpy(batch["x"])), torch.from_numpy(batch["y"]))


def torch_step(state, batch):
    loss = torch_loss(state["model"], batch)
    state["optimizer"].zero_grad()
    loss.backward()
    state["optimizer"].step()
    return state, loss.item()


def forward(model, state, batch):
    logits, state = over_a_batch(model)(jnp.asarray(batch["x"]), state)
    return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.asarray(batch["y"])).mean(), state


TX = optax.sgd(0.1)


def start(model):
    return {"model": model[0], "state": model[1], "opt": TX.init(eqx.filter(model[0], eqx.is_inexact_array))}


@eqx.filter_jit
def step(held, batch):
    def loss_of(model):
        return forward(model, held["state"], batch)

    (loss, state), grads = eqx.filter_value_and_grad(loss_of, has_aux=True)(held["model"])
    updates, opt = TX.update(grads, held["opt"])
    return {"model": eqx.apply_updates(held["model"], updates), "state": state, "opt": opt}, loss


JAX = {"Model": made(), "batch": batch, "loss": lambda model, batch: forward(*model, batch)[0], "start": start,
       "step": step}  # fmt: skip
TORCH = {
    "inputs": "f[8,6]",
    "batch": batch,
    "loss": torch_loss,
    "start": lambda model: {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)},
    "step": torch_step,
}


@pytest.mark.parametrize(
    ("norm", "change", "said"),
    [
        (Biased, {}, ""),
        pytest.param(nn.BatchNorm1d, {}, "biased variance", marks=pytest.mark.soak),
        pytest.param(Biased, {"Model": made(momentum=0.99)}, "norms.0.batch_state_index", marks=pytest.mark.soak),
    ],
    ids=["alike", "variance", "momentum"],
)
def test_a_port_with_running_statistics_is_judged(norm, change, said):
    """Those of equinox keep the biased variance, as the norms of Flax do."""
    found = parity.prove_port(
        torch=TORCH | {"Model": partial(TorchNet, norm)}, jax=JAX | change, steps=4, until="steps"
    )
    assert found.verdict == ("broken" if said else "holds"), found.text()
    assert said in found.text()
    if said:
        assert found.parted.name == "update"

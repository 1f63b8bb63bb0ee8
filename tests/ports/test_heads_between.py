"""Weights whose heads lie on both sides of the width, as einsums of Gemma have them, are mapped as matrices are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.checks.models import map_models
from parity.checks.models.pieces import Cutting, cut
from parity.mapping import Permute


class Attention(torch.nn.Module):
    def __init__(self, width, heads, size):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (torch.nn.Linear(width, heads * size, bias=False) for _ in range(3))
        self.o = torch.nn.Linear(heads * size, width, bias=False)

    def forward(self, x):
        q, k, v = (one(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        return x + self.o((weights @ v).transpose(1, 2).flatten(2))


class Layers(torch.nn.Module):
    def __init__(self, width, heads, size):
        super().__init__()
        self.layers = torch.nn.ModuleList([Attention(width, heads, size) for _ in range(2)])

    def forward(self, x):
        for one in self.layers:
            x = torch.tanh(one(x))
        return x


def layers(width, heads, size, fused, turned=False):
    """Return parameters and a function of them: `[layer, 3, heads, width, size]`, or one array each."""
    draws = np.random.default_rng(0)

    def weights(*shape):
        return jnp.asarray(draws.normal(size=shape) / 4)

    def layer(one):
        qkv = {"qkv": weights(3, heads, width, size)} if fused else {n: weights(heads, width, size) for n in "qkv"}
        return qkv | {"out": weights(heads, size, width)}

    def apply(params, x):
        for one in params:
            parts = one["qkv"] if fused else jnp.stack([one[n] for n in "qkv"])
            q, k, v = jnp.einsum("btd,sndh->sbtnh", x, parts)
            shares = jax.nn.softmax(jnp.einsum("bqnh,bknh->bnqk", q, k) / size**0.5)
            if turned:
                v = -v
            mixed = jnp.einsum("bnqk,bknh->bqnh", shares, v)
            x = jnp.tanh(x + jnp.einsum("bqnh,nhd->bqd", mixed, one["out"]))
        return x

    return [layer(at) for at in range(2)], apply


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("width", "heads", "size"), [(6, 3, 4), (8, 2, 4)])
def test_they_are_told_and_lead_back(width, heads, size, fused):
    with jax.enable_x64(True):
        found = map_models(
            torch=Layers(width, heads, size), jax=layers(width, heads, size, fused), inputs=[f"f[2,3,{width}]"]
        )
    assert found.verdict == "holds", found.text()
    assert any(isinstance(step, Permute) for rule in found.rules for step in rule.transforms)


def test_what_is_another_model_is_none_in_any_layout():
    with jax.enable_x64(True):
        found = map_models(torch=Layers(6, 3, 4), jax=layers(6, 3, 4, True, turned=True), inputs=["f[2,3,6]"])
    assert found.verdict != "holds", found.text()


def test_axes_are_put_beside_one_another_before_they_are_one():
    whole = np.arange(12).reshape(2, 3, 2)
    [piece] = cut((2, 3, 2), Cutting((3, 4), order=(1, 0, 2)))
    assert np.array_equal(whole.reshape(-1)[piece], whole.transpose(1, 0, 2).reshape(3, 4))

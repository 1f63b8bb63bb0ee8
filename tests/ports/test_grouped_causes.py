"""Causes inside an attention with rotary places and shared keys: each for its fault alone, none for an unknown."""

import numpy as np
import pytest

from parity.checks.models import find_parting
from parity.checks.models.grouped_causes import grouped_cause
from tests.ports.corpus import llama_jax, llama_torch
from tests.ports.truth import rules_of

FAULTS = {
    "rotary interleaved": "attention: rotary of halves here, neighbours there",
    "base of the rotary": "attention: base of the rotary 10000 here, 500000 there",
    "rotary the other way": "attention: rotary turns by 1 times the place here, -1 there",
    "rotary from one for keys": "attention: rotary of keys 0 places further than of queries here, 1 there",
    "groups tiled": "attention: groups of heads share keys in blocks here, in turn there",
    "scale of the scores": "attention: scale of the scores 1/sqrt(4) here, 1/sqrt(16) there",
}
WAY = {"heads": 4, "base": 1e4, "turns": 1, "shift": 0, "tile": False, "scale": 0.5, "ahead": 0}


@pytest.mark.soak
def test_each_fault_of_the_corpus_has_its_cause():
    first = llama_torch.reference
    right = llama_jax.Port()
    rules = rules_of(first, right).rules
    for fault, cause in FAULTS.items():
        port = llama_jax.Port(fault=fault)
        found = find_parting(torch=first.Model, jax=port.Model, inputs=first.inputs, rules=rules)
        assert (found.verdict, found.modules[0]) == ("broken", "layers.0.self_attn.o_proj"), found.text()
        assert found.cause == cause


def attended(q, k, v, heads, base, turns, shift, tile, scale, ahead, sharpened=1.0):
    def heads_of(x, shift):
        x = x.reshape(*x.shape[:2], -1, q.shape[-1] // heads)
        size = x.shape[-1]
        angle = turns * (np.arange(x.shape[1]) + shift)[:, None, None] / base ** (np.arange(0, size, 2) / size)
        turned = (x[..., : size // 2] + 1j * x[..., size // 2 :]) * np.exp(1j * angle)
        return np.concatenate((turned.real, turned.imag), -1)

    q, k, v = heads_of(q, 0), heads_of(k, shift), v.reshape(*v.shape[:2], -1, q.shape[-1] // heads)
    each = heads // k.shape[2]
    k, v = (np.tile(x, (1, 1, each, 1)) if tile else np.repeat(x, each, 2) for x in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * scale * sharpened
    scores = np.where(np.tril(np.ones(scores.shape[-2:]), ahead) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v).reshape(*q.shape[:2], -1)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tile": True}, "groups of heads share keys in blocks here, in turn there"),
        ({"ahead": 1}, "mask causal here, causal, one place ahead there"),
        ({"base": 5e5}, "base of the rotary 10000 here, 500000 there"),
        ({"scale": 1.0, "turns": -1},
         "rotary turns by 1 times the place here, -1 there; scale of the scores 1/sqrt(4) here, none there"),
        ({"sharpened": 1.3}, ""),
        ({"base": 123.0}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_what_is_not_known_has_no_cause(change, said, fused):
    draws = np.random.default_rng(3)
    q, k, v = draws.normal(size=(2, 6, 16)), *draws.normal(size=(2, 2, 6, 8))
    befores = [np.concatenate((q, k, v), -1)] if fused else [v, k, q]
    first, second = (attended(q, k, v, **(WAY | one)) for one in ({}, change))
    found = grouped_cause(befores, first, second)
    assert found == (f"attention: {said}" if said else "")

"""The plan of how leaves are cut, by shapes alone: those of models that cheaper plans fit too, which mean nothing."""

from collections import Counter

import jax.numpy as jnp
import pytest
import torch
from flax import nnx

from parity.checks.models import map_models
from parity.checks.models.pieces import Cutting
from parity.checks.models.plan import _beside, cut_plans
from parity.errors import SpecError

WIDTH, KEYS, HIDDEN, WORDS = 32, 16, 48, 61


def shapes(counts):
    return Counter({("parameter", shape): count for shape, count in counts.items()})


@pytest.mark.parametrize("layers", [1, 2, 4, 6, 12])
def test_grouped_queries_in_one_array_are_cut_into_queries_keys_and_values_and_norms_stay_whole(layers):
    separate = {(WORDS, WIDTH): 2, (WIDTH,): 2 * layers + 1, (WIDTH, WIDTH): 2 * layers, (KEYS, WIDTH): 2 * layers,
                (HIDDEN, WIDTH): 2 * layers, (WIDTH, HIDDEN): layers}  # fmt: skip
    fused = {(WORDS, WIDTH): 1, (WIDTH, WORDS): 1, (WIDTH,): 2 * layers + 1, (WIDTH, 8, 8): layers,
             (4, 8, WIDTH): layers, (WIDTH, 2 * HIDDEN): layers, (HIDDEN, WIDTH): layers}  # fmt: skip
    first, *_ = cut_plans(shapes(separate), shapes(fused))
    assert first.left == 0
    assert not first.first, "the keys of one model are no stack of the other's norms"
    assert first.second[WIDTH, 2 * HIDDEN].extents == (HIDDEN, HIDDEN)
    assert first.second[WIDTH, 8, 8] == Cutting((WIDTH, 64), None, 1, (WIDTH, KEYS, KEYS))


def test_two_stacks_that_one_way_would_fit_are_both_found():
    """Two experts of two layers in one scan, whose projections could all be cut from the first layers of one."""
    apart = {(12, 24): 2, (12, 8): 2, (12,): 5, (16, 8): 4, (24, 12): 4, (8, 12): 6, (8, 16): 3, (8, 8): 9, (8,): 9}
    stacked = {(12,): 1, (16, 8): 1, (2, 12): 2, (2, 16, 8): 1, (2, 2, 12, 24): 1, (2, 2, 4, 12): 1, (2, 2, 4, 8): 1,
               (2, 2, 8, 16): 1, (2, 24, 12): 1, (2, 3, 12, 2, 4): 1, (2, 3, 8, 2, 4): 1, (2, 8): 2, (8, 8): 1,
               (8,): 5}  # fmt: skip
    first, *_ = cut_plans(shapes(apart), shapes(stacked))
    assert first.left == 0
    assert not first.first
    assert first.second[2, 3, 12, 2, 4] == Cutting((6, 12, 8), stacked=0)


def test_what_is_left_over_of_as_many_elements_is_inconclusive_and_of_more_is_broken():
    def rows():
        return {"a": jnp.ones((6, 10)), "b": jnp.ones((4,))}, lambda p, x: jnp.tanh(x @ p["a"]).sum() + p["b"].sum()

    def other():
        return {"a": jnp.ones((6, 7)), "b": jnp.ones((22,))}, lambda p, x: jnp.tanh(x @ p["a"]).sum() + p["b"].sum()

    def more():
        return {"a": jnp.ones((6, 7)), "b": jnp.ones((23,))}, lambda p, x: jnp.tanh(x @ p["a"]).sum() + p["b"].sum()

    found = map_models(jax=[rows, other], inputs="f[4,6]")
    assert found.found.alone
    assert found.verdict == "inconclusive"
    assert "without a counterpart" in found.text()
    assert "both have as many elements" in found.text()
    found = map_models(jax=[rows, more], inputs="f[4,6]")
    assert found.verdict == "broken"
    assert "both have as many elements" not in found.text()


def test_a_table_with_the_shape_of_stacked_norms_is_cut_alike_in_both():
    layers = shapes({(WORDS, WIDTH): 1, (2, WIDTH): 1, (WIDTH,): 4, (WIDTH, HIDDEN): 2})
    stacked = shapes({(WORDS, WIDTH): 1, (2, WIDTH): 3, (2, WIDTH, HIDDEN): 1})
    first, *_ = cut_plans(layers, stacked)
    assert first.left == 0
    assert first.first[2, WIDTH] == first.second[2, WIDTH] == Cutting((2, WIDTH), stacked=0)


def test_the_parts_of_another_model_are_found_among_its_pieces_alone():
    pool = {("parameter", (2, 3, 3)), ("parameter", (3, 5)), ("statistic", (3, 7)), ("parameter", (3,))}
    assert _beside("parameter", (1, 3), pool) == {5}
    assert _beside("parameter", (3, 3), pool) == {2}
    assert _beside("parameter", (3, 2), pool) == {3}
    assert _beside("parameter", (), pool) == {3}


class Layered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.segments = torch.nn.Embedding(11, 6), torch.nn.Embedding(2, 6)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(6, 6) for _ in range(2)])
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(6) for _ in range(2)])

    def forward(self, words, segments):
        x = self.words(words) + self.segments(segments)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(x + torch.tanh(layer(x)))
        return x


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.linear, self.norm = nnx.Linear(6, 6, rngs=rngs), nnx.LayerNorm(6, epsilon=1e-5, rngs=rngs)

    def __call__(self, x):
        return self.norm(x + jnp.tanh(self.linear(x)))


class Scanned(nnx.Module):
    """Two layers in one scan behind tables of `nnx.Embed`, whose type is that of its values when it was made."""

    def __init__(self, rngs, stored=jnp.float32):
        types = {"dtype": jnp.float32, "param_dtype": stored, "rngs": rngs}
        self.words, self.segments = nnx.Embed(11, 6, **types), nnx.Embed(2, 6, **types)
        self.layers = nnx.split_rngs(splits=2)(nnx.vmap(Layer))(rngs)

    def __call__(self, words, segments):
        x = self.words(words) + self.segments(segments)
        return nnx.scan(lambda x, one: one(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.layers)


def test_a_scan_behind_a_table_of_float32_is_computed_in_float64():
    model = Scanned(nnx.Rngs(0))
    found = map_models(torch=Layered, jax=model, inputs=["i[3,5]<11", "i[3,5]<2"])
    assert found.verdict == "holds", found.text()
    assert {"norms.*.weight", "norms.*.bias"} < {name for rule in found.rules for name in rule.source}
    assert model.words.dtype == jnp.float32, "the user's model keeps its types"


def test_a_scan_behind_a_table_that_is_kept_in_another_type_is_lifted_named_and_measured():
    model = Scanned(nnx.Rngs(0), stored=jnp.float16)
    found = map_models(torch=Layered, jax=model, inputs=["i[3,5]<11", "i[3,5]<2"])
    assert found.verdict == "holds", found.text()
    assert any("words (Embed, dtype=float32)" in island.where for _, island in found.proof.islands)
    [effect] = found.proof.effects.values()
    assert 1e-10 < effect < 1e-2
    assert model.words.dtype == jnp.float32, "the user's model keeps its types"


def test_a_scan_that_no_type_mends_is_one_clear_error():
    class Shrinking(Scanned):
        def __call__(self, words, segments):
            x = self.words(words) + self.segments(segments)
            return nnx.scan(lambda x, one: one(x)[:1], in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.layers)

    with pytest.raises(SpecError, match="cannot be called with them: TypeError: scan"):
        map_models(torch=Layered, jax=Shrinking, inputs=["i[3,5]<11", "i[3,5]<2"])

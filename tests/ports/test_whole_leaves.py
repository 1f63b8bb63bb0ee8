"""Leaves that are cut into many equal pieces agree with anything: all ways to pair them as a whole decide then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.checks.models import map_models
from parity.checks.models.mapping import map_of
from parity.checks.models.maps import _of_whole_leaves, opened_models
from parity.checks.models.opening import open_subjects
from parity.checks.models.proposal import Matched, match_models
from parity.checks.models.subjects import Subjects
from parity.checks.models.whole_leaves import leaf_maps, outputs_agree

WIDTH, HEADS, PAIRS, SIZE, LAYERS = 16, 4, 2, 4, 2


def attend(q: Any, k: Any, v: Any, tiled: bool) -> Any:
    """Attend with fewer keys than queries: each key has neighbouring queries, or every other one."""
    groups = HEADS // PAIRS
    k, v = ((jnp.tile(x, (1, groups, 1)) if tiled else jnp.repeat(x, groups, 1)) for x in (k, v))
    scores = jnp.einsum("qhd,khd->hqk", q, k) / np.sqrt(SIZE)
    scores = jnp.where(jnp.tril(jnp.ones((len(q), len(q)), bool)), scores, -jnp.inf)
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, -1), v).reshape(len(q), -1)


def apart(tiled: bool) -> Any:
    """Return a model with a matrix for each projection of each layer, laid as PyTorch does."""

    def apply(p: Any, x: Any) -> Any:
        for at in range(LAYERS):
            h = jnp.tanh(x) * p[f"{at}.n"]
            q, k, v = ((h @ p[f"{at}.{name}"].T).reshape(len(x), -1, SIZE) for name in "qkv")
            x = x + attend(q, k, v, tiled) @ p[f"{at}.o"].T
        return x

    def model() -> Any:
        shapes = {"q": HEADS * SIZE, "k": PAIRS * SIZE, "v": PAIRS * SIZE, "o": WIDTH}
        leaves = {f"{at}.{name}": jnp.ones((n, WIDTH)) for at in range(LAYERS) for name, n in shapes.items()}
        return leaves | {f"{at}.n": jnp.ones(WIDTH) for at in range(LAYERS)}, apply

    return model


def stacked() -> Any:
    def layer(x: Any, p: Any) -> Any:
        h = jnp.tanh(x) * p["n"]
        q, k, v = (jnp.einsum("td,dhk->thk", h, p[name]) for name in ("wq", "wk", "wv"))
        return x + attend(q, k, v, False) @ p["wo"].reshape(-1, WIDTH), None

    heads = {"wq": HEADS, "wk": PAIRS, "wv": PAIRS}
    leaves = {name: jnp.ones((LAYERS, WIDTH, count, SIZE)) for name, count in heads.items()}
    leaves["n"] = jnp.ones((LAYERS, WIDTH))
    leaves["wo"] = jnp.ones((LAYERS, HEADS, SIZE, WIDTH))
    return leaves, lambda p, x: jax.lax.scan(layer, x, p)[0]


@pytest.mark.parametrize("tiled", [True, False])
def test_keys_that_every_other_query_has_are_another_model(tiled: bool) -> None:
    with jax.enable_x64(True):
        found = map_models(jax=[apart(tiled), stacked], inputs="f[5,16]")
    assert found.verdict == ("broken" if tiled else "holds"), found.text()


def subjects_of(tiled: bool) -> Subjects:
    return open_subjects(*opened_models({"torch": (None, ()), "jax": ([apart(tiled), stacked], ())}), "f[5,16]")


def doubted() -> Matched:
    """Return what is told of two models that are the same, its keys and values taken as not told."""
    matched = match_models(subjects_of(tiled=False))
    assert not matched.unsure
    sides = [[one for one in matched.sure if (one.first.leaf[-1] in "kv") is unsure] for unsure in (False, True)]
    return replace(matched, sure=tuple(sides[0]), unsure=tuple((one, "a doubt") for one in sides[1]))


@pytest.mark.parametrize("tiled", [True, False])
def test_all_ways_to_pair_whole_leaves_are_tried(tiled: bool) -> None:
    with jax.enable_x64(True):
        subjects, matched = subjects_of(tiled), doubted()
        given = leaf_maps(subjects, matched)
        assert given is not None
        maps = list(given)
        assert len(maps) == len({str(one) for one in maps}) == 24, (
            "keys and values of two layers, in two stacks of two"
        )
        assert sum(outputs_agree(subjects, one) for one in maps) == (0 if tiled else 1)
        unsure = replace(matched, coarser=match_models(subjects_of(tiled=True)))
        found = map_of(subjects, unsure)
        other, proof = _of_whole_leaves(subjects, found, None)
        assert proof is not None
        assert proof.verdict == ("broken" if tiled else "holds")
        assert other.agree is not tiled, "where no way holds, what counts is that the larger pieces part"


def test_of_many_leaves_not_all_ways_are_tried() -> None:
    with jax.enable_x64(True):
        matched = match_models(subjects_of(tiled=False))
        every = replace(matched, sure=(), unsure=tuple((one, "a doubt") for one in matched.sure))
        assert leaf_maps(subjects_of(tiled=False), every) is None


def scaled(shared: bool) -> Any:
    """Return a model whose second scale is a leaf of its own, or the first one again while its own stays unused."""

    def apply(p: Any, x: Any) -> Any:
        h = jnp.tanh(x * p["first"]) @ p["mix"]
        return jnp.sin(h * (p["first"] if shared else p["second"]))

    return lambda: ({"first": jnp.ones(6), "mix": jnp.ones((6, 6)), "second": jnp.ones(6)}, apply)


@pytest.mark.parametrize("shared", [True, False])
def test_a_leaf_that_one_model_alone_uses_makes_them_two(shared: bool) -> None:
    with jax.enable_x64(True):
        found = map_models(jax=[scaled(False), scaled(shared)], inputs="f[4,6]")
        assert found.verdict == ("broken" if shared else "holds"), found.text()
        unused = map_models(jax=[scaled(True), scaled(True)], inputs="f[4,6]")
    assert unused.verdict in ("holds", "inconclusive"), unused.text()

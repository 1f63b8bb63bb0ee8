"""Where two lines compute otherwise and no formula tells it, what stands there is shown; masks are told apart."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import explain
from parity.checks.programs.matching import KnownValues
from torch_side.probes.programs import TorchProgram

_E = 4


def test_masks_of_other_counts_are_not_one() -> None:
    mask = np.zeros((6, _E))
    mask[:, 0] = 1.0
    wider = mask.copy()
    wider[:, 2] = 1.0
    assert KnownValues([mask]).has(mask[::-1])
    assert not KnownValues([mask]).has(wider)


def test_what_a_mask_is_filled_with_still_hides_nothing() -> None:
    scores = np.random.default_rng(1).standard_normal((4, 4))
    filled = np.where(np.tri(4) > 0, scores, -1e9)
    assert KnownValues([filled]).has(filled[::-1])
    assert not KnownValues([filled]).has(np.where(np.tri(4) > 0, 2.0 * scores, -1e9))


def test_the_load_of_a_router_shows_what_both_count() -> None:
    def trainer(x: Any) -> Any:
        p = x.softmax(-1)
        _, i = p.topk(2, -1)
        share = torch.nn.functional.one_hot(i, _E).to(x.dtype).sum(1).mean(0) / 2
        return _E * (share * p.mean(0)).sum()

    def port(x: Any) -> Any:
        p = jax.nn.softmax(x)
        _, i = jax.lax.top_k(p, 2)
        share = jax.nn.one_hot(i[:, 0], _E).mean(0)
        return _E * (share * p.mean(0)).sum()

    draws = [np.random.default_rng(at).standard_normal((6, _E)) for at in (1, 2, 3)]
    here: list[Any] = [TorchProgram(lambda x=x: lambda: trainer(torch.from_numpy(x))) for x in draws]  # type: ignore[misc]
    with jax.enable_x64(True):
        there: list[Any] = [JaxProgram(lambda x: [port(x)], jnp.asarray(x)) for x in draws]
    said = explain(here, there)[0].text
    assert said.startswith("computed otherwise: `mean(sum(one_hot(a, 4), 1, over axis 1 of [6, 2, 4])"), said
    assert "`reduce_sum(one_hot(a[:, :1]), over axis 0 of [6, 4]) / 6` (test_grafted_texts.py:" in said, said[200:]


def test_a_weight_of_one_class_that_both_have_is_a_factor_of_the_other() -> None:
    def trainer(x: Any, y: Any) -> Any:
        weight = torch.full_like(x, 3.0)
        return torch.nn.functional.binary_cross_entropy_with_logits(x, y, pos_weight=weight).exp()

    def port(x: Any, y: Any) -> Any:
        return jnp.exp((-3.0 * (y * jax.nn.log_sigmoid(x) + (1 - y) * jax.nn.log_sigmoid(-x))).mean())

    draws = [np.random.default_rng(at).uniform(size=(2, 6, _E)) for at in (1, 2, 3)]
    here: list[Any] = [TorchProgram(lambda x=x: lambda: trainer(*torch.from_numpy(x))) for x in draws]  # type: ignore[misc]
    with jax.enable_x64(True):
        there: list[Any] = [JaxProgram(lambda x: [port(*x)], jnp.asarray(x)) for x in draws]
    said = explain(here, there)[0].text
    assert said.startswith("factor: 0.3333333333 after sub here, none there"), said
    assert ", `1 - y`)" in said

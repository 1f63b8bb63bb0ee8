"""Cross entropies of PyTorch that a port takes otherwise: smoothing, weights of classes, and rows left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.support.programs import said_of

Function = Callable[..., Any]

_WEIGHTS = np.array([0.5, 2.0, 1.25, 0.8])


def _said(trainer: Function, port: Function, least: int = 0) -> str:
    draws = []
    for seed in range(3):
        rng = np.random.default_rng((11, seed))
        draws.append([rng.standard_normal((7, 4)), rng.integers(least, 4, 7)])
    return said_of(trainer, port, draws)


def _weighed(z: Any, y: Any) -> Any:
    return F.cross_entropy(torch.sin(z), y, torch.as_tensor(_WEIGHTS), label_smoothing=0.1)


def _by_label(z: Any, y: Any) -> Any:
    soft = 0.9 * jax.nn.one_hot(y, 4) + 0.1 / 4
    each = -(soft * jax.nn.log_softmax(jnp.sin(z))).sum(-1)
    w = jnp.asarray(_WEIGHTS)[y]
    return (w * each).sum() / w.sum()


def _by_rows(z: Any, y: Any) -> Any:
    soft = 0.9 * jax.nn.one_hot(y, 4) + 0.1 / 4
    return -(jnp.asarray(_WEIGHTS) * soft * jax.nn.log_softmax(jnp.sin(z))).sum() / 7


def test_smoothing_that_is_weighed_by_the_label_is_named() -> None:
    said = _said(_weighed, _by_label)
    assert said.startswith(
        "loss: cross_entropy with the share of smoothing by the weight of each class here (test_entropies.py:"
    ), said
    assert ", the share of smoothing by the weight of the label there" in said


def test_a_mean_over_rows_in_place_of_weights_is_named() -> None:
    said = _said(_weighed, _by_rows)
    assert "with the sum of rows divided by the sum of the weights here" in said, said
    assert "divided by the rows that count there" in said


def test_smoothing_over_the_other_classes_is_named() -> None:
    def port(z: Any, y: Any) -> Any:
        soft = jnp.where(jax.nn.one_hot(y, 4) > 0, 0.9, 0.1 / 3)
        return -(soft * jax.nn.log_softmax(jnp.sin(z))).sum(-1).mean()

    said = _said(lambda z, y: F.cross_entropy(torch.sin(z), y, label_smoothing=0.1), port)
    assert "the share of smoothing over all classes here" in said, said
    assert "the share of smoothing over the other classes there" in said


@pytest.mark.parametrize("ignored", [-1, 0])
def test_a_mean_over_rows_that_are_left_out_is_named(ignored: int) -> None:
    def port(z: Any, y: Any) -> Any:
        logs = jnp.take_along_axis(jax.nn.log_softmax(jnp.sin(z)), jnp.where(y == ignored, 0, y)[:, None], -1)[:, 0]
        return -jnp.where(y == ignored, 0.0, logs).mean()

    said = _said(lambda z, y: F.cross_entropy(torch.sin(z), y, ignore_index=ignored), port, least=ignored)
    assert "all rows there" in said, said


def test_an_equal_cross_entropy_is_not_accused() -> None:
    """What parts is the factor behind it."""

    def port(z: Any, y: Any) -> Any:
        return 1.5 * _by_rows(z, y) * 7 / jnp.asarray(_WEIGHTS)[y].sum()

    said = _said(_weighed, port)
    assert "loss: " not in said, said
    assert said.startswith("number of div: 10.5 here, 7 there"), said

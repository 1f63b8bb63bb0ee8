"""Nesterov beside decay in the gradient, of leaves that begin at zero: what of them shows no share is not asked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from parity.checks.proving.update_causes import update_cause
from tests.ports import small_walks
from tests.ports.small_walks import Leaves, Rule, still_zero, walk_of


def _rule(*, ahead: bool, rate: Callable[[str], float]) -> Rule:
    def rule(state: dict, grads: Leaves, at: int) -> None:
        for leaf, grad in grads.items():
            p = state["params"]
            g = grad + 0.01 * p[leaf]
            m = state["m"][leaf] = 0.9 * state["m"][leaf] + g
            p[leaf] = p[leaf] - rate(leaf) * (g + 0.9 * m if ahead else m)

    return rule


@pytest.fixture
def zero_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have one of two matrices begin at zero: its decay is a share of its momentum then."""
    values = {"w": np.random.default_rng(0).normal(size=(5, 24)), "v": np.zeros((24, 3)), "b": np.zeros(3),
              "s": np.array(1.3), "r": np.array(0.7)}  # fmt: skip
    monkeypatch.setattr(small_walks, "MODEL", values)


@pytest.mark.usefixtures("zero_bias")
@pytest.mark.parametrize("rate", [lambda leaf: 0.05, lambda leaf: 0.01 if leaf == "w" else 0.05])
def test_that_nesterov_is_missing_is_no_rate(rate: Callable[[str], float]) -> None:
    found = update_cause(
        walk_of(_rule(ahead=True, rate=rate), _rule(ahead=False, rate=rate), lambda p: {"m": still_zero(p)})
    )
    assert found == "Nesterov: the trainer moves ahead of its momentum, the port by its momentum alone"


@pytest.mark.usefixtures("zero_bias")
def test_another_rate_of_both_is_no_nesterov() -> None:
    one, two = (_rule(ahead=True, rate=lambda leaf, rate=rate: rate) for rate in (0.05, 0.04))  # type: ignore[misc]
    found = update_cause(walk_of(one, two, lambda p: {"m": still_zero(p)}))
    assert "Nesterov" not in found
    assert "rate" in found

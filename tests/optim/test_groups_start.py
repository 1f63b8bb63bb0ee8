"""Adagrad's sums start with the argument of the call in every group, as PyTorch's do."""

import jax
import jax.numpy as jnp
import optax
import pytest
import torch

from jax_side import optim
from parity.state import GroupRule


def test_the_sum_of_a_group_starts_where_pytorchs_does() -> None:
    start = {"initial_accumulator_value": 4.0}
    a, b = torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    a.requires_grad_(), b.requires_grad_()
    theirs = torch.optim.Adagrad([{"params": [a]}, {"params": [b], **start}], lr=0.1)
    with jax.enable_x64(True):
        rules = (GroupRule(label="a", names=("a",)), GroupRule(label="b", names=("b",), arguments=start))
        tx = optim.adagrad(lr=0.1, groups=rules)
        params = {"a": jnp.ones(2), "b": jnp.ones(2)}
        state = tx.init(params)
        for _ in range(3):
            a.grad, b.grad = torch.full((2,), 0.5, dtype=torch.float64), torch.full((2,), 2.0, dtype=torch.float64)
            theirs.step()
            updates, state = tx.update({"a": jnp.full(2, 0.5), "b": jnp.full(2, 2.0)}, state, params)
            params = optax.apply_updates(params, updates)
        assert params["a"].tolist() == pytest.approx(a.tolist(), abs=1e-15)
        assert params["b"].tolist() == pytest.approx(b.tolist(), abs=1e-15)

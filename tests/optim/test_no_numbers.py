"""Gradients that are no numbers: NaN and infinity spoil in JAX what they spoil in torch.optim, and nothing else."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from jax_side.optim import by_name

NAN, INF = float("nan"), float("inf")

GRADIENTS = {
    "a NaN": [[[1.0, 2.0], [3.0, -1.0]], [[NAN, 1.0], [-1.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]],
    "a NaN at first": [[[NAN, 2.0], [3.0, -1.0]], [[0.5, 1.0], [-1.0, 1.0]]],
    "an infinity": [[[1.0, 2.0], [3.0, -1.0]], [[INF, 1.0], [-1.0, -INF]], [[1.0, 1.0], [1.0, 1.0]]],
    "one that overflows squared": [[[1e200, 1.0], [1.0, 2.0]], [[1.0, 1e-200], [1.0, 1.0]]],
}

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "NAdam": {},
    "RAdam": {},
    "Adamax": {},
    "RMSprop": {"centered": True, "momentum": 0.9},
    "Adagrad": {},
    "Adadelta": {},
    "Rprop": {},
    "ASGD": {},
    "Adafactor": {},
}


def walked(name: str, gradients: list[Any], axes: int, compiled: bool) -> tuple[np.ndarray[Any, Any], jax.Array]:
    shape = (2, 2) if axes == 2 else (4,)
    start = np.arange(1.0, 5.0).reshape(shape)
    theirs = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = getattr(torch.optim, name)([theirs], **OPTIMIZERS[name])
    tx = by_name(name, OPTIMIZERS[name])
    ours = jnp.asarray(start)
    state, update = tx.init(ours), jax.jit(tx.update) if compiled else tx.update
    for given in gradients:
        gradient = np.array(given).reshape(shape)
        theirs.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        updates, state = update(jnp.asarray(gradient), state, ours)
        ours = optax.apply_updates(ours, updates)  # type: ignore[assignment]
    return theirs.detach().numpy(), ours


EAGER = ("RMSprop", "Rprop", "Adafactor")
"""Those whose steps have something to say of NaN, walked without a compiler too."""

CASES = [(name, True) for name in OPTIMIZERS] + [(name, False) for name in EAGER]


@pytest.mark.parametrize("kind", GRADIENTS)
@pytest.mark.parametrize(("name", "compiled"), CASES)
def test_what_is_no_number_goes_where_it_goes_in_torch(name: str, kind: str, compiled: bool) -> None:
    """Rprop's sign of NaN is 0 in PyTorch; a norm that is NaN does not scale a step of Adafactor."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with jax.enable_x64(True):
            for axes in (1, 2):
                theirs, ours = walked(name, GRADIENTS[kind], axes, compiled)
                np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-12, atol=0, equal_nan=True)
    finally:
        torch.set_default_dtype(default)


@pytest.mark.parametrize("name", ["Rprop", "Adafactor"])
def test_a_step_without_such_gradients_moves_every_element(name: str) -> None:
    with jax.enable_x64(True):
        _, ours = walked(name, [[[1.0, 2.0], [3.0, -1.0]]], 2, True)
    assert np.isfinite(ours).all()
    assert (np.asarray(ours) != np.arange(1.0, 5.0).reshape(2, 2)).all()

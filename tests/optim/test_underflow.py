"""Products that are subnormal: XLA on the CPU takes them for 0, and Rprop would lose their sign."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from jax_side.optim import rprop
from jax_side.optim.arithmetic import product_sign

EXPONENTS = {"float32": np.arange(-80, 41), "float64": np.arange(-540, 261, 4)}
"""Powers of two of the factors: products from far below the smallest subnormal number to far above 1."""


def factors(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    powers = EXPONENTS[dtype]
    a, b = np.meshgrid(powers, powers)
    mantissas = generator.uniform(1, 2, (2, a.size)) * generator.choice([-1, 1], (2, a.size))
    sides = [np.ldexp(m, p.ravel()).astype(dtype) for m, p in zip(mantissas, (a, b), strict=True)]
    return tuple(np.append(side, [0, 1, np.inf, 0, -1]).astype(dtype) for side in sides)


@pytest.mark.parametrize("dtype", EXPONENTS)
def test_the_sign_of_a_product_is_torchs(dtype: str) -> None:
    a, b = factors(dtype)
    expected = torch.from_numpy(a).mul(torch.from_numpy(b)).sign().numpy()
    with jax.enable_x64(dtype == "float64"):
        got = np.asarray(jax.jit(product_sign)(a, b))
        plain = np.asarray(jax.jit(lambda a, b: jnp.sign(a * b))(a, b))
    assert np.array_equal(got, expected)
    assert not np.array_equal(plain, expected)  # were they equal, nothing of ours would be needed


def test_what_is_no_number_stays_none() -> None:
    assert np.isnan(product_sign(jnp.array([np.nan, 1.0], jnp.float32), jnp.array([0.0, np.nan], jnp.float32))).all()


def test_rprop_with_small_gradients_takes_torchs_steps() -> None:
    gradients = np.random.default_rng(1).normal(size=(12, 64)).astype(np.float32) * np.float32(2e-20)
    parameter = torch.nn.Parameter(torch.ones(64))
    theirs, tx = torch.optim.Rprop([parameter], lr=0.01), rprop(0.01)
    ours = jnp.ones(64)
    state = tx.init(ours)

    @jax.jit
    def step(ours, state, gradient):
        updates, state = tx.update(gradient, state, ours)
        return optax.apply_updates(ours, updates), state

    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient.copy())
        theirs.step()
        ours, state = step(ours, state, gradient)
    assert np.array_equal(np.asarray(ours), parameter.detach().numpy())

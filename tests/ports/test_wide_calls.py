"""Steps that look at their values are computed without casts too, as those are that can be traced whole."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_side.probes.state import LiftedStep

TX = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(lambda count: 1e-2 / (count + 3)))
"""Its rate is float32, of a count in int32."""


def loss_of(weights, x):
    narrow = (x @ weights["w"]).astype(jnp.float32)
    return jnp.square(jax.nn.silu(narrow) - 1.0).mean()


@jax.jit
def compiled(state, x):
    loss, grads = jax.value_and_grad(loss_of)(state["weights"], x)
    moves, opt = TX.update(grads, state["opt"], state["weights"])
    return {"weights": optax.apply_updates(state["weights"], moves), "opt": opt}, loss


def plain(state, batch):
    return compiled(state, batch["x"])


def number(state, batch):
    state, loss = compiled(state, batch["x"])
    return state, float(loss)


def asks(state, batch):
    loss, grads = jax.value_and_grad(loss_of)(state["weights"], batch["x"])
    if not np.isfinite(np.asarray(optax.tree.norm(grads))):
        return state, loss.item()
    moves, opt = TX.update(grads, state["opt"], state["weights"])
    return {"weights": optax.apply_updates(state["weights"], moves), "opt": opt}, loss.item()


def trained(step, lift):
    weights = {"w": jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)))}
    state = {"weights": weights, "opt": TX.init(weights)}
    called = LiftedStep(step) if lift else step
    losses = []
    for at in range(4):
        state, loss = called(state, {"x": np.random.default_rng(at).normal(size=(4, 5))})
        losses.append(float(loss))
    return np.asarray(state["weights"]["w"]), losses


def by_hand():
    """The same Adam in NumPy, all in float64."""
    w = np.random.default_rng(1).normal(size=(5, 3))
    first, second = np.zeros_like(w), np.zeros_like(w)
    for at in range(4):
        x = np.random.default_rng(at).normal(size=(4, 5))
        hidden = x @ w
        share = 1 / (1 + np.exp(-hidden))
        silu = hidden * share
        grad = x.T @ (2 * (silu - 1) / hidden.size * (share + silu * (1 - share)))
        grad = grad * min(1.0, 1.0 / np.sqrt((grad**2).sum()))
        first, second = 0.9 * first + 0.1 * grad, 0.999 * second + 0.001 * grad**2
        unbiased = np.sqrt(second / (1 - 0.999 ** (at + 1))) + 1e-8
        w = w - 1e-2 / (at + 3) * (first / (1 - 0.9 ** (at + 1))) / unbiased
    return w


@pytest.mark.parametrize("step", [plain, number, asks])
def test_a_step_gives_what_float64_gives_and_rounds_as_it_is(step):
    with jax.enable_x64(True):
        right = by_hand()
        wide, losses = trained(step, lift=True)
        rounded, _ = trained(step, lift=False)
        assert np.abs(wide - right).max() < 1e-14
        assert np.abs(rounded - right).max() > 1e-11  # the cast is there, and was left out
        assert np.allclose(losses, trained(plain, lift=True)[1], rtol=1e-14, atol=0.0)


def test_the_cast_is_found_where_a_step_returns_a_number():
    with jax.enable_x64(True):
        weights = {"w": jnp.ones((5, 3))}
        lifted = LiftedStep(number)
        lifted({"weights": weights, "opt": TX.init(weights)}, {"x": np.ones((4, 5))})
        assert [one.what for one in lifted.found.values()] == ["cast to float32"]

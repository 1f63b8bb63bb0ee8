"""The model of `loops` in equinox, as a trainer; a test that is skipped without equinox imports it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from tests.ports import loops
from tests.ports.port_jax import clip


class Model(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    last: eqx.nn.Linear
    drop: eqx.nn.Dropout
    act: object

    def __init__(self, eps=1e-5, drop=0.0, *, key):
        one, two = jax.random.split(key)
        self.first = eqx.nn.Linear(loops.FEATURES, loops.WIDTH, key=one)
        self.norm = eqx.nn.LayerNorm(loops.WIDTH, eps=eps)
        self.last = eqx.nn.Linear(loops.WIDTH, loops.CLASSES, key=two)
        self.drop, self.act = eqx.nn.Dropout(drop), jnp.tanh

    def __call__(self, x, key=None):
        return jax.vmap(lambda row: self.last(self.drop(self.act(self.norm(self.first(row))), key=key)))(x)


inputs, batch, loss = loops.inputs, loops.batch, loops.nnx_loss


def transformation(decayed):
    return optax.chain(
        clip(loops.CLIP),
        optax.adamw(
            lambda count: loops.RATE * loops.share(count, jnp),
            weight_decay=loops.DECAY,
            mask=lambda params: jax.tree.map(decayed, params),
        ),
    )


TX = transformation(lambda one: one.ndim > 1)
TX_OF_ALL = transformation(lambda one: True)


def start(model):
    return {"model": model, "opt_state": TX.init(eqx.filter(model, eqx.is_inexact_array))}


def make_step(tx):
    @eqx.filter_jit
    def step(state, batch):
        value, grads = eqx.filter_value_and_grad(loss)(state["model"], batch)
        params = eqx.filter(state["model"], eqx.is_inexact_array)
        updates, opt_state = tx.update(grads, state["opt_state"], params)
        return {"model": eqx.apply_updates(state["model"], updates), "opt_state": opt_state}, value

    return step


step, step_of_all = make_step(TX), make_step(TX_OF_ALL)

"""The port of `gpt_trainer_torch` to JAX: NNX, linen, or a scan over stacked layers; and what goes wrong in it."""

from dataclasses import dataclass
from functools import cache, partial

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tests.ports.corpus import gpt_jax, gpt_trainer_torch
from tests.ports.corpus.gpt_trainer_torch import CLIP, DECAY, LAST, MICRO, RATE, WARM
from tests.ports.corpus.initial import initial_nnx, initial_tree, key_of
from tests.ports.corpus.loops import jax_loop

CONSTANT = ("g", "b", "bqkv", "bo", "b1", "b2", "bias", "scale")
"""Leaves that begin as ones or zeros, and do not decay."""


def decays(params, fault):
    """Return which leaves decay: matrices, told by their names where layers are stacked."""
    if fault == "decay on norms and biases":
        return jax.tree.map(lambda _: True, params)
    if fault == "decay by the number of axes":
        return jax.tree.map(lambda p: p.ndim >= 2, params)
    return jax.tree_util.tree_map_with_path(lambda path, _: key_of(path) not in CONSTANT, params)


def rate(count, fault=""):
    """Return the learning rate of an update; the count is cast, since whole numbers of JAX give float32."""
    count = jnp.asarray(count, float)
    if fault == "schedule off by one":
        warm = count / WARM
    else:
        warm = (count + 1) / WARM
    done = (count - WARM) / (LAST if fault == "denominator of the schedule" else LAST - WARM)
    floor = 0.0 if fault == "floor of the schedule" else 0.1
    cosine = floor + (1 - floor) * 0.5 * (1 + jnp.cos(jnp.pi * jnp.clip(done, 0, 1)))
    return RATE * jnp.where(count < WARM, warm, cosine)


def clip(fault=""):
    """Scale gradients as PyTorch does, which adds 1e-6 to the norm; a fault is what Optax does, or another norm."""
    if fault == "clip epsilon":
        return optax.clip_by_global_norm(CLIP)
    if fault == "clip per leaf":
        return optax.stateless_with_tree_map(
            lambda g, _: g * jnp.minimum(1.0, CLIP / (jnp.linalg.norm(g.ravel()) + 1e-6))
        )
    if fault == "clip by value":
        return optax.clip(CLIP / 10)

    def update(grads, state, params=None):
        scale = jnp.minimum(1.0, CLIP / (optax.tree.norm(grads) + 1e-6))
        return jax.tree.map(lambda g: g * scale, grads), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


@cache
def transform(fault, chain="adamw"):
    """Return the optimizer: Optax's AdamW, or the chain that it is made of with decay as a group of its own."""
    b2 = 0.999 if fault == "b2" else 0.95
    eps = 1e-6 if fault == "epsilon of Adam" else 1e-8
    decay = 1e-4 if fault == "decay of Optax" else DECAY
    schedule = partial(rate, fault=fault)
    masked = partial(decays, fault=fault)
    if chain == "adamw":
        return optax.chain(clip(fault), optax.adamw(schedule, 0.9, b2, eps, weight_decay=decay, mask=masked))
    adam = optax.scale_by_adam(0.9, b2, eps)
    if fault == "L2 in place of decoupled decay":
        return optax.chain(
            clip(), optax.add_decayed_weights(decay, masked), adam, optax.scale_by_learning_rate(schedule)
        )
    labels = lambda params: jax.tree.map(lambda d: "decay" if d else "none", masked(params))  # noqa: E731
    two = optax.partition({"decay": optax.add_decayed_weights(decay), "none": optax.identity()}, labels)
    return optax.chain(clip(fault), adam, two, optax.scale_by_schedule(schedule), optax.scale(-1.0))


def cross_entropy(logits, y):
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


@dataclass(frozen=True)
class Port:
    """One port: how it is written, and what is wrong with it."""

    style: str = "separate"
    fault: str = ""
    chain: str = "adamw"

    inputs = gpt_trainer_torch.Trainer.inputs

    def batch(self, step):
        return gpt_trainer_torch.batch(step + (step > 2) if self.fault == "batch order" else step)

    def Model(self):
        """Return the model as `parity map` takes it."""
        if self.style == "linen":
            return gpt_jax.LinenModel(dropout=0.0)
        if self.style == "stacked":
            params, apply = gpt_jax.stacked()
            return params | initial_tree({"embed": params["embed"], "layers": params["layers"]}, CONSTANT), apply
        faults = {
            "epsilon of the norms": {"eps": 1e-6},
            "form of GELU": {"approximate": True},
            "head is not tied": {"tied": False},
            "mask off by one": {"ahead": 1},
        }
        model = gpt_jax.Model(self.style, dropout=0.0, rngs=nnx.Rngs(0), **faults.get(self.fault, {}))
        return model if self.fault == "initial values" else initial_nnx(model, CONSTANT)

    def opened(self):
        """Return the model as `start` and `loss` take it."""
        if self.style == "linen":
            variables = self.Model().init(jax.random.key(0), jnp.zeros((1, 8), int), deterministic=True)
            return self.Model(), initial_tree(variables, CONSTANT)
        return self.Model()

    def loss(self, model, batch):
        x, y = (jnp.asarray(batch[name]).reshape(-1, batch[name].shape[-1]) for name in ("x", "y"))
        if isinstance(model, nnx.Module):
            return cross_entropy(model(x), y)
        if self.style == "linen":
            module, variables = model
            return cross_entropy(module.apply(variables, x, deterministic=True), y)
        params, apply = model
        if self.fault == "gradient of the embedding stopped":
            params = params | {
                "embed": params["embed"] | {"places": jax.lax.stop_gradient(params["embed"]["places"])}
            }
        return cross_entropy(apply(params, x), y)

    def start(self, model):
        tx = transform(self.fault, self.chain)
        if isinstance(model, nnx.Module):
            return {"model": model, "optimizer": nnx.Optimizer(model, tx, wrt=nnx.Param)}
        params = model[1]["params"] if self.style == "linen" else model[0]
        if self.style == "stacked" and self.chain == "by hand":
            zeros = jax.tree.map(jnp.zeros_like, params)
            return {"params": params, "m": zeros, "v": zeros, "step": jnp.zeros((), jnp.int32)}
        return {"params": params, "opt_state": tx.init(params)}

    def step(self, state, batch):
        batch = {name: jnp.asarray(one) for name, one in batch.items()}
        if "model" in state:
            return state, nnx_step(self, state["model"], state["optimizer"], batch)
        return plain_step(self, state, batch)

    def train(self, folder, steps=12):
        yield from jax_loop(self, folder, steps)


@partial(nnx.jit, static_argnums=0)
def nnx_step(port, model, optimizer, batch):
    """Update a model of NNX by the mean over micro-batches, which are added up one after the other."""
    total, grads = 0.0, None
    for at in range(MICRO):
        part, more = nnx.value_and_grad(port.loss)(model, {name: one[at] for name, one in batch.items()})
        total += part / MICRO
        grads = more if grads is None else jax.tree.map(jnp.add, grads, more)
    scale = MICRO**2 if port.fault == "accumulation scaled twice" else MICRO
    if port.fault == "accumulation not scaled":
        scale = 1
    optimizer.update(model, jax.tree.map(lambda g: g / scale, grads))
    return total


@partial(jax.jit, static_argnums=0)
def plain_step(port, state, batch):
    """Update parameters in containers; all micro-batches at once, since they are of one size."""
    module = port.Model() if port.style == "linen" else port.Model()[1]

    def loss_of(params):
        return port.loss((module, {"params": params}) if port.style == "linen" else (params, module), batch)

    value, grads = jax.value_and_grad(loss_of)(state["params"])
    if "opt_state" in state:
        updates, opt_state = transform(port.fault, port.chain).update(grads, state["opt_state"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt_state": opt_state}, value
    grads, _ = clip().update(grads, None)
    step = state["step"] + 1
    at = step.astype(float)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, state["v"], grads)
    if port.fault == "no correction of the bias":
        one, two = 1.0, 1.0
    else:
        one, two = 1 - 0.9**at, 1 - 0.95**at
    lr = rate(at - 1, port.fault)

    def moved(p, m, v, decay):
        return p * (1 - lr * DECAY * decay) - lr * (m / one) / (jnp.sqrt(v / two) + 1e-8)

    params = jax.tree.map(moved, state["params"], m, v, decays(state["params"], port.fault))
    return {"params": params, "m": m, "v": v, "step": step}, value

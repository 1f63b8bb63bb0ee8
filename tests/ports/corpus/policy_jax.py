"""The port of `policy_torch` to JAX: NNX, or functions with a scan over both experts' layers; and what goes wrong."""

from dataclasses import dataclass
from functools import cache, partial

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tests.ports.corpus import policy_torch
from tests.ports.corpus.initial import initial_nnx, initial_tree
from tests.ports.corpus.loops import jax_loop, nnx_step
from tests.ports.corpus.policy_torch import (
    ACTION_WIDTH,
    ACTIONS,
    AVERAGE,
    CLIP,
    DECAY,
    HEADS,
    HORIZON,
    LAST,
    LAYERS,
    LONGEST,
    RATE,
    REAL,
    SHORTEST,
    SIZE,
    STATE,
    TOKENS,
    VOCABULARY,
    WARM,
    WIDTH,
    WORDS,
)  # fmt: skip


def rms(x, weight):
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * (1 + weight)


def time_embedding(time, width, fault=""):
    longest = 10.0 if fault == "periods of the time" else LONGEST
    period = SHORTEST * (longest / SHORTEST) ** jnp.linspace(0.0, 1.0, width // 2, dtype=time.dtype)
    turns = time[:, None] * 2 * jnp.pi / period
    parts = (jnp.cos(turns), jnp.sin(turns)) if fault == "cosines first" else (jnp.sin(turns), jnp.cos(turns))
    return jnp.concatenate(parts, -1)


def seen(n, m, fault=""):
    """Return who sees whom: what was seen and said is one block, the state the next, the actions the last."""
    block = jnp.concatenate((jnp.zeros(n, int), jnp.ones(1, int), jnp.full(m - 1, 2)))
    if fault == "state sees actions":
        block = jnp.minimum(block, 1)
    return block[None, :] <= block[:, None]


def attend(q, k, v, mask):
    """Return attention, [batch, time, heads, size]."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / SIZE**0.5
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e30), -1), v)


class RMSNorm(nnx.Module):
    def __init__(self, width):
        self.scale = nnx.Param(jnp.zeros(width))

    def __call__(self, x):
        return rms(x, self.scale[...])


class Expert(nnx.Module):
    def __init__(self, width, rngs):
        self.pre, self.post = RMSNorm(width), RMSNorm(width)
        heads = partial(nnx.LinearGeneral, width, (HEADS, SIZE), use_bias=False, rngs=rngs)
        self.q, self.k, self.v = heads(), heads(), heads()
        self.o = nnx.LinearGeneral((HEADS, SIZE), width, axis=(-2, -1), use_bias=False, rngs=rngs)
        self.gate, self.up = (nnx.Linear(width, 2 * width, use_bias=False, rngs=rngs) for _ in range(2))
        self.down = nnx.Linear(2 * width, width, use_bias=False, rngs=rngs)

    def heads(self, x):
        x = self.pre(x)
        return self.q(x), self.k(x), self.v(x)

    def rest(self, x, y, fault=""):
        x = x + self.o(y)
        h = self.post(x)
        return x + self.down(jax.nn.gelu(self.gate(h), approximate=fault != "form of GELU") * self.up(h))


class Policy(nnx.Module):
    def __init__(self, fault, rngs):
        self.vision = nnx.Conv(3, WIDTH, (4, 4), 4, padding="VALID", rngs=rngs)
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.language = nnx.List([Expert(WIDTH, rngs) for _ in range(LAYERS)])
        self.action = nnx.List([Expert(ACTION_WIDTH, rngs) for _ in range(LAYERS)])
        linear = partial(nnx.Linear, rngs=rngs)
        self.state_proj, self.action_in = linear(STATE, ACTION_WIDTH), linear(ACTIONS, ACTION_WIDTH)
        self.action_out = linear(ACTION_WIDTH, ACTIONS)
        self.time_in, self.time_out = linear(2 * ACTION_WIDTH, ACTION_WIDTH), linear(ACTION_WIDTH, ACTION_WIDTH)
        self.norm, self.fault = RMSNorm(ACTION_WIDTH), fault

    def __call__(self, image, tokens, state, actions, time):
        patches = self.vision(image).reshape(len(image), -1, WIDTH)
        words = self.embed(tokens)
        if self.fault != "embedding is not scaled":
            words = words * WIDTH**0.5
        prefix = jnp.concatenate((patches, words), 1)
        if self.fault == "gradient of the prefix stopped":
            prefix = jax.lax.stop_gradient(prefix)
        when = time_embedding(time, ACTION_WIDTH, self.fault)
        when = jnp.broadcast_to(when[:, None], (len(image), HORIZON, ACTION_WIDTH))
        h = jax.nn.silu(self.time_in(jnp.concatenate((self.action_in(actions), when), -1)))
        suffix = jnp.concatenate((self.state_proj(state)[:, None], self.time_out(h)), 1)
        n, m = prefix.shape[1], suffix.shape[1]
        for left, right in zip(self.language, self.action, strict=True):
            both = zip(left.heads(prefix), right.heads(suffix), strict=True)
            y = attend(*(jnp.concatenate(parts, 1) for parts in both), seen(n, m, self.fault))
            prefix, suffix = left.rest(prefix, y[:, :n], self.fault), right.rest(suffix, y[:, n:], self.fault)
        return self.action_out(self.norm(suffix[:, 1:])), self.embed.attend(prefix[:, -TOKENS:])


def functions():
    """Return parameters, with the layers of each expert stacked and what is multiplied alike in one leaf."""

    def expert(width):
        return {
            "pre": jnp.zeros((LAYERS, width)), "post": jnp.zeros((LAYERS, width)),
            "qkv": jnp.zeros((LAYERS, 3, width, HEADS, SIZE)), "o": jnp.zeros((LAYERS, HEADS, SIZE, width)),
            "gating": jnp.zeros((LAYERS, 2, width, 2 * width)), "linear": jnp.zeros((LAYERS, 2 * width, width)),
        }  # fmt: skip

    def dense(n, m):
        return {"w": jnp.zeros((n, m)), "b": jnp.zeros(m)}

    params = {
        "vision": {"w": jnp.zeros((3, 4, 4, WIDTH)), "b": jnp.zeros(WIDTH)},
        "embed": jnp.zeros((VOCABULARY, WIDTH)),
        "experts": [expert(WIDTH), expert(ACTION_WIDTH)],
        "state": dense(STATE, ACTION_WIDTH), "action_in": dense(ACTIONS, ACTION_WIDTH),
        "action_out": dense(ACTION_WIDTH, ACTIONS), "time_in": dense(2 * ACTION_WIDTH, ACTION_WIDTH),
        "time_out": dense(ACTION_WIDTH, ACTION_WIDTH), "norm": jnp.zeros(ACTION_WIDTH),
    }  # fmt: skip

    def layer(streams, both):
        n, m = (x.shape[1] for x in streams)
        parts = [
            jnp.einsum("btm,smhd->sbthd", rms(x, p["pre"]), p["qkv"]) for x, p in zip(streams, both, strict=True)
        ]
        y = attend(*jnp.concatenate(parts, 2), seen(n, m))
        after = []
        for x, p, of in zip(streams, both, (y[:, :n], y[:, n:]), strict=True):
            x = x + jnp.einsum("bthd,hdm->btm", of, p["o"])
            gate, up = jnp.einsum("btm,smf->sbtf", rms(x, p["post"]), p["gating"])
            after.append(x + (jax.nn.gelu(gate) * up) @ p["linear"])
        return after, None

    def apply(params, image, tokens, state, actions, time):
        p, b = params, len(image)
        patches = image.reshape(b, 3, 2, 4, 2, 4)
        patches = jnp.einsum("bchiwj,cijm->bhwm", patches, p["vision"]["w"]) + p["vision"]["b"]
        prefix = jnp.concatenate((patches.reshape(b, -1, WIDTH), p["embed"][tokens] * WIDTH**0.5), 1)

        def dense(name, x):
            return x @ p[name]["w"] + p[name]["b"]

        when = jnp.repeat(time_embedding(time, ACTION_WIDTH)[:, None], HORIZON, 1)
        h = jax.nn.silu(dense("time_in", jnp.concatenate((dense("action_in", actions), when), -1)))
        suffix = jnp.concatenate((dense("state", state)[:, None], dense("time_out", h)), 1)
        (prefix, suffix), _ = jax.lax.scan(layer, [prefix, suffix], p["experts"])
        return dense("action_out", rms(suffix[:, 1:], p["norm"])), prefix[:, -TOKENS:] @ p["embed"].T

    return initial_tree(params, ("pre", "post", "norm", "b")), apply


def rate(count, fault=""):
    count = jnp.asarray(count, float)
    done = jnp.clip((count - WARM) / (LAST - WARM), 0, 1)
    warm = (count + 1) / (WARM if fault == "warm-up a step shorter" else WARM + 1)
    return RATE * jnp.where(count < WARM, warm, 0.1 + 0.45 * (1 + jnp.cos(jnp.pi * done)))


@cache
def transform(fault):
    """Return the optimizer; the vision tower is frozen, and counts neither for the norm nor for decay."""

    def update(grads, state, params=None):
        scale = jnp.minimum(1.0, CLIP / (optax.tree.norm(grads) + 1e-6))
        return jax.tree.map(lambda g: g * scale, grads), state

    clip = optax.GradientTransformation(lambda _: optax.EmptyState(), update)
    adamw = optax.adamw(partial(rate, fault=fault), 0.9, 0.95, weight_decay=DECAY)
    tx = optax.chain(clip, adamw)

    def labels(params):
        def one(path, _):
            return "frozen" if any(getattr(key, "key", "") == "vision" for key in path) else "train"

        return jax.tree_util.tree_map_with_path(one, params)

    if fault == "the tower is not frozen":
        return tx
    if fault == "the frozen tower counts for the norm":
        return optax.chain(clip, optax.partition({"train": adamw, "frozen": optax.set_to_zero()}, labels))
    return optax.partition({"train": tx, "frozen": optax.set_to_zero()}, labels)


@dataclass(frozen=True)
class Port:
    style: str = "nnx"
    fault: str = ""

    @property
    def inputs(self):
        first, *rest = policy_torch.Trainer.inputs
        return (first if self.style == "functions" else f"{first}->[0,2,3,1]", *rest)

    def batch(self, step):
        return policy_torch.batch(step, time_first=self.fault == "time is drawn before the noise")

    def Model(self):
        if self.style == "functions":
            return functions()
        return initial_nnx(Policy(self.fault, nnx.Rngs(0)))

    def opened(self):
        return self.Model()

    def loss(self, model, batch):
        image, tokens, state, actions, noise, time = (
            jnp.asarray(batch[name]) for name in ("image", "tokens", "state", "actions", "noise", "time")
        )
        at = time[:, None, None]
        noisy = at * noise + (1 - at) * actions
        if self.fault == "time runs the other way":
            noisy = (1 - at) * noise + at * actions
        if self.style == "functions":
            velocity, words = model[1](model[0], image, tokens, state, noisy, time)
        else:
            velocity, words = model(image.transpose(0, 2, 3, 1), tokens, state, noisy, time)
        wanted = actions - noise if self.fault == "sign of the velocity" else noise - actions
        said = optax.softmax_cross_entropy_with_integer_labels(words, jnp.roll(tokens, -1, 1)).mean()
        real = ACTIONS if self.fault == "mean over padded actions" else REAL
        return jnp.square(velocity - wanted)[..., :real].mean() + WORDS * said

    def start(self, model):
        tx, count = transform(self.fault), jnp.zeros((), jnp.int32)
        if self.style == "functions":
            return {"params": model[0], "opt_state": tx.init(model[0]), "ema": model[0], "updates": count}
        copied = jax.tree.map(jnp.copy, nnx.to_pure_dict(nnx.state(model, nnx.Param)))
        optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
        return {"model": model, "optimizer": optimizer, "ema": copied, "updates": count}

    def averaged(self, mean, params, updates):
        """Return the moving average; the first update copies, as `AveragedModel` of PyTorch does."""
        decay = AVERAGE if self.fault == "the first average is no copy" else jnp.where(updates == 0, 0.0, AVERAGE)
        if self.fault == "average of another decay":
            decay = jnp.where(updates == 0, 0.0, 0.99)
        return jax.tree.map(lambda m, p: decay * m + (1 - decay) * p, mean, params)

    def step(self, state, batch):
        batch = {name: jnp.asarray(one) for name, one in batch.items()}
        if self.style == "functions":
            return plain_step(self, state, batch)
        loss = nnx_step(self, state["model"], state["optimizer"], batch)
        params = nnx.to_pure_dict(nnx.state(state["model"], nnx.Param))
        average = self.averaged(state["ema"], params, state["updates"])
        return state | {"ema": average, "updates": state["updates"] + 1}, loss

    def train(self, folder, steps=12):
        yield from jax_loop(self, folder, steps)


@partial(jax.jit, static_argnums=0)
def plain_step(port, state, batch):
    apply = port.Model()[1]
    loss, grads = jax.value_and_grad(lambda params: port.loss((params, apply), batch))(state["params"])
    updates, opt_state = transform(port.fault).update(grads, state["opt_state"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    average = port.averaged(state["ema"], params, state["updates"])
    return {"params": params, "opt_state": opt_state, "ema": average, "updates": state["updates"] + 1}, loss

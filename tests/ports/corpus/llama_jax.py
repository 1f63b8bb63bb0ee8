"""The port of `llama_torch` to JAX: NNX with separate or fused matrices, a scan over layers; and its faults."""

from dataclasses import dataclass
from functools import cache, partial

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tests.ports.corpus import llama_torch
from tests.ports.corpus.initial import initial_nnx, initial_tree, key_of
from tests.ports.corpus.llama_torch import (
    BASE,
    CLIP,
    DECAY,
    EPS,
    GROUPS,
    HEADS,
    HIDDEN,
    LAST,
    LAYERS,
    RATE,
    SIZE,
    VOCABULARY,
    WARM,
    WIDTH,
)  # fmt: skip
from tests.ports.corpus.loops import jax_loop, nnx_step


def rotate(x, fault=""):
    """Turn pairs of numbers by the place, [batch, time, heads, size]."""
    base = 500000.0 if fault == "base of the rotary" else BASE
    places = jnp.arange(x.shape[1], dtype=x.dtype) + (1 if fault == "rotary from one for keys" else 0)
    turns = places[:, None, None] / base ** (jnp.arange(0, SIZE, 2, dtype=x.dtype) / SIZE)
    cos, sin = jnp.cos(turns), jnp.sin(turns)
    if fault == "rotary interleaved":
        left, right = x[..., ::2], x[..., 1::2]
        return jnp.stack((left * cos - right * sin, right * cos + left * sin), -1).reshape(x.shape)
    left, right = jnp.split(x, 2, -1)
    if fault == "rotary the other way":
        sin = -sin
    return jnp.concatenate((left * cos - right * sin, right * cos + left * sin), -1)


def attend(q, k, v, fault=""):
    """Return causal attention in which several heads share keys and values, [batch, time, heads, size]."""
    q, k = rotate(q, fault if "keys" not in fault else ""), rotate(k, fault)
    if fault == "groups tiled":
        k, v = (jnp.tile(one, (1, 1, HEADS // GROUPS, 1)) for one in (k, v))
    else:
        k, v = (jnp.repeat(one, HEADS // GROUPS, axis=2) for one in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (WIDTH if fault == "scale of the scores" else SIZE) ** 0.5
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1), v)


def rms(x, scale, fault=""):
    eps = 1e-5 if fault == "epsilon of the norms" else EPS
    scale = 1.0 + scale if fault == "norms of one plus the scale" else scale
    if fault == "norms after the scale":  # the mean of squares of what was scaled
        x, scale = x * scale, 1.0
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + eps) * scale


class RMSNorm(nnx.Module):
    def __init__(self, fault):
        self.scale, self.fault = nnx.Param(jnp.ones(WIDTH)), fault

    def __call__(self, x):
        return rms(x, self.scale[...], self.fault)


class Layer(nnx.Module):
    def __init__(self, fused, fault, rngs):
        def linear(n, m):
            return nnx.Linear(n, m, use_bias=False, rngs=rngs)

        self.norm1, self.norm2, self.fused, self.fault = RMSNorm(fault), RMSNorm(fault), fused, fault
        if fused:
            self.qkv, self.gate_up = linear(WIDTH, (HEADS + 2 * GROUPS) * SIZE), linear(WIDTH, 2 * HIDDEN)
        else:
            self.q, self.k, self.v = linear(WIDTH, WIDTH), linear(WIDTH, GROUPS * SIZE), linear(WIDTH, GROUPS * SIZE)
            self.gate, self.up = linear(WIDTH, HIDDEN), linear(WIDTH, HIDDEN)
        self.o, self.down = linear(WIDTH, WIDTH), linear(HIDDEN, WIDTH)

    def __call__(self, x):
        h = self.norm1(x)
        parts = jnp.split(self.qkv(h), (WIDTH, WIDTH + GROUPS * SIZE), -1) if self.fused else (
            self.q(h), self.k(h), self.v(h)
        )  # fmt: skip
        heads = [one.reshape(*one.shape[:2], -1, SIZE) for one in parts]
        x = x + self.o(attend(*heads, fault=self.fault).reshape(x.shape))
        h = self.norm2(x)
        gate, up = jnp.split(self.gate_up(h), 2, -1) if self.fused else (self.gate(h), self.up(h))
        if self.fault == "gate of the other half":
            return x + self.down(gate * jax.nn.gelu(up))
        return x + self.down(jax.nn.silu(gate) * up)


class Llama(nnx.Module):
    def __init__(self, fused=False, fault="", *, rngs):
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.layers = nnx.List([Layer(fused, fault, rngs) for _ in range(LAYERS)])
        self.norm, self.head = RMSNorm(fault), nnx.Linear(WIDTH, VOCABULARY, use_bias=False, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def stacked():
    """Return parameters with all layers in one leaf each, heads as axes, and the function of them."""
    per, n = HEADS // GROUPS, LAYERS
    params = {
        "embed": jnp.zeros((VOCABULARY, WIDTH)),
        "layers": {
            "norm1": jnp.ones((n, WIDTH)), "norm2": jnp.ones((n, WIDTH)),
            "q": jnp.zeros((n, WIDTH, GROUPS, per, SIZE)),
            "k": jnp.zeros((n, WIDTH, GROUPS, SIZE)), "v": jnp.zeros((n, WIDTH, GROUPS, SIZE)),
            "o": jnp.zeros((n, GROUPS, per, SIZE, WIDTH)),
            "gate": jnp.zeros((n, WIDTH, HIDDEN)), "up": jnp.zeros((n, WIDTH, HIDDEN)),
            "down": jnp.zeros((n, HIDDEN, WIDTH)),
        },
        "norm": jnp.ones(WIDTH),
        "head": jnp.zeros((WIDTH, VOCABULARY)),
    }  # fmt: skip

    def layer(x, p):
        h = rms(x, p["norm1"])
        q = jnp.einsum("btm,mgpd->btgpd", h, p["q"])
        k, v = (jnp.einsum("btm,mgd->btgd", h, p[name]) for name in "kv")
        q, k = rotate(q.reshape(*q.shape[:2], HEADS, SIZE)).reshape(q.shape), rotate(k)
        scores = jnp.einsum("bqgpd,bkgd->bgpqk", q, k) * SIZE**-0.5
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        y = jnp.einsum("bgpqk,bkgd->bqgpd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1), v)
        x = x + jnp.einsum("bqgpd,gpdm->bqm", y, p["o"])
        h = rms(x, p["norm2"])
        return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"], None

    def apply(params, tokens):
        x, _ = jax.lax.scan(layer, params["embed"][tokens], params["layers"])
        return rms(x, params["norm"]) @ params["head"]

    return initial_tree(params, ("norm", "norm1", "norm2")), apply


def rate(count):
    count = jnp.asarray(count, float)
    return RATE * jnp.minimum((count + 1) / WARM, (LAST - count) / (LAST - WARM))


def clip():
    def update(grads, state, params=None):
        scale = jnp.minimum(1.0, CLIP / (optax.tree.norm(grads) + 1e-6))
        return jax.tree.map(lambda g: g * scale, grads), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


@cache
def transform(fault):
    def decays(params):
        def one(path, _):
            return key_of(path) not in ("scale", "norm", "norm1", "norm2") or fault == "decay on norms"

        return jax.tree_util.tree_map_with_path(one, params)

    narrow = jnp.bfloat16 if fault == "first moment in bfloat16" else None
    eps_root = 1e-8 if fault == "epsilon under the root" else 0.0
    adam = optax.scale_by_adam(0.9, 0.95, 1e-8, eps_root, mu_dtype=narrow)
    decay, lr = optax.add_decayed_weights(DECAY, decays), optax.scale_by_learning_rate(rate)
    if fault == "Adam in place of AdamW":
        return optax.chain(clip(), decay, adam, lr)
    if fault == "decay is not scaled by the rate":
        return optax.chain(clip(), adam, lr, optax.add_decayed_weights(-DECAY * RATE, decays))
    if fault == "clipping after the moments":
        return optax.chain(adam, clip(), decay, lr)
    return optax.chain(clip(), adam, decay, lr)


@dataclass(frozen=True)
class Port:
    style: str = "separate"
    fault: str = ""

    inputs = llama_torch.Trainer.inputs
    batch = staticmethod(llama_torch.batch)

    def Model(self):
        if self.style == "stacked":
            return stacked()
        return initial_nnx(Llama(self.style == "fused", self.fault, rngs=nnx.Rngs(0)))

    def opened(self):
        return self.Model()

    def loss(self, model, batch):
        x, y, mask = (jnp.asarray(batch[name]) for name in ("x", "y", "mask"))
        logits = model[1](model[0], x) if self.style == "stacked" else model(x)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
        if self.fault == "mean over padded tokens":
            return (losses * mask).mean()
        if self.fault == "padding counts":
            return losses.mean()
        if self.fault == "mean of the means of texts":
            return ((losses * mask).sum(1) / mask.sum(1)).mean()
        return (losses * mask).sum() / mask.sum()

    def start(self, model):
        tx = transform(self.fault)
        if self.style == "stacked":
            return {"params": model[0], "opt_state": tx.init(model[0])}
        if self.fault == "bfloat16 parameters":
            nnx.update(model, jax.tree.map(lambda p: p.astype(jnp.bfloat16), nnx.state(model, nnx.Param)))
        return {"model": model, "optimizer": nnx.Optimizer(model, tx, wrt=nnx.Param)}

    def step(self, state, batch):
        batch = {name: jnp.asarray(one) for name, one in batch.items()}
        if self.style == "stacked":
            return plain_step(self, state, batch)
        return state, nnx_step(self, state["model"], state["optimizer"], batch)

    def train(self, folder, steps=12):
        yield from jax_loop(self, folder, steps)


@partial(jax.jit, static_argnums=0)
def plain_step(port, state, batch):
    apply = port.Model()[1]
    loss, grads = jax.value_and_grad(lambda params: port.loss((params, apply), batch))(state["params"])
    updates, opt_state = transform(port.fault).update(grads, state["opt_state"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "opt_state": opt_state}, loss

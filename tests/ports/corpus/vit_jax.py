"""The port of `vit_torch` to JAX: NNX with its own attention or with heads first, linen; and what goes wrong."""

from dataclasses import dataclass
from functools import cache, partial

import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx

from tests.ports.corpus import vit_torch
from tests.ports.corpus.initial import initial_nnx, initial_tree
from tests.ports.corpus.loops import jax_loop, nnx_step
from tests.ports.corpus.vit_torch import (
    AVERAGE,
    CLASSES,
    DECAY,
    DROP,
    HEADS,
    HIDDEN,
    LAYERS,
    PATCHES,
    RATE,
    WARM,
    WIDTH,
)  # fmt: skip


def dropped(x, keep, fault=""):
    if keep is None:
        return x
    return x * keep if fault == "dropout is not scaled" else x * keep / (1 - DROP)


def attend(q, k, v):
    """Return attention of all to all, [batch, tokens, heads, size]."""
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5, -1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


class Block(nnx.Module):
    def __init__(self, style, fault, rngs):
        self.norm1, self.norm2 = (nnx.LayerNorm(WIDTH, epsilon=1e-6, rngs=rngs) for _ in range(2))
        self.style, self.fault = style, fault
        if style == "own":
            self.attn = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        else:  # one matrix, with queries, keys and values of a head side by side
            self.qkv, self.out = nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs), nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.fc1, self.fc2 = nnx.Linear(WIDTH, HIDDEN, rngs=rngs), nnx.Linear(HIDDEN, WIDTH, rngs=rngs)

    def __call__(self, x, keep):
        h = self.norm1(x)
        if self.style == "own":
            y = self.attn(h)
        else:
            parts = self.qkv(h).reshape(*x.shape[:2], HEADS, 3, -1)
            y = self.out(attend(*(parts[:, :, :, at] for at in range(3))).reshape(x.shape))
        if self.fault == "dropout after the sum":
            x = dropped(x + y, keep[0])
        else:
            x = x + dropped(y, keep[0], self.fault)
        h = nnx.gelu(self.fc1(self.norm2(x)), approximate=self.fault == "form of GELU")
        if self.fault == "dropout after the sum":
            return dropped(x + self.fc2(h), keep[1])
        return x + dropped(self.fc2(h), keep[1], self.fault)


class ViT(nnx.Module):
    def __init__(self, style, fault, rngs):
        self.stem = nnx.Conv(3, WIDTH, (2, 2), 2, padding="VALID", rngs=rngs)
        self.cls, self.places = nnx.Param(jnp.zeros(WIDTH)), nnx.Param(jnp.zeros((PATCHES + 1, WIDTH)))
        self.blocks = nnx.List([Block(style, fault, rngs) for _ in range(LAYERS)])
        self.norm = nnx.LayerNorm(WIDTH, epsilon=1e-6, rngs=rngs)
        self.head, self.fault = nnx.Linear(WIDTH, CLASSES, rngs=rngs), fault

    def __call__(self, image, keep=None):
        x = self.stem(image)
        if self.fault == "columns before rows":
            x = x.transpose(0, 2, 1, 3)
        x = x.reshape(len(x), PATCHES, WIDTH)
        places = self.places[...]
        if self.fault == "gradient of positions stopped":
            places = jax.lax.stop_gradient(places)
        cls = jnp.broadcast_to(self.cls[...], (len(x), 1, WIDTH))
        x = jnp.concatenate((cls, x), 1) + places
        for at, block in enumerate(self.blocks):
            x = block(x, (None, None) if keep is None else keep[at])
        x = self.norm(x)
        return self.head(x.mean(1) if self.fault == "mean in place of the class token" else x[:, 0])


DRAWN = linen.initializers.normal(0.2)


class LinenBlock(linen.Module):
    @linen.compact
    def __call__(self, x, keep):
        norm = partial(linen.LayerNorm, epsilon=1e-6)
        h = norm(name="ln1")(x)
        q, k, v = (
            linen.DenseGeneral((HEADS, WIDTH // HEADS), name=name, kernel_init=DRAWN)(h) for name in ("q", "k", "v")
        )
        x = x + dropped(
            linen.DenseGeneral(WIDTH, axis=(-2, -1), name="out", kernel_init=DRAWN)(attend(q, k, v)), keep[0]
        )
        h = linen.gelu(linen.Dense(HIDDEN, name="fc1", kernel_init=DRAWN)(norm(name="ln2")(x)), approximate=False)
        return x + dropped(linen.Dense(WIDTH, name="fc2", kernel_init=DRAWN)(h), keep[1])


class LinenViT(linen.Module):
    @linen.compact
    def __call__(self, image, keep=None):
        x = linen.Conv(WIDTH, (2, 2), 2, padding="VALID", name="embedding", kernel_init=DRAWN)(image)
        x = x.reshape(x.shape[0], PATCHES, WIDTH)
        cls = self.param("cls", DRAWN, (1, 1, WIDTH))
        places = self.param("pos_embedding", DRAWN, (1, PATCHES + 1, WIDTH))
        x = jnp.concatenate((jnp.tile(cls, (x.shape[0], 1, 1)), x), 1) + places
        for at in range(LAYERS):
            x = LinenBlock(name=f"encoder_{at}")(x, (None, None) if keep is None else keep[at])
        return linen.Dense(CLASSES, name="head", kernel_init=DRAWN)(
            linen.LayerNorm(epsilon=1e-6, name="norm")(x[:, 0])
        )


def rate(count):
    return RATE * jnp.minimum(1.0, (jnp.asarray(count, float) + 1) / WARM)


@cache
def transform(fault):
    decay = {"decay of another size": 0.01}.get(fault, DECAY)
    tx = optax.adamw(rate, weight_decay=decay, eps=1e-6 if fault == "epsilon of Adam" else 1e-8)
    if fault == "the stem is frozen":

        def labels(params):
            def one(path, _):
                return "frozen" if any(getattr(key, "key", "") == "stem" for key in path) else "train"

            return jax.tree_util.tree_map_with_path(one, params)

        return optax.partition({"train": tx, "frozen": optax.set_to_zero()}, labels)
    return tx


def averaged(mean, params, updates, fault=""):
    """Return the moving average after an update; `updates` counts this one."""
    done = jnp.asarray(updates, float)
    decay = jnp.minimum(AVERAGE, (1 + done) / (10 + done))
    if fault == "average without warm-up":
        decay = AVERAGE
    return jax.tree.map(lambda m, p: decay * m + (1 - decay) * p, mean, params)


@dataclass(frozen=True)
class Port:
    style: str = "own"
    fault: str = ""

    inputs = ("f[2,3,8,8]->[0,2,3,1]",)
    batch = staticmethod(vit_torch.batch)

    def Model(self):
        if self.style == "linen":
            return LinenViT()
        return initial_nnx(ViT(self.style, self.fault, nnx.Rngs(0)))

    def opened(self):
        if self.style == "linen":
            variables = self.Model().init(jax.random.key(0), jnp.zeros((1, 8, 8, 3)))
            return self.Model(), initial_tree(variables, ("bias", "scale"))
        return self.Model()

    def loss(self, model, batch):
        image, label, keep = (jnp.asarray(batch[name]) for name in ("image", "label", "keep"))
        image = image.transpose(0, 2, 3, 1)
        logits = model[0].apply(model[1], image, keep) if self.style == "linen" else model(image, keep)
        return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()

    def start(self, model):
        tx, count = transform(self.fault), jnp.zeros((), jnp.int32)
        if self.style == "linen":
            params = model[1]["params"]
            return {"params": params, "opt_state": tx.init(params), "ema": params, "updates": count}
        state = {"model": model, "optimizer": nnx.Optimizer(model, tx, wrt=nnx.Param)}
        if self.fault == "average is missing":
            return state
        copied = jax.tree.map(jnp.copy, nnx.to_pure_dict(nnx.state(model, nnx.Param)))
        return state | {"ema": copied, "updates": count}

    def step(self, state, batch):
        batch = {name: jnp.asarray(one) for name, one in batch.items()}
        if self.style == "linen":
            return plain_step(self, state, batch)
        before = nnx.to_pure_dict(nnx.state(state["model"], nnx.Param))
        loss = nnx_step(self, state["model"], state["optimizer"], batch)
        if "ema" not in state:
            return state, loss
        params = nnx.to_pure_dict(nnx.state(state["model"], nnx.Param))
        updates = state["updates"] + 1
        if self.fault == "average of the values before":
            params = before
        return state | {"ema": averaged(state["ema"], params, updates, self.fault), "updates": updates}, loss

    def train(self, folder, steps=12):
        yield from jax_loop(self, folder, steps)


@partial(jax.jit, static_argnums=0)
def plain_step(port, state, batch):
    module = port.Model()
    loss, grads = jax.value_and_grad(lambda params: port.loss((module, {"params": params}), batch))(state["params"])
    updates, opt_state = transform(port.fault).update(grads, state["opt_state"], state["params"])
    params, count = optax.apply_updates(state["params"], updates), state["updates"] + 1
    return {
        "params": params,
        "opt_state": opt_state,
        "ema": averaged(state["ema"], params, count),
        "updates": count,
    }, loss

"""The port of `mixer_torch` to JAX: NNX and linen with Optax, functions with einsum and SGD by hand."""

from dataclasses import dataclass
from functools import cache, partial

import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx

from tests.ports.corpus import mixer_torch
from tests.ports.corpus.initial import SPREAD, initial_nnx, initial_tree
from tests.ports.corpus.loops import jax_loop, nnx_step
from tests.ports.corpus.mixer_torch import (
    CLASSES,
    HIDDEN,
    L2,
    LAST,
    LAYERS,
    MOMENTUM,
    PATCHES,
    RATE,
    SMOOTHING,
    TOKENS,
    WIDTH,
)  # fmt: skip

CONSTANT = ("bias", "scale", "g", "b", "b1", "b2")
gelu = partial(jax.nn.gelu, approximate=False)


class Mlp(nnx.Module):
    def __init__(self, width, hidden, bias, rngs):
        self.up, self.down = nnx.Linear(width, hidden, rngs=rngs), nnx.Linear(hidden, width, use_bias=bias, rngs=rngs)

    def __call__(self, x):
        return self.down(gelu(self.up(x)))


class Block(nnx.Module):
    def __init__(self, fault, rngs):
        eps = 1e-6 if fault == "epsilon of the norms" else 1e-5
        self.norm1, self.norm2 = (nnx.LayerNorm(WIDTH, epsilon=eps, rngs=rngs) for _ in range(2))
        self.tokens = Mlp(PATCHES, TOKENS, fault != "bias is missing", rngs)
        self.channels = Mlp(WIDTH, HIDDEN, True, rngs)
        self.fault = fault

    def __call__(self, x):
        x = x + self.tokens(self.norm1(x).mT).mT
        return x + self.channels(x if self.fault == "norm is missing" else self.norm2(x))


class Mixer(nnx.Module):
    def __init__(self, fault="", *, rngs):
        self.stem = nnx.Conv(3, WIDTH, (2, 2), strides=2, padding="VALID", rngs=rngs)
        self.blocks = nnx.List([Block(fault, rngs) for _ in range(LAYERS)])
        self.norm, self.head = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs), nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, image):
        x = self.stem(image)
        x = x.reshape(x.shape[0], -1, WIDTH)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


Dense = partial(linen.Dense, kernel_init=linen.initializers.normal(SPREAD))


class LinenMlp(linen.Module):
    hidden: int

    @linen.compact
    def __call__(self, x):
        return Dense(x.shape[-1])(gelu(Dense(self.hidden)(x)))


class LinenMixer(linen.Module):
    """Patches are cut by a reshape, so that the stem is a matrix."""

    @linen.compact
    def __call__(self, image):
        b, h, w, c = image.shape
        patches = image.reshape(b, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5).reshape(b, PATCHES, 4 * c)
        x = Dense(WIDTH, name="stem")(patches)
        for _ in range(LAYERS):
            h = jnp.swapaxes(linen.LayerNorm(epsilon=1e-5)(x), 1, 2)
            x = x + jnp.swapaxes(LinenMlp(TOKENS)(h), 1, 2)
            x = x + LinenMlp(HIDDEN)(linen.LayerNorm(epsilon=1e-5)(x))
        return Dense(CLASSES, name="head")(linen.LayerNorm(epsilon=1e-5)(x).mean(1))


def functions():
    """Return parameters by layer, and the function of them on images in PyTorch's layout."""

    def norm(): return {"g": jnp.ones(WIDTH), "b": jnp.zeros(WIDTH)}  # fmt: skip

    def mlp(n, m): return {"w1": jnp.zeros((n, m)), "b1": jnp.zeros(m), "w2": jnp.zeros((m, n)), "b2": jnp.zeros(n)}  # fmt: skip  # noqa: E501

    params = {
        "stem": {"w": jnp.zeros((WIDTH, 3, 2, 2)), "b": jnp.zeros(WIDTH)},
        "blocks": [
            {"n1": norm(), "n2": norm(), "mix": mlp(PATCHES, TOKENS), "mlp": mlp(WIDTH, HIDDEN)}
            for _ in range(LAYERS)
        ],
        "norm": norm(),
        "head": {"w": jnp.zeros((WIDTH, CLASSES)), "b": jnp.zeros(CLASSES)},
    }

    def normed(p, x):
        mean = x.mean(-1, keepdims=True)
        return p["g"] * (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) + p["b"]

    def apply(params, image):
        b = image.shape[0]
        patches = image.reshape(b, 3, 4, 2, 4, 2)
        x = jnp.einsum("bchiwj,ocij->bhwo", patches, params["stem"]["w"]).reshape(b, PATCHES, WIDTH)
        x = x + params["stem"]["b"]
        for p in params["blocks"]:
            h = gelu(jnp.einsum("bpc,pt->bct", normed(p["n1"], x), p["mix"]["w1"]) + p["mix"]["b1"])
            x = x + jnp.einsum("bct,tp->bpc", h, p["mix"]["w2"]) + p["mix"]["b2"][:, None]
            h = gelu(normed(p["n2"], x) @ p["mlp"]["w1"] + p["mlp"]["b1"])
            x = x + h @ p["mlp"]["w2"] + p["mlp"]["b2"]
        return normed(params["norm"], x).mean(1) @ params["head"]["w"] + params["head"]["b"]

    return initial_tree(params, CONSTANT), apply


@cache
def transform(fault):
    """Return SGD as `torch.optim.SGD` has it: L2 first, momentum of gradients, the rate last."""
    cosine = optax.cosine_decay_schedule(RATE, LAST, alpha=0.1 if fault == "rate falls to another end" else 0.0)
    rate = cosine if fault == "schedule in float32" else lambda count: cosine(jnp.asarray(count, float))
    l2, trace = optax.add_decayed_weights(L2), optax.trace(MOMENTUM, nesterov=fault != "Nesterov is missing")
    lr = optax.scale_by_learning_rate(rate)
    return {
        "momentum after the rate": optax.chain(l2, lr, trace),
        "decoupled decay in place of L2": optax.chain(trace, l2, lr),
        "L2 is missing": optax.chain(trace, lr),
    }.get(fault, optax.chain(l2, optax.sgd(rate, MOMENTUM, nesterov=fault != "Nesterov is missing")))


@dataclass(frozen=True)
class Port:
    style: str = "nnx"
    fault: str = ""

    @property
    def inputs(self):
        return mixer_torch.Trainer.inputs if self.style == "functions" else ("f[2,3,8,8]->[0,2,3,1]",)

    def batch(self, step):
        made = mixer_torch.batch(step)
        if self.fault == "data are scaled":
            return made | {"image": made["image"] / 0.5}
        return made

    def Model(self):
        if self.style == "linen":
            return LinenMixer()
        if self.style == "functions":
            return functions()
        model = initial_nnx(Mixer(self.fault, rngs=nnx.Rngs(0)))
        if self.fault == "initial values of the head":
            model.head.kernel[...] = jnp.zeros_like(model.head.kernel[...])
        return model

    def opened(self):
        if self.style == "linen":
            variables = self.Model().init(jax.random.key(0), jnp.zeros((1, 8, 8, 3)))
            return self.Model(), initial_tree(variables, CONSTANT)
        return self.Model()

    def loss(self, model, batch):
        image, label = jnp.asarray(batch["image"]), jnp.asarray(batch["label"])
        if self.style == "functions":
            logits = model[1](model[0], image)
        else:
            image = image.transpose(0, 2, 3, 1)
            logits = model(image) if self.style == "nnx" else model[0].apply(model[1], image)
        targets = jax.nn.one_hot(label, CLASSES, dtype=logits.dtype)
        if self.fault == "smoothing over the other classes":
            targets = targets * (1 - SMOOTHING) + (1 - targets) * SMOOTHING / (CLASSES - 1)
        elif self.fault != "label smoothing is missing":
            targets = optax.smooth_labels(targets, SMOOTHING)
        losses = optax.softmax_cross_entropy(logits, targets)
        return losses.sum() if self.fault == "sum in place of the mean" else losses.mean()

    def start(self, model):
        if self.style == "nnx":
            return {"model": model, "optimizer": nnx.Optimizer(model, transform(self.fault), wrt=nnx.Param)}
        params = model[0] if self.style == "functions" else model[1]["params"]
        if self.style == "linen":
            return {"params": params, "opt_state": transform(self.fault).init(params)}
        return {"params": params, "buffer": jax.tree.map(jnp.zeros_like, params), "step": jnp.zeros((), jnp.int32)}

    def step(self, state, batch):
        batch = {name: jnp.asarray(one) for name, one in batch.items()}
        if self.style == "nnx":
            return state, nnx_step(self, state["model"], state["optimizer"], batch)
        return plain_step(self, state, batch)

    def train(self, folder, steps=12):
        yield from jax_loop(self, folder, steps)


@partial(jax.jit, static_argnums=0)
def plain_step(port, state, batch):
    held = port.Model()[1] if port.style == "functions" else port.Model()

    def loss_of(params):
        return port.loss((params, held) if port.style == "functions" else (held, {"params": params}), batch)

    loss, grads = jax.value_and_grad(loss_of)(state["params"])
    if port.style == "linen":
        updates, opt_state = transform(port.fault).update(grads, state["opt_state"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt_state": opt_state}, loss
    at = state["step"].astype(float)
    lr = RATE * 0.5 * (1 + jnp.cos(jnp.pi * at / LAST))
    grads = jax.tree.map(lambda g, p: g + L2 * p, grads, state["params"])
    buffer = jax.tree.map(lambda b, g: MOMENTUM * b + g, state["buffer"], grads)
    params = jax.tree.map(lambda p, b, g: p - lr * (g + MOMENTUM * b), state["params"], buffer, grads)
    return {"params": params, "buffer": buffer, "step": state["step"] + 1}, loss

"""The port of `resnet_torch` to JAX: NNX with channels last; and what goes wrong in it."""

from dataclasses import dataclass
from functools import cache, partial

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tests.ports.corpus import resnet_torch
from tests.ports.corpus.initial import initial_nnx, key_of
from tests.ports.corpus.loops import jax_loop
from tests.ports.corpus.resnet_torch import CLASSES, DECAY, MILESTONES, MOMENTUM, RATE, WIDTH


class BatchNorm(nnx.BatchNorm):
    """The batch norm of NNX with PyTorch's running variance, which is unbiased."""

    def __call__(self, x):
        before = self.var[...]
        y = super().__call__(x)
        if not self.use_running_average:
            count = x.size / x.shape[-1]
            biased = (self.var[...] - self.momentum * before) / (1 - self.momentum)
            self.var[...] = self.momentum * before + (1 - self.momentum) * biased * count / (count - 1)
        return y


def norm(width, fault, rngs):
    """Return a batch norm; its momentum is the weight of what it had, which PyTorch counts the other way."""
    kind = nnx.BatchNorm if fault == "biased running variance" else BatchNorm
    momentum = {"momentum of Flax": 0.99, "momentum the other way": 0.1}.get(fault, 0.9)
    epsilon = 1e-3 if fault == "epsilon of the batch norm" else 1e-5
    return kind(width, momentum=momentum, epsilon=epsilon, use_fast_variance=False, rngs=rngs)


def conv(inner, width, size, stride, fault, rngs):
    padding = "SAME" if fault == "padding SAME with stride 2" else [(size // 2, size // 2)] * 2
    return nnx.Conv(inner, width, (size, size), stride, padding=padding, use_bias=False, rngs=rngs)


class Block(nnx.Module):
    def __init__(self, inner, width, stride, fault, rngs):
        self.conv1, self.conv2 = conv(inner, width, 3, stride, fault, rngs), conv(width, width, 3, 1, fault, rngs)
        self.bn1, self.bn2 = norm(width, fault, rngs), norm(width, fault, rngs)
        self.short = conv(inner, width, 1, stride, "", rngs) if stride > 1 else None
        self.fault = fault

    def __call__(self, x):
        y = self.bn2(self.conv2(nnx.relu(self.bn1(self.conv1(x)))))
        short = x if self.short is None else self.short(x)
        if self.fault == "shortcut after the activation":
            return nnx.relu(y) + short
        return nnx.relu(y + short)


class ResNet(nnx.Module):
    def __init__(self, fault="", *, rngs):
        self.conv, self.bn = conv(3, WIDTH, 3, 1, fault, rngs), norm(WIDTH, fault, rngs)
        self.layer1, self.layer2 = Block(WIDTH, WIDTH, 1, fault, rngs), Block(WIDTH, 2 * WIDTH, 2, fault, rngs)
        self.fc = nnx.Linear(2 * WIDTH, CLASSES, rngs=rngs)

    def __call__(self, image):
        x = nnx.max_pool(nnx.relu(self.bn(self.conv(image))), (3, 3), (2, 2), ((1, 1), (1, 1)))
        return self.fc(self.layer2(self.layer1(x)).mean((1, 2)))


@cache
def transform(fault):
    """Return SGD with L2 of kernels alone, and a rate that falls by ten at two steps."""
    late = 1 if fault == "milestones a step late" else 0

    def exact(count):
        done = sum((count >= at + late).astype(float) for at in MILESTONES)
        return jnp.asarray(RATE, float) * 0.1**done

    def decays(params):
        every = fault == "decay on norms and biases"
        return jax.tree_util.tree_map_with_path(lambda path, _: every or key_of(path) == "kernel", params)

    return optax.chain(optax.add_decayed_weights(DECAY, decays), optax.sgd(exact, MOMENTUM))


@dataclass(frozen=True)
class Port:
    style: str = "nnx"
    fault: str = ""

    inputs = ("f[3,3,8,8]->[0,2,3,1]",)
    batch = staticmethod(resnet_torch.batch)

    def Model(self):
        return initial_nnx(ResNet(self.fault, rngs=nnx.Rngs(0)))

    def opened(self):
        return self.Model()

    def loss(self, model, batch):
        model.train()
        if self.fault == "evaluation in training":
            model.eval()
        image = jnp.asarray(batch["image"]).transpose(0, 2, 3, 1)
        logits = model(image)
        return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.asarray(batch["label"])).mean()

    def start(self, model):
        return {"model": model, "optimizer": nnx.Optimizer(model, transform(self.fault), wrt=nnx.Param)}

    def step(self, state, batch):
        batch = {name: jnp.asarray(one) for name, one in batch.items()}
        return state, nnx_step(self, state["model"], state["optimizer"], batch)

    def train(self, folder, steps=12):
        yield from jax_loop(self, folder, steps)


@partial(nnx.jit, static_argnums=0)
def nnx_step(port, model, optimizer, batch):
    loss, grads = nnx.value_and_grad(port.loss)(model, batch)
    optimizer.update(model, grads)
    return loss

"""Small models, and what goes wrong with models: each a class of PyTorch or what makes a model of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen
from torch import nn

SIZE = 5
DRAWS = np.random.default_rng()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, SIZE)
        self.inner = nn.ModuleList([nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE, bias=False)])
        self.last = nn.Linear(SIZE, 2, bias=False)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        for layer in self.inner:
            x = torch.tanh(layer(x))
        return self.last(self.between(x))

    def between(self, x):
        return x


class Narrow(Model):
    def between(self, x):
        return torch.sin(x.float()).double() - torch.sin(x) + x if x.dtype == torch.float32 else _turn(x)


def _turn(x):
    return (x.float() * 1.0).to(torch.float64)


class Hidden(Model):
    def between(self, x):
        return (
            x
            + torch.from_numpy(np.float32(x.detach().numpy())).type("torch.DoubleTensor") * 0
            + _Rounded.apply(x)
            - x
        )


class _Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.type("torch.FloatTensor").type("torch.DoubleTensor")

    @staticmethod
    def backward(ctx, grad):
        return grad


class Bent(Model):
    def between(self, x):
        return torch.relu(x)


class Shifted(Model):
    """It adds what the port multiplies by: two leaves of one shape that are not one."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1, 1, SIZE))

    def between(self, x):
        return x + self.shift[0]


class Noisy(Model):
    def between(self, x):
        return x + torch.from_numpy(DRAWS.standard_normal(x.shape))


class Endless(Model):
    def between(self, x):
        return x / (x - x)


class Needs(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)


class Unused(Model):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(SIZE, 7)


class Twice(nn.Module):
    """Two leaves that may change places: their sum is all that is used."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.out = nn.Linear(3, 4, bias=False), nn.Linear(3, 4, bias=False), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.left(x)) + torch.tanh(self.right(x)))


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.layer(x))


class Normal(linen.Module):
    @linen.compact
    def __call__(self, x, train=True):
        return linen.BatchNorm(use_running_average=not train, epsilon=1e-5)(linen.Dense(4)(x))


SHAPES = {"w0": (3, SIZE), "b0": (SIZE,), "w1": (SIZE, SIZE), "b1": (SIZE,), "w2": (SIZE, SIZE), "w3": (SIZE, 2)}


def apply(params, x):
    x = jnp.tanh(x @ params["w0"] + params["b0"])
    x = jnp.tanh(x @ params["w1"] + params["b1"])
    return jnp.tanh(x @ params["w2"]) @ params["w3"]


def port():
    return {name: jnp.ones(shape) for name, shape in SHAPES.items()}, apply


def wide():
    return {name: jnp.ones((SIZE, 4) if name == "w3" else shape) for name, shape in SHAPES.items()}, apply


def bent():
    return port()[0], lambda params, x: apply(params, jnp.abs(x))


def scaled():
    def run(params, x):
        x = jnp.tanh(x @ params["w0"] + params["b0"])
        x = jnp.tanh(x @ params["w1"] + params["b1"])
        return jnp.tanh(x @ params["w2"]) * params["scale"][0] @ params["w3"]

    return port()[0] | {"scale": jnp.ones((1, 1, SIZE))}, run


def narrow():
    def run(params, x):
        return apply(params, x.astype(jnp.float32).astype(jnp.float64))

    return port()[0], run


def unused():
    params = port()[0] | {"spare": {"kernel": jnp.ones((SIZE, 7)), "bias": jnp.ones(7)}}
    return params, apply


def named(names):
    """Return what makes the port with other names: of w0, w1, w2, w3, b0 and b1."""
    own = dict(zip(("w0", "w1", "w2", "w3", "b0", "b1"), names, strict=True))

    def make():
        params = {own[name]: jnp.ones(shape) for name, shape in SHAPES.items()}
        return params, lambda params, x: apply({name: params[own[name]] for name in SHAPES}, x)

    return make


def twice():
    params = {"a": jnp.ones((3, 4)), "b": jnp.ones((3, 4)), "out": {"w": jnp.ones((4, 2)), "b": jnp.ones(2)}}

    def run(params, x):
        return (jnp.tanh(x @ params["a"]) + jnp.tanh(x @ params["b"])) @ params["out"]["w"] + params["out"]["b"]

    return params, jax.jit(run)

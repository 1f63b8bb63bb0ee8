"""The port of `image_torch` to NNX, and what goes wrong in such ports: one fault at a time, by its name."""

import jax
import jax.numpy as jnp
from flax import nnx

WIDTH, CLASSES = 8, 5


class Layer(nnx.Module):
    """A square layer that was written by hand."""

    def __init__(self, fault, rngs):
        self.kernel, self.bias = nnx.Param(jnp.eye(WIDTH)), nnx.Param(jnp.zeros(WIDTH))
        self.fault = fault

    def __call__(self, x):
        if self.fault == "an unknown layer":
            x = jnp.sin(x)
        y = x @ (self.kernel[...].T if self.fault == "transposed weight" else self.kernel[...])
        return y + {"bias missing": 0, "bias twice": 2}.get(self.fault, 1) * self.bias[...]


class Model(nnx.Module):
    def __init__(self, fault="", *, rngs):
        self.conv = nnx.Conv(3, 6, (3, 3), padding=1, rngs=rngs)
        self.flat = nnx.Linear(96, WIDTH, use_bias=False, rngs=rngs)
        self.turn, self.place = Layer(fault, rngs), nnx.Param(jnp.zeros(WIDTH))
        self.norm = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.head, self.fault = nnx.Linear(WIDTH, CLASSES, rngs=rngs), fault

    def __call__(self, image):
        x = jax.nn.relu(self.conv(image))
        pool = {"window_shape": (3, 3), "strides": (2, 2), "padding": ((1, 1), (1, 1))}
        if self.fault == "pool padding same":
            pool["padding"] = "SAME"
        if self.fault == "an unknown pooling":
            x = nnx.min_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        elif self.fault == "max pooling":
            x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        else:
            x = nnx.avg_pool(x, **pool, count_include_pad=self.fault != "padding not counted")
        if self.fault != "channels last":
            x = x.transpose(0, 3, 1, 2)
        x = self.flat(x.reshape(x.shape[0], -1))
        if self.fault == "scaled before the position":
            x = x * WIDTH**0.5
        x = x + self.place[...]
        y = jax.nn.relu(self.norm(x))
        if self.fault == "dropout scaling":
            y = y / 0.8
        y = self.turn(y)
        if self.fault == "an unknown sum":
            return self.head(x + jnp.cos(y))
        if self.fault == "residual twice":
            return self.head(x + x + y)
        return self.head(x + y / 2 if self.fault == "branch halved" else x + y)

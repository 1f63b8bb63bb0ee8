"""The loops a person would write in JAX for the same run: `jit(lax.scan)` over a chunk, a Python loop, `pmap`.

Modules and optimizer are the twin's: they exist while tracing only, and the losses can then be equal bit for bit.
Everything around them is written out: no mesh, no scaler, no records. Losses and norms stay on the device and are
read once, after the last chunk, so that dispatch runs ahead of the steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from numpy.typing import NDArray

from benchmarks.batches import Batches
from jax_side.dropout import mask_keys
from jax_side.model import build_model
from jax_side.optimizer import build_optimizer
from parity.spec import RunSpec

__all__ = ["BarePmap", "BareScan", "BareSteps"]


class BareScan:
    """A jitted, donated scan over the steps of a chunk, float32, one device."""

    def __init__(self, spec: RunSpec, steps: int, params: Any, buffers: Any, *, flat: bool = False) -> None:
        """Prepare a scan.

        Args:
            spec: The run, float32, without native dropout.
            steps: Steps of one run.
            params: The twin's parameters at step 0.
            buffers: Its running statistics.
            flat: Whether the micro-batches are unrolled. The twin scans over them, one or several, and XLA
                contracts products into additions differently then: losses differ in the last place, from step 9 on.
        """
        self.unroll = flat
        self.spec, self.batches = spec, Batches.of(spec, steps)
        self.graphdef = nnx.graphdef(build_model(spec))
        self.optimizer = build_optimizer(spec)
        self.start = jax.tree.map(np.array, (params, buffers, self.optimizer.init(params)))
        self.rates = self.batches.rates.astype(np.float32)
        self.index = np.arange(steps, dtype=np.int32)
        self.placed: list[Any] = []
        self.scan = jax.jit(lambda state, xs: jax.lax.scan(self.step, state, xs), donate_argnums=0)

    def reset(self) -> None:
        """Go back to step 0."""
        self.state = jax.block_until_ready(jax.tree.map(jnp.array, self.start))  # copies: they are donated

    def place(self) -> None:
        """Put all batches on the device now, whole chunks of them, so that a run starts with its data there."""
        self.placed = jax.block_until_ready(jax.device_put(list(self.feed())))

    def feed(self) -> Iterator[Any]:
        """Yield inputs, targets, step numbers and rates of one chunk after the other."""
        first = 0
        for inputs, targets, rates in self.batches.chunks():
            part = slice(first, first + len(rates))
            yield inputs, targets, self.index[part], self.rates[part]
            first = part.stop

    def run(self) -> NDArray[np.float32]:
        """Train all steps; returns their losses."""
        rows = []
        for xs in self.placed or self.feed():
            self.state, row = self.scan(self.state, xs)
            rows.append(row)
        losses, norms = (np.concatenate(column) for column in zip(*rows, strict=True))
        assert len(norms) == len(losses)
        return losses

    def step(self, state: Any, xs: Any) -> Any:
        """Train one step: forward and backward of each micro-batch, norm, clipping and update."""
        params, buffers, optimizer = state
        inputs, targets, index, lr = xs

        def add_micro(carry: Any, micro: Any) -> Any:
            (grads, buffers), (x, y, number) = carry, micro
            of = jax.value_and_grad(self.loss, has_aux=True)
            (_, (loss, buffers)), new = of(params, buffers, x, y, mask_keys(self.spec.seed, index, number))
            return (jax.tree.map(jnp.add, grads, new), buffers), loss

        zeros, micros = jax.tree.map(jnp.zeros_like, params), self.spec.accumulation
        each = (inputs, targets, jnp.arange(micros))
        (grads, buffers), losses = jax.lax.scan(add_micro, (zeros, buffers), each, unroll=self.unroll)
        grads, loss = self.average((grads, losses.sum() / micros))
        norm = optax.tree.norm(grads)
        updates, optimizer = self.optimizer.update(grads, optimizer, params, lr=lr)
        return (optax.apply_updates(params, updates), buffers, optimizer), (loss, norm)

    def average(self, tree: Any) -> Any:
        """Return gradients and loss as they are: one device has the whole batch."""
        return tree

    def loss(self, params: Any, buffers: Any, x: jax.Array, y: jax.Array, key: jax.Array) -> Any:
        """Return the mean cross entropy over the number of micro-batches, and with it the loss and new statistics."""
        model = nnx.merge(self.graphdef, params, buffers, copy=True)
        rows = jax.nn.log_softmax(model(x, key, train=True))
        loss = -jnp.mean(jnp.take_along_axis(rows, y[..., None], axis=-1))
        return loss / self.spec.accumulation, (loss, nnx.state(model, nnx.BatchStat))


class BareSteps(BareScan):
    """A Python loop over the jitted step, the batches of single steps on the device before the clock starts.

    Without `wait` it is the best loop Python can do: dispatch runs ahead of the steps. With it, each loss is read
    before the next step, as loops that log do.
    """

    def __init__(self, *args: Any, wait: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.wait = wait
        self.one = jax.jit(self.step, donate_argnums=0)

    def place(self) -> None:
        """Put the batches on the device, step by step."""
        single = [tuple(x[i] for x in xs) for xs in self.feed() for i in range(len(xs[0]))]
        self.placed = jax.block_until_ready(jax.device_put(single))

    def run(self) -> NDArray[np.float32]:
        """Train all steps; returns their losses."""
        rows = []
        for xs in self.placed:
            self.state, (loss, norm) = self.one(self.state, xs)
            rows.append((float(loss), float(norm)) if self.wait else (loss, norm))
        return np.array([loss for loss, _ in jax.device_get(rows)], np.float32)


class BarePmap(BareSteps):
    """Data parallelism as it was written before meshes: a Python loop over `pmap(step)`, gradients averaged.

    Every device has its own copy of the state and its share of the batch. It waits for each step: forced CPU devices
    deadlock when steps run ahead. No dropout; equal to the others up to the order in which gradients are added.
    """

    def __init__(self, *args: Any, devices: int, **kwargs: Any) -> None:
        super().__init__(*args, wait=True, **kwargs)
        self.devices = devices
        self.one = jax.pmap(self.step, "data", donate_argnums=0, devices=jax.devices()[:devices])

    def place(self) -> None:
        """Give every device its samples."""
        n = self.devices

        def split(x: NDArray[np.generic]) -> NDArray[np.generic]:
            micros, samples, *rest = x.shape
            return x.reshape(micros, n, samples // n, *rest).swapaxes(0, 1)

        self.placed = [
            (split(x[i]), split(y[i]), np.repeat(index[i], n), np.repeat(lr[i], n))
            for x, y, index, lr in self.feed()
            for i in range(len(x))
        ]

    def reset(self) -> None:
        """Go back to step 0 on every device."""
        self.state = jax.tree.map(lambda x: jnp.stack([x] * self.devices), self.start)

    def run(self) -> NDArray[np.float32]:
        """Train all steps; returns their losses."""
        rows = []
        for xs in self.placed:
            self.state, (loss, norm) = self.one(self.state, xs)
            rows.append((float(loss[0]), float(norm[0])))
        return np.array([loss for loss, _ in rows], np.float32)

    def average(self, tree: Any) -> Any:
        """Average over the devices."""
        return jax.lax.pmean(tree, "data")

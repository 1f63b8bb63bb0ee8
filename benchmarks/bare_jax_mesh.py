"""The scan a person would write for a mesh: the batch split, the state replicated or split by one axis that fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from numpy.typing import NDArray

from benchmarks.bare_jax import BareScan
from parity.spec import RunSpec

__all__ = ["BareMesh"]


class BareMesh(BareScan):
    """A jitted, donated scan on a mesh of one axis over all devices of all processes."""

    def __init__(self, spec: RunSpec, steps: int, params: Any, buffers: Any) -> None:
        """Prepare a scan.

        Args:
            spec: The run, float32; `mesh.fsdp` splits parameters and moments, else every device holds them whole.
            steps: Steps of one round.
            params: The twin's parameters at step 0.
            buffers: Its running statistics.
        """
        self.mesh = Mesh(np.array(jax.devices()), ("devices",))
        n, splits = self.mesh.size, spec.mesh.fsdp > 1

        def sharding(leaf: Any) -> NamedSharding:
            at = next((i for i, size in enumerate(leaf.shape) if splits and size % n == 0), None)
            return NamedSharding(self.mesh, P() if at is None else P(*[None] * at, "devices"))

        whole = jax.jit(lambda tree: tree, out_shardings=NamedSharding(self.mesh, P()))((params, buffers))
        super().__init__(spec, steps, *jax.tree.map(lambda x: np.array(x.addressable_data(0)), whole))
        self.shardings = jax.tree.map(sharding, self.start)
        self.batch, self.whole = NamedSharding(self.mesh, P(None, None, "devices")), NamedSharding(self.mesh, P())
        self.scan = jax.jit(
            lambda state, xs: jax.lax.scan(self.step, state, xs),
            donate_argnums=0,
            out_shardings=(self.shardings, self.whole),
        )

    def reset(self) -> None:
        """Go back to step 0."""
        self.state = jax.block_until_ready(jax.jit(lambda tree: tree, out_shardings=self.shardings)(self.start))

    def feed(self) -> Iterator[Any]:
        """Yield chunks, whose samples are split over the devices."""
        for inputs, targets, index, rates in super().feed():
            yield jax.device_put((inputs, targets, index, rates), (self.batch, self.batch, self.whole, self.whole))

    def run(self) -> NDArray[np.float32]:
        """Train all steps; returns their losses."""
        rows = []
        for xs in self.feed():
            self.state, (losses, _) = self.scan(self.state, xs)
            rows.append(losses)
        return np.concatenate([np.asarray(jnp.asarray(losses)) for losses in rows])

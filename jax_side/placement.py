"""The placement of a run on its devices: the batch is sharded over a mesh of one axis, everything else replicated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_side.numerics import MOST_CPU_DEVICES
from parity.environment import usable_cpus
from parity.errors import SpecError
from parity.spec import RunSpec
from parity.twins import activations, require_memory

__all__ = ["Placement", "build_placement", "topology"]


@dataclass(frozen=True)
class Placement:
    """The devices of a run, and how its arrays lie on them."""

    mesh: Mesh
    """One axis, `data`."""

    @property
    def replicated(self) -> NamedSharding:
        """Return the sharding of what every device holds whole."""
        return NamedSharding(self.mesh, PartitionSpec())

    def put(self, tree: Any) -> Any:
        """Put arrays on every device, each of which holds them whole."""
        return jax.device_put(tree, self.replicated)

    def put_chunk(self, batches: Sequence[Any], others: Sequence[Any]) -> tuple[Any, ...]:
        """Put a chunk on the devices, in one call: that costs half of one for each array.

        Args:
            batches: Arrays [steps, micro-batches, samples, ...]; their samples are sharded over the devices.
            others: Arrays that every device holds whole.
        """
        sharded = NamedSharding(self.mesh, PartitionSpec(None, None, "data"))
        shardings = [sharded] * len(batches) + [self.replicated] * len(others)
        return tuple(jax.device_put([*batches, *others], shardings))


def build_placement(spec: RunSpec) -> Placement:
    """Return the placement of a spec: `mesh.data` devices on one axis.

    `jax.sharding.Mesh` gives Auto axes, so that arithmetic over the sharded axis needs no annotation
    (`jax.make_mesh` gives Explicit ones by default in jax 0.10).

    Raises:
        SpecError: There are fewer devices; or the device is the CPU, and a layer needs more memory than there is.
    """
    for axis in ("fsdp", "model", "processes"):
        if (size := getattr(spec.mesh, axis)) > 1:
            raise SpecError(f"mesh.{axis}", f"{size} asked for; the JAX side shards over mesh.data alone")
    devices, n = _devices(spec.mesh.data), spec.mesh.data
    if len(devices) < n:
        raise SpecError(
            "mesh.data",
            f"{n} devices asked for, {len(devices)} {devices[0].platform} devices here; forced CPU devices must be "
            f"set before JAX first uses a device, and are at most {MOST_CPU_DEVICES}",
        )
    if devices[0].platform == "cpu" and jax.process_count() == 1:
        require_memory(activations(spec))
    return Placement(Mesh(np.array(devices[:n]), ("data",)))


def _devices(n: int) -> list[jax.Device]:
    """Return the devices there are; with several processes, an equal share of each."""
    devices: list[jax.Device] = jax.devices()
    if (processes := jax.process_count()) == 1:
        return devices
    own = [[d for d in devices if d.process_index == index] for index in range(processes)]
    return [device for few in own for device in few[: n // processes]]


def topology(spec: RunSpec) -> dict[str, object]:
    """Return what bitwise equality depends on beside the spec: devices, and the CPUs this process may use."""
    processes = jax.process_count()
    return {
        "platform": jax.devices()[0].device_kind,
        "devices": spec.mesh.data,
        "cpus": usable_cpus(),
        "mode": spec.execution.jax,
        **({"processes": processes} if processes > 1 else {}),
    }

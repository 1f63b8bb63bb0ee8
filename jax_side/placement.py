"""The placement of a run on its devices: a mesh, over which the batch is split, and the state as its names say."""

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
from parity.spec import MESH_AXES, MeshSpec, RunSpec, split_axes
from parity.twins import activations, require_memory

__all__ = ["Placement", "build_placement", "topology"]


@dataclass(frozen=True)
class Placement:
    """The devices of a run, and how its arrays lie on them."""

    mesh: Mesh
    """The axes `parity.spec.MESH_AXES`."""
    spec: MeshSpec
    """The sizes of its axes."""

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
        (axes,) = split_axes(("batch",), self.spec)
        sharded = NamedSharding(self.mesh, PartitionSpec(None, None, axes or None))
        shardings = [sharded] * len(batches) + [self.replicated] * len(others)
        return tuple(jax.device_put([*batches, *others], shardings))


def build_placement(spec: RunSpec) -> Placement:
    """Return the placement of a spec: `mesh.data` x `mesh.fsdp` x `mesh.model` devices.

    `jax.sharding.Mesh` gives Auto axes, so that arithmetic over the sharded axis needs no annotation
    (`jax.make_mesh` gives Explicit ones by default in jax 0.10).

    Raises:
        SpecError: There are fewer devices; or the device is the CPU, and a layer needs more memory than there is.
    """
    if spec.mesh.processes not in (1, jax.process_count()):
        raise SpecError(
            "mesh.processes", f"{spec.mesh.processes} asked for, the run was started as {jax.process_count()}"
        )
    devices, n = _devices(spec.mesh.devices), spec.mesh.devices
    if len(devices) < n:
        along = [axis for axis, size in spec.mesh.sizes.items() if size > 1]
        sizes = " x ".join(str(spec.mesh.sizes[axis]) for axis in along)
        raise SpecError(
            f"mesh.{along[0]}" if len(along) == 1 else "mesh",
            f"{sizes if len(along) == 1 else f'{sizes} = {n}'} devices asked for, {len(devices)} "
            f"{devices[0].platform} devices here; forced CPU devices must be set before JAX first uses a device, and "
            f"are at most {MOST_CPU_DEVICES}",
        )
    if devices[0].platform == "cpu" and jax.process_count() == 1:
        require_memory(activations(spec))
    return Placement(Mesh(np.array(devices[:n]).reshape(*spec.mesh.sizes.values()), MESH_AXES), spec.mesh)


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
        "devices": spec.mesh.devices,
        **({"mesh": spec.mesh.sizes} if spec.mesh.devices > spec.mesh.data else {}),
        "cpus": usable_cpus(),
        "mode": spec.execution.jax,
        **({"processes": processes} if processes > 1 else {}),
    }

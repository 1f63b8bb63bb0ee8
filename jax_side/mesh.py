"""The device mesh: the batch is sharded over its `data` axis, everything else is replicated."""

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_side.numerics import MOST_CPU_DEVICES
from parity.errors import SpecError
from parity.spec import RunSpec
from parity.twins import activations, require_memory

__all__ = ["batch_sharding", "build_mesh", "replicated", "topology"]


def build_mesh(spec: RunSpec) -> Mesh:
    """Return the mesh of a spec: `mesh.data` devices on one axis.

    `jax.sharding.Mesh` gives Auto axes, so that arithmetic over the sharded axis needs no annotation
    (`jax.make_mesh` gives Explicit ones by default in jax 0.10).

    Raises:
        SpecError: There are fewer devices; or the device is the CPU, and a layer needs more memory than there is.
    """
    devices, n = _devices(spec.mesh.data), spec.mesh.data
    if len(devices) < n:
        raise SpecError(
            "mesh.data",
            f"{n} devices asked for, {len(devices)} {devices[0].platform} devices here; forced CPU devices must be "
            f"set before JAX first uses a device, and are at most {MOST_CPU_DEVICES}",
        )
    if devices[0].platform == "cpu" and jax.process_count() == 1:
        require_memory(activations(spec))
    return Mesh(np.array(devices[:n]), ("data",))


def _devices(n: int) -> list[jax.Device]:
    """Return the devices there are; of several processes, as many of each."""
    devices: list[jax.Device] = jax.devices()
    if (processes := jax.process_count()) == 1:
        return devices
    own = [[d for d in devices if d.process_index == index] for index in range(processes)]
    return [device for few in own for device in few[: n // processes]]


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of chunks [steps, micro-batches, samples, ...]: samples over `data`."""
    return NamedSharding(mesh, PartitionSpec(None, None, "data"))


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of what every device holds whole."""
    return NamedSharding(mesh, PartitionSpec())


def topology(spec: RunSpec) -> dict[str, object]:
    """Return what bitwise equality depends on beside the spec: devices, and the CPUs this process may use."""
    processes = jax.process_count()
    return {
        "platform": jax.devices()[0].device_kind,
        "devices": spec.mesh.data,
        "cpus": _cpus(),
        "mode": spec.execution.jax,
        **({"processes": processes} if processes > 1 else {}),
    }


def _cpus() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""The placement of a run on its devices: one process drives one, and several processes share a mesh of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from parity.environment import usable_cpus
from parity.errors import SpecError
from parity.spec import AXES, MESH_AXES, MeshSpec, RunSpec
from torch_side import processes

__all__ = ["Mesh", "Placement", "build_placement", "topology"]


@dataclass(frozen=True)
class Mesh:
    """The devices of all processes of a run, and the groups in which they compute and save."""

    devices: DeviceMesh
    """Its axes are those of `parity.spec.MESH_AXES`, one device for each process."""
    batch: dist.ProcessGroup
    """The processes that differ in their samples alone."""
    saves: dist.ProcessGroup
    """All processes, for the thread that writes checkpoints: collectives of two threads must not meet in a group."""

    def size(self, axis: str) -> int:
        """Return the devices along an axis."""
        return self.devices.size(MESH_AXES.index(axis))

    def at(self, axis: str) -> int:
        """Return the coordinate of this process along an axis."""
        return self.devices.get_local_rank(axis)

    @property
    def shares(self) -> int:
        """Return the number of parts that a micro-batch is split into."""
        return self.size("data") * self.size("fsdp")

    @property
    def share(self) -> int:
        """Return which of them is that of this process."""
        return self.at("data") * self.size("fsdp") + self.at("fsdp")


@dataclass(frozen=True)
class Placement:
    """The device of this process, and the mesh that it is part of."""

    device: torch.device
    mesh: Mesh | None = None
    """None for a process alone."""

    def put(self, tree: Tensor) -> Tensor:
        """Put a tensor on the device."""
        return tree.to(self.device)

    def put_chunk(self, batches: Sequence[Tensor], others: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Put a chunk on the device, beside what runs there; of several processes, each its own samples.

        Args:
            batches: Tensors [steps, micro-batches, samples, ...].
            others: What else its steps need.
        """
        if self.mesh is not None:
            batches = [batch.chunk(self.mesh.shares, 2)[self.mesh.share] for batch in batches]
        return tuple(tensor.to(self.device, non_blocking=True) for tensor in (*batches, *others))


def build_placement(spec: RunSpec) -> Placement:
    """Return the placement of a spec: the first GPU if there is one, else the CPU; of several processes, a GPU each.

    Raises:
        SpecError: The spec asks for more devices than there are processes; each drives one.
    """
    if processes.count() > 1:
        device = torch.device("cuda", processes.local_index()) if torch.cuda.is_available() else torch.device("cpu")
        return Placement(device, _mesh(spec.mesh, device.type))
    for axis, size in {**spec.mesh.sizes, "processes": spec.mesh.processes}.items():
        if size > 1:
            what = "processes" if axis == "processes" else "devices"
            start = f"start {spec.mesh.devices}: parity launch --processes {spec.mesh.devices} -- train ..."
            raise SpecError(f"mesh.{axis}", f"{size} {what} asked for; a PyTorch process drives one device; {start}")
    return Placement(torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu"))


@lru_cache(maxsize=8)
def _mesh(spec: MeshSpec, kind: str) -> Mesh:
    """Return the mesh of a specification; groups are made by all processes in the same order, and once."""
    sizes = tuple(spec.sizes.values())
    devices = init_device_mesh(kind, sizes, mesh_dim_names=MESH_AXES)
    own: Any = None
    ranks = torch.arange(spec.devices).view(sizes)
    for of_model in range(spec.model):
        group = dist.new_group(ranks[:, :, of_model].flatten().tolist())
        own = group if of_model == devices.get_local_rank("model") else own
    assert AXES["batch"] == ("data", "fsdp")
    return Mesh(devices, own, dist.new_group(backend="gloo"))


def topology(spec: RunSpec) -> dict[str, object]:
    """Return what bitwise equality depends on beside the spec: devices, threads, and the CPUs of this process."""
    several = processes.count() > 1
    return {
        "platform": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "devices": spec.mesh.devices,
        "threads": spec.execution.threads or torch.get_num_threads(),
        "cpus": usable_cpus(),
        "mode": spec.execution.torch,
        **({"processes": processes.count(), "mesh": spec.mesh.sizes} if several else {}),
    }

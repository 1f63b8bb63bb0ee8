"""The mesh of a run's devices, one for each process, and the groups in which they compute and save."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from parity.spec import AXES, MESH_AXES, MeshSpec

__all__ = ["Mesh", "build_mesh"]


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


@lru_cache(maxsize=8)
def build_mesh(spec: MeshSpec, kind: str) -> Mesh:
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

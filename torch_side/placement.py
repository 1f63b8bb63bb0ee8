"""The placement of a run on its devices: one process drives one, and several processes share a mesh of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from parity.environment import usable_cpus
from parity.errors import SpecError
from parity.spec import RunSpec
from parity.twins import Share
from torch_side import processes
from torch_side.mesh import Mesh, build_mesh

__all__ = ["Placement", "build_placement", "topology"]


@dataclass(frozen=True)
class Placement:
    """The device of this process, and the mesh that it is part of."""

    device: torch.device
    mesh: Mesh | None = None
    """None for a process alone."""

    def put(self, tree: Tensor) -> Tensor:
        """Put a tensor on the device."""
        return tree.to(self.device)

    def share(self, accumulation: int) -> Share | None:
        """Return the samples that this process computes on; None for all.

        Args:
            accumulation: Micro-batches of a batch.
        """
        if self.mesh is None:
            return None
        first = processes.index() == 0  # it writes the records
        return Share(index=self.mesh.share, count=self.mesh.shares, accumulation=accumulation, digests=first)

    def put_chunk(self, batches: Sequence[Tensor], others: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Put a chunk on the device, beside what runs there.

        Args:
            batches: Tensors [steps, micro-batches, samples, ...].
            others: What else its steps need.
        """
        return tuple(tensor.to(self.device, non_blocking=True) for tensor in (*batches, *others))


def build_placement(spec: RunSpec) -> Placement:
    """Return the placement of a spec: the first GPU if there is one, else the CPU; of several processes, a GPU each.

    Raises:
        SpecError: The spec asks for more devices than there are processes; each drives one.
    """
    if processes.count() > 1:
        device = torch.device("cuda", processes.local_index()) if torch.cuda.is_available() else torch.device("cpu")
        return Placement(device, build_mesh(spec.mesh, device.type))
    for axis, size in {**spec.mesh.sizes, "processes": spec.mesh.processes}.items():
        if size > 1:
            what = "processes" if axis == "processes" else "devices"
            start = f"start {spec.mesh.devices}: parity launch --processes {spec.mesh.devices} -- train ..."
            raise SpecError(f"mesh.{axis}", f"{size} {what} asked for; a PyTorch process drives one device; {start}")
    return Placement(torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu"))


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

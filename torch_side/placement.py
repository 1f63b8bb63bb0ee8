"""The placement of a run on its device: one process drives one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from parity.environment import usable_cpus
from parity.errors import SpecError
from parity.spec import RunSpec

__all__ = ["Placement", "build_placement", "topology"]


@dataclass(frozen=True)
class Placement:
    """The device of a run."""

    device: torch.device

    def put(self, tree: Tensor) -> Tensor:
        """Put a tensor on the device."""
        return tree.to(self.device)

    def put_chunk(self, batches: Sequence[Tensor], others: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Put a chunk on the device, beside what runs there.

        Args:
            batches: Tensors [steps, micro-batches, samples, ...].
            others: What else its steps need.
        """
        return tuple(tensor.to(self.device, non_blocking=True) for tensor in (*batches, *others))


def build_placement(spec: RunSpec) -> Placement:
    """Return the placement of a spec: the first GPU if there is one, else the CPU.

    Raises:
        SpecError: The spec asks for more than one device; one process drives one.
    """
    for axis, size in {**spec.mesh.sizes, "processes": spec.mesh.processes}.items():
        if size > 1:
            drives = "PyTorch trains in" if axis == "processes" else "a PyTorch process drives"
            what = "processes" if axis == "processes" else "devices"
            raise SpecError(f"mesh.{axis}", f"{size} {what} asked for; {drives} one")
    return Placement(torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu"))


def topology(spec: RunSpec) -> dict[str, object]:
    """Return what bitwise equality depends on beside the spec: device, threads, and the CPUs this process may use."""
    return {
        "platform": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "devices": 1,
        "threads": spec.execution.threads or torch.get_num_threads(),
        "cpus": usable_cpus(),
        "mode": spec.execution.torch,
    }

"""The device of one process."""

from __future__ import annotations

import os

import torch

from parity.errors import SpecError
from parity.spec import RunSpec

__all__ = ["build_mesh", "topology"]


def build_mesh(spec: RunSpec) -> torch.device:
    """Return the device a run trains on: the first GPU if there is one, else the CPU.

    Raises:
        SpecError: The spec asks for more than one device; one process drives one.
    """
    if spec.mesh.data > 1:
        raise SpecError("mesh.data", f"{spec.mesh.data} devices asked for; a PyTorch process drives one")
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def topology(spec: RunSpec) -> dict[str, object]:
    """Return what bitwise equality depends on beside the spec: device, threads, and the CPUs this process may use."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "platform": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "devices": 1,
        "threads": spec.execution.threads or torch.get_num_threads(),
        "cpus": cpus,
        "mode": spec.execution.torch,
    }

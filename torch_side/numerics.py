"""The dtypes of a run, and the switches of PyTorch that its results depend on."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from parity.errors import SpecError
from parity.spec import Precision, RunSpec
from parity.twins import activations, require_memory

__all__ = ["Dtypes", "autocast", "configure", "dtypes"]

DEFAULT_THREADS = torch.get_num_threads()
"""PyTorch's own number, before a trainer of this process asked for another."""


@dataclass(frozen=True, kw_only=True)
class Dtypes:
    """The three types of a run."""

    params: torch.dtype
    """Parameters, optimizer state and norm statistics: float64 or float32."""
    compute: torch.dtype
    """Inputs and outputs of matrix products."""
    exact: torch.dtype
    """Norms, softmax and the loss: never below float32."""


def dtypes(precision: Precision) -> Dtypes:
    """Return the types of a precision."""
    params = torch.float64 if precision == "float64" else torch.float32
    return Dtypes(params=params, compute=getattr(torch, precision), exact=params)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """Return the context in which the forward pass of this precision runs.

    The lists of operations that autocast moves differ between devices, so the models cast to `exact` themselves
    where it matters, and autocast is left with the matrix products.

    Args:
        precision: The run's; in float64 and float32 the context does nothing.
        device: Where it trains.
    """
    if precision in ("float64", "float32"):
        return nullcontext()  # entering a disabled autocast costs 5 microseconds
    return torch.autocast(device.type, dtype=getattr(torch, precision))


def configure(spec: RunSpec) -> None:
    """Prepare this process for a spec: threads, full-precision products, deterministic kernels.

    Raises:
        SpecError: It trains on the CPU, and a layer needs more memory than this machine has, or compiling needs a
            compiler that is not there.
    """
    if not torch.cuda.is_available():
        require_memory(activations(spec))
        if spec.execution.torch == "compile":
            _require_compiler()
    torch.set_num_threads(spec.execution.threads or DEFAULT_THREADS)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    if torch.cuda.is_available():
        # Inductor advises to round products to TensorFloat32; whole ones are what this configures.
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores", category=UserWarning)
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def _require_compiler() -> None:
    """Refuse to compile for the CPU without the compiler that Inductor looks for: it says so in forty lines.

    Source:
        torch._inductor.config.cpp.cxx (torch 2.13): the variable CXX, else g++, on macOS clang++.
    """
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        wanted = f"'compile' needs a C++ compiler on the CPU, and there is no {compiler}"
        raise SpecError("execution.torch", f"{wanted}; install one, name yours in CXX, or use 'eager'")

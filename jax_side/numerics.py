"""The dtypes of a run, and the switches of JAX that its results depend on."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from parity.spec import Precision, RunSpec

__all__ = ["Dtypes", "configure", "dtypes", "x64"]

MOST_CPU_DEVICES = 256
"""Most CPU devices of one process: where tried, Linux allowed fewer threads than 512 take, and XLA then exits."""


@dataclass(frozen=True, kw_only=True)
class Dtypes:
    """The three types of a run."""

    params: Any
    """Parameters, optimizer state and norm statistics: float64 or float32."""
    compute: Any
    """Inputs and outputs of matrix products."""
    exact: Any
    """Norms, softmax and the loss: never below float32."""


def dtypes(precision: Precision) -> Dtypes:
    """Return the types of a precision, those PyTorch's autocast ends up with."""
    params = jnp.float64 if precision == "float64" else jnp.float32
    return Dtypes(params=params, compute=jnp.dtype(precision), exact=params)


def x64(precision: Precision) -> AbstractContextManager[None]:
    """Return the context in which a run of this precision builds, traces and runs."""
    return jax.enable_x64(precision == "float64")


def configure(spec: RunSpec) -> None:
    """Prepare this process for a spec; call before the first use of a device.

    On CPU, several devices are forced into being, and dispatch is made synchronous: with collectives between
    forced devices, dispatching faster than they finish deadlocks (jax 0.10, two cores).
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_gpu_deterministic_ops" not in flags:  # scatter-adds and autotuning on GPUs are not, by default
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()
    jax.config.update("jax_default_matmul_precision", "highest")
    jax.config.update("jax_threefry_partitionable", True)
    if spec.mesh.devices > 1 and not jax.distributed.is_initialized():  # several processes bring their own devices
        if spec.mesh.devices <= MOST_CPU_DEVICES:
            with suppress(RuntimeError):  # a device is in use already: build_placement reports if there are too few
                jax.config.update("jax_num_cpu_devices", spec.mesh.devices)
        jax.config.update("jax_cpu_enable_async_dispatch", False)

"""State of PyTorch that a whole process shares: put aside before a check within it, put back after; writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["UNWRITTEN", "clear", "fresh_process", "set_aside", "share_programs", "write"]

DEFAULT_SEED = 67280421310721
"""Seed of the default generator in a new process (`c10::detail::default_rng_seed_val`)."""


UNWRITTEN: tuple[tuple[object, str], ...] = (
    *((torch, name) for name in ("empty", "empty_like", "empty_strided", "empty_permuted")),
    *((torch.Tensor, name) for name in ("new_empty", "new_empty_strided")),
)
"""Functions and methods that give memory as it is."""


@torch.no_grad()
def clear(tensor: torch.Tensor) -> None:
    """Set a tensor to zeros.

    `torch.utils.deterministic.fill_uninitialized_memory` fills such memory only where deterministic algorithms are
    asked for, which are other algorithms.
    """
    tensor.zero_()


def set_aside() -> Callable[[], None]:
    """Return a function that puts generators and settings back as they are now."""
    cpu, cuda = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    dtype, deterministic = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    precision, grad = torch.get_float32_matmul_precision(), torch.is_grad_enabled()
    cudnn = (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32)
    threads = torch.get_num_threads()

    def put_back() -> None:
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        torch.set_default_dtype(dtype)
        now = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        if now != (deterministic, warn_only):  # setting it imports a compiler
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.set_float32_matmul_precision(precision)
        torch.set_grad_enabled(grad)
        (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32) = cudnn
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)

    return put_back


def fresh_process() -> None:
    """Seed the default generator as a new process has it."""
    torch.default_generator.manual_seed(DEFAULT_SEED)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(DEFAULT_SEED)


def share_programs(directory: Path) -> None:
    """Leave it to PyTorch: what `torch.compile` makes is kept on disk already, for all processes of a user."""


def write(target: object, values: NDArray[Any]) -> bool:
    """Write values into a tensor in place; return whether it is one.

    Args:
        target: Any object.
        values: Of the tensor's shape; converted to its dtype.
    """
    if not isinstance(target, torch.Tensor):
        return False
    with torch.no_grad():
        target.copy_(torch.from_numpy(np.ascontiguousarray(values)))
    return True

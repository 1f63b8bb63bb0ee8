"""Versions of what results depend on, without importing anything."""

from __future__ import annotations

import functools
import importlib.metadata
import os
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["usable_cpus", "versions"]

DISTRIBUTIONS = (
    "numpy",
    "grain",
    "scikit-learn",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "torch",
)


@functools.cache
def versions() -> Mapping[str, str]:
    """Return distribution to version, of those that are installed."""
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return MappingProxyType(found)


def usable_cpus() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

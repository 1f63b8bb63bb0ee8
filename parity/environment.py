"""Versions of what results depend on, without importing anything."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["versions"]

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

"""Where the leaves of a state lie on a mesh: along which axes each is split, and what a device holds of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LeafSplit", "StateSplit"]


@dataclass(frozen=True, kw_only=True)
class LeafSplit:
    """One leaf, in PyTorch's layout."""

    leaf: str
    """Neutral name."""
    dtype: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    """Logical name of each axis; empty where they have none."""
    split: tuple[tuple[str, ...], ...]
    """For each axis, the axes of the mesh along which it is split."""
    nbytes: int
    """Bytes of the whole leaf."""
    device_bytes: int
    """Bytes of it on each device."""


@dataclass(frozen=True, kw_only=True)
class StateSplit:
    """Every leaf of a state that is an array of the model or of its optimizer."""

    side: str
    mesh: Mapping[str, int]
    """Axis to its devices, in their order."""
    leaves: tuple[LeafSplit, ...]

    @property
    def devices(self) -> int:
        """Return the devices of the mesh."""
        return math.prod(self.mesh.values())

    @property
    def nbytes(self) -> int:
        """Return the bytes of all leaves."""
        return sum(one.nbytes for one in self.leaves)

    @property
    def device_bytes(self) -> int:
        """Return the bytes of all leaves on each device."""
        return sum(one.device_bytes for one in self.leaves)

    def as_json(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        leaves = [
            {
                "leaf": one.leaf,
                "dtype": one.dtype,
                "shape": list(one.shape),
                "axes": list(one.axes),
                "split": [list(axes) for axes in one.split],
                "bytes": one.nbytes,
                "bytes_per_device": one.device_bytes,
            }
            for one in self.leaves
        ]
        total = {"bytes": self.nbytes, "bytes_per_device": self.device_bytes}
        return {"side": self.side, "mesh": dict(self.mesh), "devices": self.devices, **total, "leaves": leaves}

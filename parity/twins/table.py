"""The rows of a model: for every leaf its neutral name, its JAX path, its PyTorch name, and the transforms.

Every transform is a permutation of coordinates, under which elementwise optimizers and global-norm clipping are
unchanged; so a converted optimizer state takes the same steps, and the round trip is exact bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from parity.mapping import LeafRule, Permute, Recount, RulePlacement, Transform
from parity.spec import ModelSpec
from parity.spec.models import BUFFERS, Kind

__all__ = ["COUNTER", "Row", "param_shapes", "table"]

COUNTER = Recount("int32", "int64")
"""JAX without x64 has no int64; `to_jax` checks that a counter fits."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One leaf in its three spellings."""

    name: str
    """Neutral name, without the group: `layers.0.weight`."""
    group: Literal["params", "buffers"]
    shape: tuple[int, ...]
    """In PyTorch's layout."""
    jax: tuple[str | int, ...]
    """Path in the NNX state: ("layers", 0, "kernel")."""
    torch: str
    """Key in the module's state_dict."""
    transforms: tuple[Transform, ...] = ()
    """From neutral (PyTorch layout) to JAX."""
    axes: tuple[str, ...] = ()
    """Logical name of each axis of `shape`, as in `parity.spec.AXES`; empty where nothing of it is ever split."""

    @property
    def path(self) -> str:
        """Return the path in the NNX state as a name: `layers.0.kernel`."""
        return ".".join(map(str, self.jax))

    @cached_property
    def placement(self) -> RulePlacement:
        """Where the neutral leaf lies in JAX."""
        names = (self.name,), (self.path,)
        return RulePlacement(*names, LeafRule(*names, self.transforms))


_IN_JAX: dict[Kind, tuple[str, tuple[Transform, ...]]] = {
    "linear": ("kernel", (Permute((1, 0)),)),
    "convolution": ("kernel", (Permute((2, 3, 1, 0)),)),  # [out, in, height, width] is [height, width, in, out]
    "bias": ("bias", ()),
    "embedding": ("embedding", ()),
    "scale": ("scale", ()),
    "shift": ("bias", ()),
    "mean": ("mean", ()),
    "variance": ("var", ()),
    "count": ("count", (COUNTER,)),
}
"""Kind of a leaf to the name of its variable in the NNX module, and how it is kept there."""


def table(model: ModelSpec) -> tuple[Row, ...]:
    """Return the rows of a model, parameters first.

    Example:
        >>> from parity.spec import MlpSpec
        >>> row = table(MlpSpec())[0]
        >>> row.name, row.jax, row.placement.rule.how
        ('layers.0.weight', ('layers', 0, 'kernel'), 'permuted [1, 0]')
    """
    rows = []
    for leaf in model.param_specs():
        module, _, _ = leaf.name.rpartition(".")
        variable, transforms = _IN_JAX[leaf.kind]
        rows.append(
            Row(
                name=leaf.name,
                group="buffers" if leaf.kind in BUFFERS else "params",
                shape=leaf.shape,
                jax=(*(int(part) if part.isdigit() else part for part in module.split(".")), variable),
                torch=leaf.name,
                transforms=transforms,
                axes=leaf.axes,
            )
        )
    return tuple(rows)


def param_shapes(model: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Return parameter name to shape, without buffers."""
    return {leaf.name: leaf.shape for leaf in model.param_specs() if leaf.kind not in BUFFERS}

"""The rows of a model: for every leaf its neutral name, its JAX path, its PyTorch name, and the transform.

Every transform is a permutation of coordinates, under which elementwise optimizers and global-norm clipping are
unchanged; so a converted optimizer state takes the same steps, and the round trip is exact bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parity.spec import ModelSpec
from parity.spec.models import BUFFERS, Kind

__all__ = ["Row", "Turn", "param_shapes", "table"]

Turn = Literal["same", "transpose", "oihw_hwio", "counter"]


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
    transform: Turn
    """From neutral (PyTorch layout) to JAX."""


_IN_JAX: dict[Kind, tuple[str, Turn]] = {
    "linear": ("kernel", "transpose"),
    "convolution": ("kernel", "oihw_hwio"),
    "bias": ("bias", "same"),
    "embedding": ("embedding", "same"),
    "scale": ("scale", "same"),
    "shift": ("bias", "same"),
    "mean": ("mean", "same"),
    "variance": ("var", "same"),
    "count": ("count", "counter"),
}
"""Kind of a leaf to the name of its variable in the NNX module, and how it is kept there."""


def table(model: ModelSpec) -> tuple[Row, ...]:
    """Return the rows of a model, parameters first.

    Example:
        >>> from parity.spec import MlpSpec
        >>> row = table(MlpSpec())[0]
        >>> row.name, row.jax, row.transform
        ('layers.0.weight', ('layers', 0, 'kernel'), 'transpose')
    """
    rows = []
    for leaf in model.param_specs():
        module, _, _ = leaf.name.rpartition(".")
        variable, transform = _IN_JAX[leaf.kind]
        rows.append(
            Row(
                name=leaf.name,
                group="buffers" if leaf.kind in BUFFERS else "params",
                shape=leaf.shape,
                jax=(*(int(part) if part.isdigit() else part for part in module.split(".")), variable),
                torch=leaf.name,
                transform=transform,
            )
        )
    return tuple(rows)


def param_shapes(model: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Return parameter name to shape, without buffers."""
    return {leaf.name: leaf.shape for leaf in model.param_specs() if leaf.kind not in BUFFERS}

"""The two-way table: for every leaf of a model, its neutral name, its JAX path, its PyTorch name, and the transform.

Optimizer slots (moments, momentum) have the shape of their parameter and go through the same rows. Every
transform is a permutation of coordinates, under which elementwise optimizers and global-norm clipping are
unchanged; so a converted optimizer state takes the same steps, and the round trip is exact bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from parity.errors import StateError
from parity.spec import ModelSpec
from parity.twins.initial import initial_buffers, param_shapes

__all__ = ["Row", "check_leaves", "from_jax", "from_torch", "table", "to_jax", "to_torch"]

Array = NDArray[np.generic]
Transform = Literal["same", "transpose", "oihw_hwio", "counter"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One leaf in its three spellings."""

    name: str
    """Neutral name, without the group: `layers.0.weight`."""
    group: Literal["params", "buffers"]
    jax: tuple[str | int, ...]
    """Path in the NNX state: ("layers", 0, "kernel")."""
    torch: str
    """Key in the module's state_dict."""
    transform: Transform
    """From neutral (PyTorch layout) to JAX."""


_FORWARD: dict[Transform, Callable[[Array], Array]] = {
    "same": lambda a: a,
    "transpose": lambda a: a.T,
    "oihw_hwio": lambda a: a.transpose(2, 3, 1, 0),
    "counter": lambda a: a.astype(np.int32),  # JAX without x64 has no int64; `to_jax` checks that it fits
}
_INVERSE: dict[Transform, Callable[[Array], Array]] = {
    "same": lambda a: a,
    "transpose": lambda a: a.T,
    "oihw_hwio": lambda a: a.transpose(3, 2, 0, 1),
    "counter": lambda a: a.astype(np.int64),
}
_BUFFERS = {"running_mean": "mean", "running_var": "var", "num_batches_tracked": "count"}


def table(model: ModelSpec) -> tuple[Row, ...]:
    """Return the rows of a model, parameters first.

    Example:
        >>> from parity.spec import MlpSpec
        >>> row = table(MlpSpec())[0]
        >>> row.name, row.jax, row.transform
        ('layers.0.weight', ('layers', 0, 'kernel'), 'transpose')
    """
    params = [_param_row(name, shape) for name, shape in param_shapes(model).items()]
    return (*params, *(_buffer_row(name) for name in initial_buffers(model)))


def _param_row(name: str, shape: tuple[int, ...]) -> Row:
    module, _, leaf = name.rpartition(".")
    transform: Transform = "same"
    if leaf == "weight":
        if "norm" in module:
            leaf = "scale"
        elif module in ("tokens", "positions"):
            leaf = "embedding"
        else:
            leaf, transform = "kernel", "oihw_hwio" if len(shape) == 4 else "transpose"
    return Row(name=name, group="params", jax=(*_path(module), leaf), torch=name, transform=transform)


def _buffer_row(name: str) -> Row:
    module, _, leaf = name.rpartition(".")
    transform: Transform = "counter" if leaf == "num_batches_tracked" else "same"
    return Row(name=name, group="buffers", jax=(*_path(module), _BUFFERS[leaf]), torch=name, transform=transform)


def _path(module: str) -> tuple[str | int, ...]:
    return tuple(int(part) if part.isdigit() else part for part in module.split("."))


def check_leaves(
    model: ModelSpec, rows: tuple[Row, ...], leaves: Mapping[str, Array], where: str, dtype: str
) -> None:
    """Check neutral leaves against a model, before any transform.

    Args:
        model: Gives the shapes.
        rows: The rows that apply.
        leaves: Neutral name to array.
        where: Prefix of the leaf paths in error messages.
        dtype: What floating leaves must be: `float64` or `float32`. Counters must be `int64`.

    Raises:
        StateError: A leaf is missing, left over, or of another dtype or shape; in its neutral spelling.
    """
    _match({row.name for row in rows}, set(leaves), where)
    shapes = param_shapes(model) | {name: value.shape for name, value in initial_buffers(model).items()}
    for row in rows:
        expected = f"{'int64' if row.transform == 'counter' else dtype} {shapes[row.name]}"
        found = f"{leaves[row.name].dtype} {leaves[row.name].shape}"
        if found != expected:
            raise StateError(f"{where}.{row.name}", f"expected {expected}, got {found}")


def to_jax(rows: tuple[Row, ...], leaves: Mapping[str, Array], where: str) -> dict[tuple[str | int, ...], Array]:
    """Turn neutral leaves into JAX path to array.

    Args:
        rows: The rows that apply; each must find its leaf, and no leaf may be left over.
        leaves: Neutral name to array.
        where: Prefix of the leaf paths in error messages, such as `optimizer.first_moment`.
    """
    _match({row.name for row in rows}, set(leaves), where)
    for row in rows:
        value = leaves[row.name]
        if row.transform == "counter" and not (value.dtype == np.int64 and 0 <= int(value) < 2**31):
            raise StateError(f"{where}.{row.name}", f"{value.dtype} {value} does not fit the int32 JAX keeps it in")
    return {row.jax: np.asarray(_FORWARD[row.transform](leaves[row.name]), order="C") for row in rows}


def from_jax(
    rows: tuple[Row, ...], leaves: Mapping[tuple[str | int, ...], Array], where: str, *, views: bool = False
) -> dict[str, Array]:
    """Turn JAX path to array into neutral leaves; the inverse of `to_jax`.

    Args:
        rows: The rows that apply; each must find its leaf, and no leaf may be left over.
        leaves: JAX path to array.
        where: Prefix of the leaf paths in error messages.
        views: Whether transposed leaves may be views; otherwise every leaf is in C order.
    """
    names = {row.jax: row for row in rows}
    _match({_dotted(p) for p in names}, {_dotted(p) for p in leaves}, where)
    out = {names[p].name: _INVERSE[names[p].transform](a) for p, a in leaves.items()}
    if not views:
        out = {name: np.asarray(value, order="C") for name, value in out.items()}
    return {row.name: out[row.name] for row in rows}


def to_torch(rows: tuple[Row, ...], leaves: Mapping[str, Array], where: str) -> dict[str, Array]:
    """Turn neutral leaves into state_dict name to array."""
    _match({row.name for row in rows}, set(leaves), where)
    return {row.torch: leaves[row.name] for row in rows}


def from_torch(rows: tuple[Row, ...], leaves: Mapping[str, Array], where: str) -> dict[str, Array]:
    """Turn state_dict name to array into neutral leaves; the inverse of `to_torch`."""
    _match({row.torch for row in rows}, set(leaves), where)
    return {row.name: leaves[row.torch] for row in rows}


def _dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))


def _match(expected: set[str], found: set[str], where: str) -> None:
    for name in sorted(expected - found):
        raise StateError(f"{where}.{name}", f"is missing; found {len(found)} of {len(expected)} leaves")
    for name in sorted(found - expected):
        raise StateError(f"{where}.{name}", "is left over: no row of the table takes it")

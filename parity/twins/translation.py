"""Leaves by neutral name into JAX paths or PyTorch names and back, by the rows of the table.

Optimizer slots go through rows of their own (`parity.twins.slots`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from parity.errors import StateError
from parity.twins.table import COUNTER, Row

__all__ = ["check_leaves", "from_jax", "from_torch", "to_jax", "to_torch"]


def check_leaves(rows: tuple[Row, ...], leaves: Mapping[str, NDArray[np.generic]], where: str, dtype: str) -> None:
    """Check neutral leaves against the table, before any transform.

    Args:
        rows: The rows that apply.
        leaves: Neutral name to array.
        where: Prefix of the leaf paths in error messages.
        dtype: What floating leaves must be: `float64` or `float32`. Counters must be `int64`.

    Raises:
        StateError: A leaf is missing, unexpected, or of another dtype or shape; in its neutral spelling.
    """
    _match({row.name for row in rows}, set(leaves), where)
    for row in rows:
        expected = f"{'int64' if COUNTER in row.transforms else dtype} {row.shape}"
        found = f"{leaves[row.name].dtype} {leaves[row.name].shape}"
        if found != expected:
            raise StateError(f"{where}.{row.name}", f"expected {expected}, got {found}")


def to_jax(
    rows: tuple[Row, ...], leaves: Mapping[str, NDArray[np.generic]], where: str
) -> dict[tuple[str | int, ...], NDArray[np.generic]]:
    """Turn neutral leaves into JAX path to array.

    Args:
        rows: The rows that apply; each must find its leaf, and every leaf its row.
        leaves: Neutral name to array.
        where: Prefix of the leaf paths in error messages, such as `optimizer.first_moment`.

    Raises:
        StateError: A leaf is missing or unexpected, or a counter does not fit the int32 that JAX keeps it in.

    Numerics: arrays are moved, never rounded; each is in C order, copied where it was transposed.
    """
    _match({row.name for row in rows}, set(leaves), where)
    for row in rows:
        value = leaves[row.name]
        if COUNTER in row.transforms and not (value.dtype == np.int64 and 0 <= int(value) < 2**31):
            raise StateError(f"{where}.{row.name}", f"{value.dtype} {value} does not fit the int32 JAX keeps it in")
    return {row.jax: np.asarray(row.placement.forward([leaves[row.name]])[0], order="C") for row in rows}


def from_jax(
    rows: tuple[Row, ...],
    leaves: Mapping[tuple[str | int, ...], NDArray[np.generic]],
    where: str,
    *,
    views: bool = False,
) -> dict[str, NDArray[np.generic]]:
    """Turn JAX path to array into neutral leaves; the inverse of `to_jax`.

    Args:
        rows: The rows that apply; each must find its leaf, and every leaf its row.
        leaves: JAX path to array.
        where: Prefix of the leaf paths in error messages.
        views: Whether transposed leaves may be views; otherwise every leaf is in C order.

    Raises:
        StateError: A leaf is missing or unexpected.
    """
    _match({row.path for row in rows}, {".".join(map(str, path)) for path in leaves}, where)
    out = {row.name: row.placement.backward([leaves[row.jax]])[0] for row in rows}
    return out if views else {name: np.asarray(value, order="C") for name, value in out.items()}


def to_torch(
    rows: tuple[Row, ...], leaves: Mapping[str, NDArray[np.generic]], where: str
) -> dict[str, NDArray[np.generic]]:
    """Turn neutral leaves into state_dict name to array; the arrays are the same objects.

    Args:
        rows: The rows that apply; each must find its leaf, and every leaf its row.
        leaves: Neutral name to array.
        where: Prefix of the leaf paths in error messages.

    Raises:
        StateError: A leaf is missing or unexpected.
    """
    _match({row.name for row in rows}, set(leaves), where)
    return {row.torch: leaves[row.name] for row in rows}


def from_torch(
    rows: tuple[Row, ...], leaves: Mapping[str, NDArray[np.generic]], where: str
) -> dict[str, NDArray[np.generic]]:
    """Turn state_dict name to array into neutral leaves; the inverse of `to_torch`.

    Args:
        rows: The rows that apply; each must find its leaf, and every leaf its row.
        leaves: Name in the state_dict to array.
        where: Prefix of the leaf paths in error messages.

    Raises:
        StateError: A leaf is missing or unexpected.
    """
    _match({row.torch for row in rows}, set(leaves), where)
    return {row.name: leaves[row.torch] for row in rows}


def _match(expected: set[str], found: set[str], where: str) -> None:
    for name in sorted(expected - found):
        raise StateError(f"{where}.{name}", f"is missing; found {len(found)} of {len(expected)} leaves")
    for name in sorted(found - expected):
        raise StateError(f"{where}.{name}", "unexpected leaf: this model has no such parameter")

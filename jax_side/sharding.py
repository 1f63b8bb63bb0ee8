"""Shardings from metadata: logical names on the NNX variables, and one table from names to axes of the mesh.

`parity.spec.AXES` is the table. A tree of variables that carry their names (parameters, and the slots that Optax
makes of them) has its shardings through `nnx.get_partition_spec`: inputs, outputs and checkpoints of a run all take
theirs from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from jax_side.placement import Placement
from parity.mapping import Permute
from parity.spec import AXES, MeshSpec, split_axes
from parity.twins import Row

__all__ = ["annotated", "gathered_shardings", "jax_axes", "put_state", "splits_state", "state_shardings"]


def splits_state(mesh: MeshSpec) -> bool:
    """Return whether a mesh splits parameters and optimizer state, not the batch alone."""
    return mesh.fsdp * mesh.model > 1


def jax_axes(row: Row) -> tuple[str, ...]:
    """Return the logical names of a leaf's axes in the order that JAX has them.

    Example:
        >>> from parity.spec import MlpSpec
        >>> from parity.twins import table
        >>> row = table(MlpSpec())[0]
        >>> row.axes, jax_axes(row)
        (('hidden', 'features'), ('features', 'hidden'))
    """
    axes = row.axes
    for turn in row.transforms:
        if isinstance(turn, Permute) and axes:
            axes = tuple(axes[axis] for axis in turn.axes)
    return axes


def annotated(variables: nnx.State, rows: Sequence[Row]) -> nnx.State:
    """Return variables with their logical names as metadata; those without names are replicated.

    The metadata is what `nnx.with_partitioning` leaves. It is put on the finished, abstract module: the names of the
    table, which both sides share, are in PyTorch's layout, and a variable that is created with names asks for a mesh
    at once (flax 0.12).

    Args:
        variables: Parameters or buffers, abstract or not.
        rows: Their rows in the table.
    """
    axes_of = {row.jax: jax_axes(row) for row in rows}
    named = []
    for path, leaf in nnx.to_flat_state(variables):
        own = leaf.copy()
        if axes := axes_of.get(tuple(path)):
            own.set_metadata(out_sharding=axes)
        named.append((path, own))
    return nnx.from_flat_state(named)


def state_shardings(placement: Placement, tree: Any) -> Any:
    """Return the sharding of every array of a tree, by the names that its variables carry.

    An axis that is 1 long is whole: Adafactor keeps one value for each row of a matrix, under the matrix's names. So
    is everything that is no variable: counts, the loss scale.

    Args:
        placement: The devices.
        tree: A state, or a part of one; arrays or abstract ones.

    Returns:
        A tree of the same structure.
    """
    names = {name for leaf in jax.tree.leaves(tree, is_leaf=_is_variable) for name in _names(leaf)}
    rules = tuple((name, _along(name, placement.spec)) for name in sorted(names))
    with nnx.logical_axis_rules(rules):
        partitions = nnx.get_partition_spec(tree)

    def of(value: Any, partition: PartitionSpec) -> NamedSharding | None:
        return None if value is None else NamedSharding(placement.mesh, _fitted(partition, value.shape))

    return jax.tree.map(of, tree, partitions, is_leaf=lambda x: x is None)  # None: a parameter without this slot


def gathered_shardings(placement: Placement, tree: Any) -> Any:
    """Return the shardings of parameters while a step uses them: whole along `fsdp`, where the batch is split too."""
    return state_shardings(replace(placement, spec=replace(placement.spec, fsdp=1, processes=1)), tree)


def put_state(placement: Placement, tree: Any) -> Any:
    """Put a state, or a part of one, on the devices, each of which holds its part.

    Of several processes, each has the whole arrays and puts its part of them there; what lies so already stays.

    Args:
        placement: The devices.
        tree: The arrays, of JAX or of NumPy, in variables that carry their names.
    """
    if not splits_state(placement.spec):
        return placement.put(tree)
    return jax.tree.map(_placed, tree, state_shardings(placement, tree))


def _placed(value: Any, sharding: NamedSharding) -> Any:
    """Put an array where it belongs; of several processes, without asking the others whether theirs is equal."""
    if getattr(value, "sharding", None) == sharding:
        return value
    if jax.process_count() == 1 or jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        return jax.device_put(value, sharding)
    whole = np.asarray(value)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def _along(name: str, mesh: MeshSpec) -> tuple[str, ...] | None:
    """Return the axes of the mesh along which a logical axis is split; None for one that is whole."""
    assert name not in mesh.sizes, f"{name} is an axis of the mesh, and no logical name"
    (axes,) = split_axes((name,), mesh) if name in AXES else ((),)
    return axes or None


def _names(leaf: Any) -> Sequence[str]:
    return leaf.get_metadata("out_sharding", ()) if _is_variable(leaf) else ()


def _is_variable(leaf: Any) -> bool:
    return isinstance(leaf, nnx.Variable)


def _fitted(partition: PartitionSpec, shape: Sequence[int]) -> PartitionSpec:
    """Return a partition without the axes that are 1 long; that of a parameter's scalar slot is empty."""
    if len(shape) < len(partition):
        return PartitionSpec()
    kept = [part if size > 1 else None for part, size in zip(partition, shape, strict=False)]
    while kept and kept[-1] is None:
        kept.pop()
    return PartitionSpec(*kept)

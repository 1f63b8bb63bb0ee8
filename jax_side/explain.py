"""The shardings of a run as data: what `parity train --explain-sharding` prints; no device is used."""

from __future__ import annotations

import math
from typing import Any

import jax
from flax import nnx
from jax.sharding import AbstractMesh, NamedSharding

from jax_side.numerics import x64
from jax_side.optimizer import build_optimizer
from jax_side.placement import Placement
from jax_side.sharding import state_shardings
from jax_side.state import DeviceState, abstract_model, neutral_parts
from parity.contract import LeafSplit, StateSplit
from parity.mapping import Permute
from parity.spec import RunSpec
from parity.twins import Layout, Row

__all__ = ["explain_sharding"]


def explain_sharding(spec: RunSpec) -> StateSplit:
    """Return where each leaf of a run's state lies, by the shardings that it trains with.

    Example:
        >>> from parity.spec import load
        >>> found = explain_sharding(load("mlp-digits", None, ["mesh.fsdp=2", "mesh.model=2"]))
        >>> first = found.leaves[0]
        >>> first.leaf, first.axes, first.split, first.nbytes, first.device_bytes
        ('model.params.layers.0.weight', ('hidden', 'features'), (('model',), ('fsdp',)), 32768, 8192)
    """
    layout = Layout.of(spec)
    placement: Any = Placement(AbstractMesh(tuple(spec.mesh.sizes.values()), tuple(spec.mesh.sizes)), spec.mesh)
    with x64(spec.precision):
        _, params, buffers, rngs = abstract_model(spec)
        state = DeviceState(params, buffers, rngs, jax.eval_shape(build_optimizer(spec).init, params), None)
    parts = zip(neutral_parts(layout, state), neutral_parts(layout, state_shardings(placement, state)), strict=True)
    leaves = []
    for (group, rows, values), (_, _, shardings) in parts:
        value_at, sharding_at = _by_path(values), _by_path(shardings)
        leaves += [_split(group, row, value_at[row.jax], sharding_at[row.jax]) for row in rows]
    return StateSplit(side="jax", mesh=spec.mesh.sizes, leaves=tuple(leaves))


def _by_path(part: nnx.State) -> dict[tuple[str | int, ...], Any]:
    return {tuple(path): leaf.get_value() for path, leaf in nnx.to_flat_state(part)}


def _split(group: str, row: Row, value: Any, sharding: NamedSharding) -> LeafSplit:
    axes = tuple(range(value.ndim))
    for turn in row.transforms:
        if isinstance(turn, Permute):
            axes = tuple(axes[axis] for axis in turn.axes)
    parts = [*sharding.spec, *[None] * value.ndim][: value.ndim]
    along: list[tuple[str, ...]] = [() for _ in axes]
    for axis, part in zip(axes, parts, strict=True):
        along[axis] = (part,) if isinstance(part, str) else tuple(part or ())
    return LeafSplit(
        leaf=f"{group}.{row.name}",
        dtype=str(value.dtype),
        shape=row.shape,
        axes=row.axes,
        split=tuple(along),
        nbytes=value.size * value.dtype.itemsize,
        device_bytes=math.prod(sharding.shard_shape(value.shape)) * value.dtype.itemsize,
    )

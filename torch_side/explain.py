"""The shardings of a run as data: what `parity train --explain-sharding` prints; no device is used."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.distributed.tensor.parallel import ColwiseParallel

from parity.contract import LeafSplit, StateSplit
from parity.mapping import Recount
from parity.spec import RunSpec
from parity.twins import Layout, Row
from torch_side.model import build_model
from torch_side.sharding import layer_plan, require_sharded, shards_rows

__all__ = ["explain_sharding"]


def explain_sharding(spec: RunSpec) -> StateSplit:
    """Return where each leaf of a run's state lies, by the rules that it trains with.

    Rows that the devices do not divide are shared unevenly; the bytes of a leaf on a device are those of the first,
    which has the most.

    Raises:
        SpecError: As of `torch_side.sharding.require_sharded`.

    Example:
        >>> from parity.spec import load
        >>> found = explain_sharding(load("mlp-digits", None, ["mesh.fsdp=2", "mesh.model=2"]))
        >>> first = found.leaves[0]
        >>> first.leaf, first.axes, first.split, first.nbytes, first.device_bytes
        ('model.params.layers.0.weight', ('hidden', 'features'), (('model', 'fsdp'), ()), 32768, 8192)
    """
    require_sharded(spec)
    layout = Layout.of(spec)
    with torch.device("meta"):
        model = build_model(spec)
    plan = layer_plan(model, spec, layout) if spec.mesh.model > 1 else {}
    along: dict[str, tuple[tuple[str, ...], ...]] = {}
    for row in layout.params:
        layer, _, kind = row.torch.rpartition(".")
        split: list[tuple[str, ...]] = [() for _ in row.shape]
        style = plan.get(layer)
        if isinstance(style, ColwiseParallel):
            split[0] = ("model",)
        elif style is not None and kind == "weight":
            split[1] = ("model",)
        if shards_rows(spec.mesh) and spec.mesh.fsdp > 1:
            split[0] = (*split[0], "fsdp")
        along[row.name] = tuple(split)
    params = [(f"model.params.{row.name}", row, layout.dtype) for row in layout.params]
    buffers = [(f"model.buffers.{row.name}", row, layout.dtype) for row in layout.buffers]
    slots = [(f"optimizer.{one.slot.name}.{row.name}", row, one.dtype) for one in layout.slots for row in one.rows]
    leaves = [_split(spec, leaf, row, dtype, along) for leaf, row, dtype in (*params, *buffers, *slots)]
    return StateSplit(side="torch", mesh=spec.mesh.sizes, leaves=tuple(leaves))


def _split(
    spec: RunSpec, leaf: str, row: Row, dtype: str, along: dict[str, tuple[tuple[str, ...], ...]]
) -> LeafSplit:
    split = along.get(row.name, ()) if row.shape else ()
    if len(split) != len(row.shape):  # a buffer, or a number for each parameter
        split = ((),) * len(row.shape)
    kind = "int64" if any(isinstance(turn, Recount) for turn in row.transforms) else dtype
    item = np.dtype(kind).itemsize
    extents = list(row.shape)
    for axis, names in enumerate(split):
        for name in names:
            extents[axis] = -(-extents[axis] // getattr(spec.mesh, name))
    return LeafSplit(
        leaf=leaf,
        dtype=kind,
        shape=row.shape,
        axes=row.axes,
        split=split,
        nbytes=math.prod(row.shape) * item,
        device_bytes=math.prod(extents) * item,
    )

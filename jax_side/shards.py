"""Leaves that lie in several processes: each digests what it holds, and together they have the digest of the whole.

No process ever has such a leaf (`parity.state.digest_together`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from jax_side.processes import exchange
from parity.mapping import Permute
from parity.state import LeafDigest, Order, SharedLeaf, TrainingState, digest_together, memory_orders
from parity.twins import Row

__all__ = ["NeutralPart", "digest_shards", "held_shards", "is_shared"]

NeutralPart = tuple[str, tuple[Row, ...], nnx.State]
"""Group of leaves, their rows in the table, and the variables that hold them."""


def is_shared(value: Any) -> bool:
    """Return whether an array lies in several processes, none of which has all of it for sure."""
    return isinstance(value, jax.Array) and not (value.is_fully_addressable or value.is_fully_replicated)


def held_shards(tree: Any) -> list[NDArray[np.generic]]:
    """Return views of what this process holds of a tree: JAX does not reuse their memory while they are there."""
    shared = [value for value in jax.tree.leaves(tree) if is_shared(value)]
    return [np.asarray(shard.data) for value in shared for shard in value.addressable_shards]


def digest_shards(parts: list[NeutralPart], orders: Mapping[str, Order] | None = None) -> dict[str, str]:
    """Return neutral leaf to `type digest`, of the leaves that lie in several processes; all of them call it.

    Every copy of a shard is digested where it is, so that it is known of each device that it holds what was saved.

    Args:
        parts: The state.
        orders: Neutral leaf to the order in which its bytes are digested; as they lie in memory where it has none.

    Raises:
        StateError: Copies of a leaf differ.
    """
    index, count = jax.process_index(), jax.process_count()
    return digest_together(_shared(parts, orders), exchange, index, count)


def _shared_leaf(leaf: str, value: jax.Array, turned: tuple[int, ...], order: Order | None) -> SharedLeaf:
    """Return an array that lies in several processes for `parity.state.digest_together`.

    Args:
        leaf: Its name in the seal.
        value: The array.
        turned: Axes of the leaf in the seal, in the order of those of the array.
        order: The order in which its bytes are digested; None for as they lie in memory.
    """
    back = [turned.index(axis) for axis in range(len(turned))]
    shape = tuple(value.shape[axis] for axis in back)
    found = _memory_order(leaf, value, back) if order is None else order
    return SharedLeaf(leaf, value.nbytes, lambda: _digests(value, shape, back, found))


def _shared(parts: list[NeutralPart], orders: Mapping[str, Order] | None) -> Iterator[SharedLeaf]:
    for group, rows, part in parts:
        values = {tuple(path): leaf.get_value() for path, leaf in nnx.to_flat_state(part)}
        for row in rows:
            if is_shared(values[row.jax]):
                leaf = f"{group}.{row.name}"
                order = None if orders is None else orders.get(leaf, ())
                yield _shared_leaf(leaf, values[row.jax], _axes(leaf, row), order)


def _axes(leaf: str, row: Row) -> tuple[int, ...]:
    axes = tuple(range(len(row.shape)))
    for turn in row.transforms:
        assert isinstance(turn, Permute), f"{leaf} is kept {turn}, and that of a part is not known"
        axes = tuple(axes[axis] for axis in turn.axes)
    return axes


def _digests(value: jax.Array, shape: tuple[int, ...], back: list[int], order: Order) -> dict[str, LeafDigest]:
    """Return the number of a copy to the digest of what this process holds of it, in the layout of its name."""
    found: dict[str, LeafDigest] = {}
    for shard in value.addressable_shards:
        starts = [0 if part.start is None else part.start for part in shard.index]
        copy = str(shard.replica_id)
        if copy not in found:
            found[copy] = LeafDigest(shape, value.dtype, order)
        piece = np.asarray(shard.data).transpose(back)
        found[copy].add([starts[axis] for axis in back], piece)
    return found


def _memory_order(leaf: str, value: jax.Array, back: list[int]) -> Order:
    """Return the order in which one process would find the bytes of the whole: memory that nobody touches has it."""
    whole = np.empty(value.shape, value.dtype).transpose(back)
    return memory_orders(TrainingState(arrays={leaf: whole})).get(leaf, ())

"""Leaves that lie in several processes: each digests what it holds, and together they have the digest of the whole.

No process ever has such a leaf: what crosses are digests of its blocks, and the bytes of those blocks that a shard
ends in. The digest is that of one process (`parity.state.LeafDigest`), so a seal does not say how many saved it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from jax_side.processes import exchange
from parity.errors import StateError
from parity.mapping import Permute
from parity.state import LeafDigest, Order, TrainingState, memory_orders
from parity.twins import Row

__all__ = ["NeutralPart", "digest_shards", "held_shards", "is_shared"]

ROUND = 8 << 20
"""Bytes of leaves of which the ends of shards are exchanged at once: no process ever has more of what others hold."""

NeutralPart = tuple[str, tuple[Row, ...], nnx.State]
"""Group of leaves, their rows in the table, and the variables that hold them."""


def is_shared(value: Any) -> bool:
    """Return whether an array lies in several processes, none of which has all of it for sure."""
    return isinstance(value, jax.Array) and not (value.is_fully_addressable or value.is_fully_replicated)


def held_shards(tree: Any) -> list[NDArray[np.generic]]:
    """Return views of what this process holds of a tree: JAX does not reuse their memory while they are there."""
    shared = [value for value in jax.tree.leaves(tree) if is_shared(value)]
    return [np.asarray(shard.data) for value in shared for shard in value.addressable_shards]


class _SharedLeaf(NamedTuple):
    leaf: str
    row: Row
    value: jax.Array


def digest_shards(parts: list[NeutralPart], orders: Mapping[str, Order] | None = None) -> dict[str, str]:
    """Return neutral leaf to `type digest`, of the leaves that lie in several processes; all of them call it.

    Every copy of a shard is digested where it is, so that it is known of each device that it holds what was saved.

    Args:
        parts: The state.
        orders: Neutral leaf to the order in which its bytes are digested; as they lie in memory where it has none.

    Raises:
        StateError: Copies of a leaf differ.
    """
    found: dict[str, str] = {}
    waiting: list[_SharedLeaf] = []
    size = 0
    for one in _shared(parts):
        waiting.append(one)
        size += one.value.nbytes
        if size >= ROUND:  # of whole leaves, so that all processes exchange the same ones
            found |= _exchanged(waiting, orders)
            waiting, size = [], 0
    return found | (_exchanged(waiting, orders) if waiting else {})


def _shared(parts: list[NeutralPart]) -> Iterator[_SharedLeaf]:
    for group, rows, part in parts:
        values = {tuple(path): leaf.get_value() for path, leaf in nnx.to_flat_state(part)}
        for row in rows:
            if is_shared(values[row.jax]):
                yield _SharedLeaf(f"{group}.{row.name}", row, values[row.jax])


def _exchanged(leaves: list[_SharedLeaf], orders: Mapping[str, Order] | None) -> dict[str, str]:
    """Return the digests of leaves: each process completes a share of their blocks, and all learn of those."""
    own = [_digests(one, orders) for one in leaves]
    count, index = jax.process_count(), jax.process_index()
    owners = count * -(-sum(one.value.nbytes for one in leaves) // (count * ROUND))
    shares: list[dict[str, LeafDigest]] = [{} for _ in leaves]
    for owner in range(owners):
        every = exchange([{str(copy): d.packed(owner, owners) for copy, d in digests.items()} for digests in own])
        if owner % count == index:
            _merge(shares, every)
    whole: list[dict[str, LeafDigest]] = [{} for _ in leaves]
    _merge(whole, exchange([{copy: digest.packed() for copy, digest in share.items()} for share in shares]))
    found = {}
    for one, copies in zip(leaves, whole, strict=True):
        texts = {digest.text() for digest in copies.values()}
        if len(texts) > 1:
            raise StateError(one.leaf, f"devices that hold the same part of it differ: {' and '.join(sorted(texts))}")
        found[one.leaf] = texts.pop()
    return found


def _merge(into: list[dict[str, LeafDigest]], every: list[Any]) -> None:
    """Merge what processes have of each copy of each leaf."""
    for packed in every:
        for copies, given in zip(into, packed, strict=True):
            for copy, digest in given.items():
                part = LeafDigest.unpacked(digest)
                copies[copy].merge(part) if copy in copies else copies.setdefault(copy, part)


def _digests(one: _SharedLeaf, orders: Mapping[str, Order] | None) -> dict[int, LeafDigest]:
    """Return the number of a copy to the digest of what this process holds of it, in PyTorch's layout."""
    axes = tuple(range(one.value.ndim))
    for turn in one.row.transforms:
        assert isinstance(turn, Permute), f"{one.leaf} is kept {turn}, and that of a part is not known"
        axes = tuple(axes[axis] for axis in turn.axes)
    back = [axes.index(axis) for axis in range(len(axes))]
    order = _memory_order(one, back) if orders is None else orders.get(one.leaf, ())
    found: dict[int, LeafDigest] = {}
    for shard in one.value.addressable_shards:
        starts = [0 if part.start is None else part.start for part in shard.index]
        if shard.replica_id not in found:
            found[shard.replica_id] = LeafDigest(one.row.shape, one.value.dtype, order)
        piece = np.asarray(shard.data).transpose(back)
        found[shard.replica_id].add([starts[axis] for axis in back], piece)
    return found


def _memory_order(one: _SharedLeaf, back: list[int]) -> Order:
    """Return the order in which one process would find the bytes of the whole: memory that nobody touches has it."""
    whole = np.empty(one.value.shape, one.value.dtype).transpose(back)
    return memory_orders(TrainingState(arrays={one.leaf: whole})).get(one.leaf, ())

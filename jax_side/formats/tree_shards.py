"""The files of a tree that several JAX processes write and read together: Orbax writes what each of them holds.

Orbax's handler is called without its `Checkpointer`, whose barriers wait for twenty minutes for a process that has
failed: here each attempts its part, and all hear how it ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts
from etils import epath
from numpy.typing import NDArray

from jax_side.formats.description import CHECKPOINT, JSON_HANDLER, TREE_HANDLER, describe_handlers
from jax_side.formats.items import tree_handler
from jax_side.formats.ocdbt import places
from jax_side.formats.orbax_manager import reason
from jax_side.formats.tree_items import content_of, is_nothing, opened, stored_names
from jax_side.processes import exchange
from parity.checkpoints.trees import ArrayType, HeldArray, HeldPiece, SavedPart, SavingGroup, Written, attempt

__all__ = ["JaxGroup", "held_part", "is_split", "laid_like", "read_shards", "replicated_key", "write_shards"]


class JaxGroup:
    """All processes of JAX. What they tell each other goes through their devices, so through one thread alone.

    Collectives of two threads would meet in another order in each process; why a thread that writes does not go
    through the coordination service instead is in docs/decisions.md.
    """

    beside = None

    @property
    def index(self) -> int:
        """Return the number of this process."""
        return jax.process_index()

    @property
    def count(self) -> int:
        """Return the number of processes."""
        return jax.process_count()

    def exchange(self, value: Any, /) -> list[Any]:
        """Return the values of all processes, in their order; each gives one, which must be JSON."""
        return exchange(value)


def is_split(like: Any) -> bool:
    """Return whether an array, or one that a template describes, lies in several processes in parts."""
    sharding = getattr(like, "sharding", None)
    if not isinstance(like, jax.Array | jax.ShapeDtypeStruct) or not isinstance(sharding, jax.sharding.Sharding):
        return False
    if isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh):
        return False  # without devices yet: what it is for is read whole
    return not (sharding.is_fully_addressable or sharding.is_fully_replicated)


def held_part(value: jax.Array) -> HeldArray:
    """Return what this process holds of an array, as views: JAX does not reuse their memory while they are there."""
    pieces = []
    for shard in value.addressable_shards:
        start = tuple(part.start or 0 for part in shard.index)
        pieces.append(HeldPiece(start, np.asarray(shard.data), str(shard.replica_id), shard.replica_id == 0))
    return HeldArray(tuple(value.shape), str(value.dtype), tuple(pieces), value)


def laid_like(array: NDArray[np.generic], sharding: jax.sharding.Sharding) -> jax.Array:
    """Put what this process needs of a whole array on its devices; other processes are not asked."""
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def replicated_key(key: jax.Array, devices: Iterable[jax.Device]) -> jax.Array:
    """Put a key, which all processes have, on devices of theirs; they are not asked.

    Args:
        key: Typed keys of this process.
        devices: Where they go, the same devices in every process.
    """
    words, mesh = jax.random.key_data(key), jax.sharding.Mesh(sorted(devices, key=lambda one: one.id), ("devices",))
    whole = laid_like(np.asarray(words), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
    return jax.random.wrap_key_data(whole, impl=jax.random.key_impl(key))


def write_shards(
    draft: Path, parts: list[SavedPart], values: Mapping[str, Any], texts: Mapping[str, str], group: SavingGroup
) -> Callable[[], Written]:
    """Write parts together, as `write_parts` does in one process; all processes call it.

    Args:
        draft: The new directory, in one that all processes see.
        parts: What is written.
        values: Name of each leaf to what is written: an array, a `HeldArray`, or a scalar.
        texts: Name of each array in the seal to its digest.
        group: The processes.

    Returns:
        What finishes the files, in process 0, and returns where the arrays lie.

    Raises:
        CheckpointError: Some process failed; says which.
    """
    first = group.index == 0
    live = {name: _global(value) for name, value in values.items()}
    contents = [(part, content_of(part.node, live)) for part in parts]
    kept = [(part, tree) for part, tree in contents if part.is_json or not is_nothing(tree)]
    trees = [(draft / part.item, tree) for part, tree in kept if not part.is_json]

    def make() -> None:
        for path in [draft, *(draft / part.item for part, _ in kept if part.item)] if first else ():
            path.mkdir()

    def why(error: BaseException) -> str:
        return reason(error, "write", draft)

    def write() -> None:
        for path, tree in trees:
            _write(path, tree)

    def finish() -> Written:
        for path, _ in trees:
            tree_handler().finalize(epath.Path(path.resolve()))  # merges what each process wrote
        for part, tree in kept:
            if part.is_json:
                (draft / part.item / "metadata").write_text(json.dumps(tree), encoding="utf-8")
        handlers = {part.item: JSON_HANDLER if part.is_json else TREE_HANDLER for part, _ in kept}
        if kept:
            described = describe_handlers(handlers if kept[0][0].item else TREE_HANDLER)
            (draft / CHECKPOINT).write_text(json.dumps(described), encoding="utf-8")
        return {}, places(draft, [part.item for part in parts], stored_names(parts), texts)

    attempt(group, make, why)
    attempt(group, write, why)
    return finish


def read_shards(
    store: Path, wanted: Mapping[str, str], kinds: Mapping[str, ArrayType], likes: Mapping[str, Any]
) -> dict[str, HeldArray]:
    """Read of each array what the devices of this process need, as an array that lies as one of the template.

    Args:
        store: Directory of an item.
        wanted: Name of an array to its name in the store.
        kinds: Name of an array to its type.
        likes: Name of an array to the leaf of the template that says where it lies.

    Raises:
        CheckpointError: The store does not hold arrays of these types.
    """
    found: dict[str, HeldArray] = {}
    for name, array in opened(store, wanted, kinds).items():
        found[name] = held_part(_read(array, kinds[name], likes[name].sharding))
    return found


def _read(array: ts.TensorStore, kind: ArrayType, sharding: jax.sharding.Sharding) -> jax.Array:
    """Read the boxes of this process, each once, also where several of its devices hold it."""
    boxes: dict[tuple[tuple[int, int], ...], Any] = {}

    def read(index: tuple[slice, ...]) -> NDArray[np.generic]:
        box = tuple(part.indices(size)[:2] for part, size in zip(index, kind.shape, strict=True))
        if box not in boxes:
            boxes[box] = np.asarray(array[tuple(slice(*one) for one in box)].read().result())
        read_now: NDArray[np.generic] = boxes[box]
        return read_now

    return jax.make_array_from_callback(kind.shape, sharding, read)


def _global(value: Any) -> Any:
    """Return what Orbax is given of a leaf: of arrays on devices, those on devices of all processes."""
    if isinstance(value, HeldArray):
        return value.live
    return replicated_key(value, jax.devices()) if isinstance(value, jax.Array) else value


def _write(path: Path, tree: Any) -> None:
    """Have Orbax write what this process holds of a tree, and wait for it."""
    args = ocp.args.PyTreeSave(tree)
    futures = asyncio.run(tree_handler().async_save(epath.Path(path.resolve()), args=args))
    for future in futures or []:
        future.result()

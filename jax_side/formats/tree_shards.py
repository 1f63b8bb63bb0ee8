"""The files of a tree that several JAX processes write and read together: Orbax writes what each of them holds.

Orbax's handler is called without its `Checkpointer`, whose barriers wait for twenty minutes for a process that has
failed: here each attempts its part, and all hear how it ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
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
from parity.checkpoints.trees import ArrayType, HeldArray, HeldPiece, SavedPart, SavingGroup, Written, attempt

__all__ = ["JointOrbaxWrite", "held_part", "is_split", "laid_like", "read_shards", "replicated_key"]


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


class JointOrbaxWrite:
    """Parts that several processes write together, as `write_parts` does in one; made in the thread that computes.

    Orbax has copied what is on devices to the host when this returns, and its threads write: what a program does with
    the arrays then changes nothing. On CPU the copy is the array's own memory, which JAX does not reuse meanwhile.

    Args:
        draft: The new directory, in one that all processes see.
        parts: What is written.
        values: Name of each leaf to what is written: an array, a `HeldArray`, or a scalar.
    """

    def __init__(self, draft: Path, parts: list[SavedPart], values: Mapping[str, Any]) -> None:
        self._draft, self._parts = draft, parts
        live = {name: _global(value) for name, value in values.items()}
        contents = [(part, content_of(part.node, live)) for part in parts]
        self._kept = [(part, tree) for part, tree in contents if part.is_json or not is_nothing(tree)]
        self._futures: list[Any] = []
        self._failure: Exception | None = None
        try:
            for path in [draft, *(draft / part.item for part, _ in self._kept if part.item)]:
                path.mkdir(parents=True, exist_ok=True)  # whichever process comes first
            for path, tree in self._trees():
                self._futures += _begin(path, tree)
        except Exception as error:  # the others hear of it from `write`; until then they may write
            self._failure = error

    def write(self, group: SavingGroup) -> None:
        """Wait until all processes have written what they hold.

        Args:
            group: The processes; this may be another thread than the loop's.

        Raises:
            CheckpointError: Some process failed; says which.
        """
        attempt(group, self._settle, self._why)

    def finish(self, texts: Mapping[str, str]) -> Written:
        """Finish the files, in process 0, and return where the arrays lie.

        Args:
            texts: Name of each array in the seal to its digest.
        """
        for path, _ in self._trees():
            tree_handler().finalize(epath.Path(path.resolve()))  # merges what each process wrote
        for part, tree in self._kept:
            if part.is_json:
                (self._draft / part.item / "metadata").write_text(json.dumps(tree), encoding="utf-8")
        handlers = {part.item: JSON_HANDLER if part.is_json else TREE_HANDLER for part, _ in self._kept}
        if self._kept:
            described = describe_handlers(handlers if self._kept[0][0].item else TREE_HANDLER)
            (self._draft / CHECKPOINT).write_text(json.dumps(described), encoding="utf-8")
        return {}, places(self._draft, [part.item for part in self._parts], stored_names(self._parts), texts)

    def _trees(self) -> list[tuple[Path, Any]]:
        return [(self._draft / part.item, tree) for part, tree in self._kept if not part.is_json]

    def _settle(self) -> None:
        """Wait for all that was begun, though some of it failed: nothing writes to a draft that is removed."""
        for future in self._futures:
            try:
                _end(future)
            except Exception as error:
                self._failure = self._failure or error
        if self._failure is not None:
            raise self._failure

    def _why(self, error: BaseException) -> str:
        return reason(error, "write", self._draft)


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


def _begin(path: Path, tree: Any) -> list[Any]:
    """Have Orbax copy what this process holds of a tree, and begin to write it; return what is still to end."""
    args = ocp.args.PyTreeSave(tree)
    return asyncio.run(tree_handler().async_save(epath.Path(path.resolve()), args=args)) or []


def _end(future: Any) -> None:
    """Wait until what was begun is written."""
    future.result()

"""Any tree in JAX: its containers, its arrays and keys, and the Orbax items that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from jax_side.formats.described import key_of
from jax_side.formats.host import fetched
from jax_side.formats.orbax_manager import reason
from jax_side.formats.process_group import JaxGroup
from jax_side.formats.tree_items import read_parts, write_parts
from jax_side.formats.tree_shards import (
    JointOrbaxWrite,
    held_part,
    is_split,
    laid_like,
    read_shards,
    replicated_key,
)
from parity.checkpoints.trees import (
    DTYPES,
    ArrayType,
    HeldArray,
    Opened,
    SavedPart,
    TreeForm,
    Written,
    open_plain,
    type_name,
)
from parity.errors import CheckpointError

__all__ = ["JaxForm"]

KEYS = ("threefry2x32", "rbg", "unsafe_rbg")
"""Implementations of typed keys."""


class JaxForm(TreeForm):
    """Trees of JAX: what `jax.tree` knows, NNX modules, dataclasses and Python's containers."""

    side = "jax"

    def group(self, tree: Any) -> JaxGroup | None:
        """Return the processes of JAX, where there are several: each has devices of its own."""
        del tree
        return JaxGroup() if jax.process_count() > 1 else None

    def is_split(self, like: Any) -> bool:
        """Return whether an array lies in several processes in parts."""
        return is_split(like)

    def open_saved(self, name: str, value: Any) -> Opened | None:
        """Take a container apart: a module into its state, which builds a new one, any other into its children."""
        del name
        if value is None or type(value) in (dict, list, tuple):
            return open_plain(value)
        if isinstance(value, nnx.Pytree):
            graphdef, state = nnx.split(value)
            opened = _registered(state)
            build = opened.build
            return Opened("dict", opened.keys, opened.children, lambda made: nnx.merge(graphdef, build(made)))
        if isinstance(value, dict | list | tuple) or jax.tree_util.all_leaves([value]):
            return open_plain(value)
        return _registered(value)

    def describe(self, value: Any) -> ArrayType:
        """Return the type of an array, a key, or an abstract one of either."""
        if isinstance(value, jax.core.Tracer):
            raise TypeError("is traced: nothing is saved or restored inside of jax.jit")
        numpy = type(value) in (np.ndarray, np.memmap) or isinstance(value, np.generic)
        if not numpy and not isinstance(value, jax.Array | jax.ShapeDtypeStruct):
            raise TypeError(f"is a {type_name(value)}, which no checkpoint holds")
        if isinstance(value, jax.Array) and value.is_deleted():
            raise TypeError("was deleted: it was donated to a jitted function")
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            if is_split(value):
                raise TypeError("are PRNG keys that lie in several processes in parts; replicate them first")
            words = jax.eval_shape(jax.random.key_data, value)
            return ArrayType("uint32", words.shape, _implementation(value.dtype))
        if str(value.dtype) not in DTYPES:
            raise TypeError(f"is an array of {value.dtype}, which no checkpoint holds")
        return ArrayType(str(value.dtype), tuple(value.shape), numpy=numpy)

    def has_value(self, value: Any) -> bool:
        """Return whether a leaf is more than a `jax.ShapeDtypeStruct`."""
        return not isinstance(value, jax.ShapeDtypeStruct)

    def copy(self, values: Mapping[str, Any], spare: Mapping[str, Any]) -> dict[str, Any]:
        """Copy arrays into NumPy's in C order, and keys on their device; parts of arrays stay where they are.

        What a GPU holds becomes read-only arrays in page-locked memory, whatever the spare.
        """
        there = fetched(values.values())
        return {
            name: held_part(value) if is_split(value) else _copied(value, spare.get(name), there.get(id(value)))
            for name, value in values.items()
        }

    def neutral(self, copied: Any) -> NDArray[np.generic]:
        """Return an array, or the words of a key."""
        return np.asarray(jax.random.key_data(copied)) if _is_key(copied) else np.asarray(copied)

    def write(
        self, draft: Path, parts: Iterable[SavedPart], values: Mapping[str, Any], texts: Mapping[str, str]
    ) -> Written:
        """Have Orbax write each part, or several as the items of a checkpoint of its manager."""
        return write_parts(draft, list(parts), values, texts)

    def begin_together(self, draft: Path, parts: Iterable[SavedPart], values: Mapping[str, Any]) -> JointOrbaxWrite:
        """Have Orbax begin to write the same together, each process the shards that it holds."""
        return JointOrbaxWrite(draft, list(parts), values)

    def read(
        self, path: Path, parts: Iterable[SavedPart], names: set[str], likes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Read arrays as NumPy's, of the very type that was saved, and the words of keys; parts on devices."""
        kinds = {name: kind for part in parts for name, kind in part.arrays().items() if name in likes}
        split = {name for name, kind in kinds.items() if _held_type(np.dtype(kind.dtype)) == np.dtype(kind.dtype)}
        try:
            return read_parts(path, parts, names, split, partial(read_shards, likes=likes))
        except CheckpointError:
            raise
        except Exception as error:  # TensorStore has no common error for a damaged file
            raise CheckpointError(f"{path} cannot be restored: {error}") from error

    def adopt(self, array: NDArray[np.generic]) -> Any:
        """Return the array itself: those that are read are NumPy's."""
        return array

    def place(self, value: Any, to: ArrayType, permute: tuple[int, ...], like: Any) -> Any:
        """Return a leaf with the type of the template's, on the devices and with the sharding of the template's."""
        dtype = np.dtype(to.dtype)
        if isinstance(value, HeldArray):
            return _converted(value.live, dtype)
        array = np.asarray(value) if isinstance(value, np.ndarray) else np.asarray(value, dtype)
        if to.key:
            return _placed(jax.random.wrap_key_data(array, impl=to.key), like)
        if permute:
            array = array.transpose(permute)
        array = np.ascontiguousarray(array).reshape(to.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            array = array if array.dtype == dtype else array.astype(dtype)
        if isinstance(like, np.generic):
            return array[()]
        if isinstance(like, np.ndarray):
            return array
        if (held := _held_type(dtype)) != dtype:
            raise TypeError(f"is {to}, which JAX holds only with jax_enable_x64; here it would become {held}")
        return _placed(array, like)

    def raw(self, value: Any, kind: ArrayType) -> Any:
        """Return a NumPy array, or a typed key; so no type depends on whether 64 bits are enabled."""
        if not kind.key:
            return value
        try:
            return jax.random.wrap_key_data(value, impl=kind.key)
        except (TypeError, ValueError) as error:
            raise TypeError(f"is no PRNG key: {error}") from error

    def reason(self, error: BaseException, target: Path) -> str:
        """Return in one line why Orbax failed."""
        return reason(error, "write", target)


def _registered(value: Any) -> Opened:
    """Take apart a node that is registered with JAX, by one level."""
    children, structure = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda one: one is not value)
    keys = tuple(key_of(path[0]) for path, _ in children)
    named = all(isinstance(path[0], jax.tree_util.DictKey) for path, _ in children)
    kind = "" if named else type_name(value)
    build = structure.unflatten
    return Opened("dict" if named else "fields", keys, [child for _, child in children], build, kind)


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def _implementation(dtype: Any) -> str:
    """Return the name of the implementation of keys of a type."""
    for name in KEYS:
        if jax.eval_shape(lambda name=name: jax.random.key(0, impl=name)).dtype == dtype:
            return name
    raise TypeError(f"is a PRNG key of {dtype}; known are {', '.join(KEYS)}")


def _copied(value: Any, spare: Any, there: NDArray[Any] | None) -> Any:
    if there is not None:
        return there
    if _is_key(value):
        words = np.array(jax.random.key_data(value))
        return jax.random.wrap_key_data(words, impl=_implementation(value.dtype))
    host = np.asarray(value)
    if not isinstance(spare, np.ndarray) or (spare.shape, spare.dtype) != (host.shape, host.dtype):
        return np.array(host, order="C")
    np.copyto(spare, host)
    return spare


def _held_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that JAX makes of one: narrower, where 64 bits are not enabled."""
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def _converted(value: jax.Array, dtype: np.dtype[Any]) -> jax.Array:
    """Convert an array that lies in several processes, each what it holds, as NumPy rounds."""
    if value.dtype == dtype:
        return value
    if (held := _held_type(dtype)) != dtype:
        raise TypeError(f"would become {dtype}, which JAX holds only with jax_enable_x64; here it is {held}")
    own = {shard.device: np.asarray(shard.data) for shard in value.addressable_shards}
    with np.errstate(over="ignore", invalid="ignore"):
        arrays = [jax.device_put(array.astype(dtype), device) for device, array in own.items()]
    return jax.make_array_from_single_device_arrays(value.shape, value.sharding, arrays)


def _placed(value: Any, like: Any) -> jax.Array:
    """Put an array where a leaf of a template is, or is to be; one that is nowhere in particular stays that way."""
    sharding = getattr(like, "sharding", None)
    if isinstance(like, jax.Array) and not like.committed:
        sharding = None
    sharding = _concrete(sharding)
    try:
        if sharding is not None and not sharding.is_fully_addressable:
            return _laid(value, sharding)
        return jax.device_put(value, sharding)
    except (ValueError, AssertionError) as error:  # JAX asserts that an explicit one has no more axes than the array
        where = f"{list(np.shape(value))} cannot lie as the sharding of the template says, {sharding}"
        raise TypeError(f"{where}: {error}") from error


def _laid(value: Any, sharding: jax.sharding.Sharding) -> jax.Array:
    """Put what this process needs of a whole array, or of a key, on its devices; other processes are not asked."""
    if not _is_key(value):
        return laid_like(np.asarray(value), sharding)
    if not sharding.is_fully_replicated:
        raise TypeError("are PRNG keys, which are not restored in parts: replicate those of the template")
    return replicated_key(value, sharding.device_set)


def _concrete(sharding: Any) -> Any:
    """Return a sharding over devices: an abstract mesh, as `nnx.eval_shape` leaves it, is that of the context.

    Raises:
        TypeError: No mesh is set, or one of other axes.
    """
    mesh = getattr(sharding, "mesh", None)
    if not isinstance(mesh, jax.sharding.AbstractMesh) or mesh.empty:
        return None if isinstance(mesh, jax.sharding.AbstractMesh) else sharding
    here = jax.sharding.get_mesh()
    if not here.empty and here.shape_tuple == mesh.shape_tuple:
        return jax.sharding.NamedSharding(here, sharding.spec)
    set_now = f"the mesh that is set has the axes {_axes(here)}" if not here.empty else "no mesh is set here"
    raise TypeError(
        f"has a sharding over an abstract mesh of the axes {_axes(mesh)}, and {set_now}: restore inside of "
        "`with jax.set_mesh(mesh):`, or make the template with nnx.get_abstract_model(create, mesh)"
    )


def _axes(mesh: Any) -> str:
    return ", ".join(f"{name}={size}" for name, size in mesh.shape_tuple)

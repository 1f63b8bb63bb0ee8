"""Leaves of JAX's arrays and keys, and of whole trees of them; no buffer is held, so donation works as before.

An array cannot be changed, so two names of one array are no tie: each path has the leaf. A NumPy array of the same
values has the same leaf: after a restore one stands for the other until the first step.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from parity.capture import Extent, Leaf, Role, Walk, array_leaf, component_from_name, digest_of, slot_component

__all__ = ["add_array", "array", "child", "component_of", "copy_of", "is_number", "key_bytes", "raw_value", "tree"]

_EMA = re.compile(r"(^|_)avg_(params|weights|model)")
_ROOTS = tuple(
    (component, re.compile(pattern))
    for component, pattern in (
        ("best", r"best(_\w+)?"),
        ("gradients", r"(\w+_)?(grads?|gradients?)|(\w+_)?accum\w*"),
        ("optimizer.state", r"(\w+_)?opt(im|imizer)?_states?"),
        ("model.buffers", r"batch_stats|model_state|(\w+_)?buffers"),
        ("model.params", r"params|parameters|trainable(_params)?|model_params|theta"),
    )
)
"""What the outermost word of a path that matches in full says about everything inside: a layer's name says less."""
_SLOTS = frozenset(
    ("m", "v", "mu", "nu", "exp_avg", "exp_avg_sq", "momentum", "velocity", "trace", "first_moment", "second_moment")
)
_SLOT_NAMES = {"m": "mu", "v": "nu", "first_moment": "mu", "second_moment": "nu"}


def component_of(path: str) -> str:
    """Return the component that the words of a path point to; those of containers count more than those inside.

    Example:
        >>> component_of("variables.params.BatchNorm_0.scale"), component_of("adam.m.w1")
        ('model.params', 'optimizer.first_moment')
    """
    named = component_from_name(path)
    if named in ("ema", "optimizer.master_params"):
        return named
    words = [word.lower() for word in re.split(r"[^0-9A-Za-z_]+", path) if word and not word.isdigit()]
    if any(_EMA.search(word) for word in words):
        return "ema"
    for word in words[:-1]:
        if word in _SLOTS:
            return slot_component(_SLOT_NAMES.get(word, word))
    for word in words:
        for component, pattern in _ROOTS:
            if pattern.fullmatch(word):
                return component
    return named


def array(walk: Walk, path: str, value: jax.Array) -> None:
    """Show an array of unknown purpose: its path is all that says what it is.

    Args:
        walk: Takes its leaf.
        path: Path of the array, as its owner would write it.
        value: The array.
    """
    add_array(walk, path, value, component_of(path), "scalar" if value.ndim == 0 else "array")


def add_array(walk: Walk, path: str, value: jax.Array, component: str, role: Role) -> None:
    """Add the leaf of an array; a key is a stream in any container, a tracer is nothing.

    Args:
        walk: Takes the leaf.
        path: Path of the array, as its owner would write it.
        value: The array; one that was donated is a leaf without a value.
        component: What it is in the field's words; of a key it is `rng` and the path.
        role: Its role; of a key it is `stream`.
    """
    if isinstance(value, jax.core.Tracer):
        return
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        shape = "x".join(map(str, value.shape))
        kind = f"{value.dtype.name}[{shape}]"
        words = key_bytes(value)
        leaf = Leaf("stream", f"rng.{path}", *((kind, digest_of(words)) if words is not None else ("deleted", "")))
        walk.add(path, leaf, lambda: np.frombuffer(words or b"", np.uint32))
        return
    if _is_raw_key(value):
        role, component = "stream", f"rng.{path}"
    if value.is_deleted():
        walk.add(path, Leaf(role, component, "deleted", ""), lambda: None)
        return
    kind, digest = _digested(walk, value)
    walk.add(path, Leaf(role, component, kind, digest, copy_of(value), _extent(value)), lambda: _values(value))


def _extent(value: jax.Array) -> Extent | None:
    """Return which elements of an array of several processes are here, in the order of `_host`."""
    if not copy_of(value):
        return None
    whole = tuple((0, size) for size in value.shape)
    boxes = (whole,) if value.is_fully_replicated else tuple(box for _, (box, _) in sorted(_parts(value).items()))
    return Extent(tuple(value.shape), boxes)


def copy_of(value: jax.Array) -> str:
    """Return what all copies of an array's part in this process give; empty of an array of one process.

    Processes whose devices hold the same elements of one array hold the same values, whatever their devices.
    """
    sharding = value.sharding
    if len({device.process_index for device in sharding.device_set}) < 2:
        return ""
    return f"{sorted(device.id for device in sharding.device_set)} {sorted(_parts(value))}"


def _parts(value: jax.Array) -> dict[str, tuple[tuple[tuple[int, int], ...], Any]]:
    """Return each part of an array that this process holds, once, by the text of its box; with the box."""
    boxes = [[one.indices(n)[:2] for one, n in zip(shard.index, value.shape, strict=True)]
             for shard in value.addressable_shards]  # fmt: skip
    return {str(box): (tuple(box), shard.data) for box, shard in zip(boxes, value.addressable_shards, strict=True)}


def key_bytes(value: jax.Array) -> bytes | None:
    """Return the words of typed or raw keys; None if they were donated."""
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)  # of a concrete key: the array inside, nothing is compiled
    return None if value.is_deleted() else _host(value).tobytes()


def _is_raw_key(value: Any) -> bool:
    """Return whether an array is a key without its type: two or four words are, whatever they are called."""
    return value.dtype == np.uint32 and value.shape in ((2,), (4,))


_digests: weakref.WeakKeyDictionary[Walk, dict[int, tuple[jax.Array, str, str]]] = weakref.WeakKeyDictionary()
"""What one walk has read already: a state and its parts are often in reach by several names."""


def _digested(walk: Walk, value: jax.Array) -> tuple[str, str]:
    known = _digests.setdefault(walk, {})
    found = known.get(id(value))
    if found is None:
        leaf = array_leaf("array", "", _host(value))
        kind = leaf.kind
        if len(value.sharding.device_set) > 1:
            kind += f"@{_sharding(value.sharding)}"
        found = known[id(value)] = (value, kind, leaf.digest)
    return found[1], found[2]


def _sharding(sharding: Any) -> str:
    if isinstance(sharding, jax.sharding.NamedSharding):
        return f"{dict(sharding.mesh.shape)}{sharding.spec}".replace(" ", "")
    return str(sharding)


def _host(value: jax.Array) -> np.ndarray[Any, Any]:
    """Return an array's values in C order; on the host a view, which must not outlive the call that asked for it.

    An array that keeps a view cannot be donated, and one that is asked itself keeps its copy: its data is asked.
    """
    if value.is_fully_replicated:
        return np.ascontiguousarray(_pulled(value.addressable_data(0))).reshape(value.shape)
    if not value.is_fully_addressable:
        # the first copy of a part may lie in another process: each part that is here counts once
        return np.concatenate([np.ravel(_pulled(data)) for _, (_, data) in sorted(_parts(value).items())])
    whole = np.empty(value.shape, value.dtype)
    for shard in value.addressable_shards:
        if shard.replica_id == 0:
            whole[shard.index] = _pulled(shard.data)
    return whole


def _pulled(data: jax.Array) -> np.ndarray[Any, Any]:
    with jax.transfer_guard("allow"):  # a guard of the user's is for the user's transfers
        return np.asarray(data)


def _values(value: jax.Array) -> np.ndarray[Any, Any]:
    """Return a copy of the values; narrow floats as float32."""
    found = _host(value)
    narrow = jax.dtypes.issubdtype(found.dtype, np.floating) and found.dtype.itemsize < 4
    return found.astype(np.float32) if narrow else found.copy()


def child(path: str, key: Any) -> str:
    """Return the path of what a mapping holds.

    Args:
        path: Path of the mapping.
        key: Key in it.

    Example:
        >>> child("state", "params"), child("state", 0), child("state", "a b")
        ('state.params', 'state[0]', "state['a b']")
    """
    return f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[{key!r}]"


def is_number(value: Any) -> bool:
    """Return whether a value is a number of Python or NumPy."""
    return isinstance(value, bool | int | float | complex | np.generic)


def raw_value(value: Any) -> Any:
    """Return what a variable of Flax NNX holds; anything else as it is."""
    read = getattr(type(value), "get_raw_value", None)
    return value if read is None else read(value)


def tree(walk: Walk, path: str, value: Any, component: str, role: Role = "state") -> None:
    """Show a tree whose purpose is known: all arrays and numbers in it are of one component.

    A tuple with named fields inside an optimizer names its slots; what is no tree is left to the other kinds.

    Args:
        walk: Takes the leaves.
        path: Path of the tree, as its owner would write it.
        value: The tree, or a single array or number; None has no leaf.
        component: What it is in the field's words, such as `model.params`.
        role: Role of its leaves; keys are streams all the same.
    """
    value = raw_value(value)
    if value is None:
        return
    if isinstance(value, jax.Array):
        add_array(walk, path, value, component, role)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        raw = _is_raw_key(value)
        walk.array(path, value, f"rng.{path}" if raw else component, "stream" if raw else role)
    elif is_number(value):
        # as JAX takes it: a count that was restored as a Python number is the same count
        known = isinstance(value, np.generic) or (isinstance(value, int) and abs(value) >= 1 << 31)
        walk.array(path, np.asarray(value, None if known else _NUMBERS[type(value)]), component, role)
    elif _optax(value):
        walk.inside(path, value)
    elif isinstance(value, Mapping):
        for key in value:
            tree(walk, child(path, key), value[key], component, role)
    elif isinstance(value, list | tuple):
        for name, item in _items(path, value):
            field = name.rpartition(".")[2]
            named = hasattr(value, "_fields") and component.startswith("optimizer.")
            tree(walk, name, item, slot_component(field) if named else component, role)
    else:
        _node(walk, path, value, component, role)


_NUMBERS = {bool: np.bool_, int: np.int32, float: np.float32, complex: np.complex64}


def _optax(value: Any) -> bool:
    return isinstance(value, tuple) and type(value).__module__.partition(".")[0] == "optax"


def _items(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    fields = getattr(type(value), "_fields", None)
    for at, item in enumerate(value):
        yield (f"{path}.{fields[at]}" if fields else f"{path}[{at}]"), item


def _node(walk: Walk, path: str, value: Any, component: str, role: Role) -> None:
    """Show a class that is registered as a node of trees by what it flattens to."""
    inside, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda one: one is not value)
    if len(inside) == 1 and inside[0][1] is value:  # a leaf to JAX too
        walk.visit(path, value)
        return
    for keys, item in inside:
        tree(walk, path + jax.tree_util.keystr(keys), item, component, role)

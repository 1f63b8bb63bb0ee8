"""Trees in every type that Flax saves as MessagePack, and what `flax.serialization` makes of them."""

import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from flax import config, serialization
from flax.training import checkpoints

from parity.formats import InMemory, Tree, map_leaves

DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "int4", "uint4"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float8_e8m0fnu"),
)


def array(dtype: str, *shape: int) -> Any:
    """Return an array of odd bits."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    most = 2 if dtype == "bool" else 8 if dtype.endswith("int4") else 120
    count = int(np.prod(shape)) * kind.itemsize
    return np.random.default_rng(count).integers(0, most, count, np.uint8).view(kind).reshape(shape)


def every_type() -> dict[str, Any]:
    """Return arrays of every type and odd layouts, scalars, and containers as users nest them."""
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    return {
        **{dtype: array(dtype, 3, 5) for dtype in DTYPES},
        **{"0-d": np.array(2.5), "empty": np.zeros((0, 3), np.int16), "transposed": base.T, "strided": base[:, ::2]},
        **{"none": None, "on": True, "off": False, "text": "\u03b8 = 1", "raw": b"\0\xff", "complex": 1.5 - 2j},
        **{f"n{n}": n for bits in (5, 7, 8, 15, 16, 31, 32) for n in (1 << bits, (1 << bits) - 1, -(1 << bits) - 1)},
        **{f"n{n}": n for n in (0, -1, -32, -128, (1 << 64) - 1, -(1 << 63))},
        **{"x": 0.1, "nan": float("nan"), "inf": float("-inf"), "k" * 300: "t" * 70_000, "": b"b" * 300},
        **{"list": [base, {"a": 1}, []], "tuple": (None, ({}, base[0])), "many": {str(n): n for n in range(40)}},
        7: "an integer key",
    }


def every_length() -> dict[str, Any]:
    """Return arrays, texts and bytes on both sides of the lengths at which their headers change."""
    near = [n for length in (1, 16, 32, 256, 65536) for n in range(length - 30, length + 2) if n >= 0]
    return {f"{n}": [array("uint8", n), "t" * n, b"b" * n, {str(m): m for m in range(min(n, 300))}] for n in near}


def lazy(tree: Tree) -> Tree:
    """Return a tree with its arrays as those of a checkpoint."""
    return map_leaves(tree, lambda _, leaf: InMemory(leaf) if isinstance(leaf, np.ndarray) else leaf)


def loaded(tree: Tree) -> Tree:
    """Return a tree with its arrays in memory."""
    return map_leaves(tree, lambda _, leaf: leaf.load() if hasattr(leaf, "load") else leaf)


def same(a: Any, b: Any) -> bool:
    """Return whether two trees are equal to the last bit, their dtypes and the kinds of their values too."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | np.generic):
        return (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())
    return type(a) is type(b) and repr(a) == repr(b)


def saved(directory: Path, tree: Any, step: float, **options: Any) -> Path:
    """Save a tree by `flax.training.checkpoints` as files, without Orbax."""
    config.update("flax_use_orbax_checkpointing", False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return Path(checkpoints.save_checkpoint(directory, tree, step, keep=99, **options))


def packed(value: Any) -> bytes:
    """Return what Flax writes for a state dict."""
    data = serialization.msgpack_serialize(value)
    assert isinstance(data, bytes)
    return data

"""Trees of everything that is saved, for either side, and their comparison to the last bit and type."""

import dataclasses
import importlib
import struct
from collections import Counter, OrderedDict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch

__all__ = ["Config", "Pair", "array", "everything", "kind_of", "same", "side_of"]

NUMPY = ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32", "complex64")
"""Types of arrays that both frameworks and NumPy have."""
SMALL = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


class Pair(NamedTuple):
    """A named tuple, as Optax's states are."""

    first: Any
    second: Any = None


@dataclasses.dataclass(frozen=True)
class Config:
    """A dataclass that no framework knows."""

    weights: Any
    rates: dict[str, float]
    note: str | None = None


def side_of(side: str) -> Any:
    """Return the package of a side."""
    return importlib.import_module(f"{side}_side")


def array(side: str, values: Any, dtype: str = "float32") -> Any:
    """Return an array of a side."""
    held = np.asarray(values)
    if side == "jax":
        return jnp.asarray(held.astype(getattr(ml_dtypes, dtype, None) or dtype))
    return torch.from_numpy(np.array(held)).to(getattr(torch, dtype))


def everything(side: str, seed: int = 0) -> dict[str, Any]:
    """Return a tree with every kind of container and leaf that a side saves."""
    draws = np.random.default_rng(seed)

    def some(*shape: int, dtype: str = "float32") -> Any:
        return array(side, draws.normal(size=shape) * 3, dtype)

    own: dict[str, Any] = {
        "typed key": jax.random.key(seed),
        "typed keys": jax.random.split(jax.random.key(seed, impl="rbg"), 3),
        "raw key": jax.random.PRNGKey(seed),
    }
    if side == "torch":
        own = {"float64": some(2, dtype="float64"), "parameter": torch.nn.Parameter(some(2))}
    return {
        "types": {name: some(3, dtype=name) for name in (*NUMPY, *SMALL)},
        "own": own,
        "large": some(64, 65),
        "no axes": some(),
        "no elements": [some(0, 3), some(2), some(0), 2**70, some(3)],
        "odd keys": {key: some(2) for key in ("..", "a/b", "a/../c", "ü", " ", "a\nb", "%2F", ".zarray", "a.b", "0")},
        "numpy": [draws.normal(size=(2, 3)), np.float64(seed), np.asfortranarray(draws.normal(size=(3, 4)))],
        "numbers": [seed, -(2**40), 2**70, 0.1, float("nan"), float("-inf"), -0.0, True, 1 + 2j, "text", None],
        "empty": [{}, [], (), Pair(None)],
        "pair": Pair(some(2), (some(1), None)),
        "config": Config(some(70, 70), {"lr": 1e-3}),
        "counter": Counter("aab"),
        "ordered": OrderedDict(z=some(1), a=some(2)),
        7: {"number as key": (some(2),)},
    }


def kind_of(value: Any) -> Any:
    """Return everything about a leaf but its values."""
    if isinstance(value, jax.Array | np.ndarray | np.generic | torch.Tensor):
        requires = value.requires_grad if isinstance(value, torch.Tensor) else None
        return type(value), str(value.dtype), tuple(value.shape), requires
    return type(value)


def same(ours: Any, theirs: Any, at: str = "") -> list[str]:
    """Return where two trees differ: in a type, a key, or one bit."""
    if kind_of(ours) != kind_of(theirs):
        return [f"{at}: {kind_of(ours)} became {kind_of(theirs)}"]
    if isinstance(ours, dict):
        keys = [] if list(ours) == list(theirs) else [f"{at}: keys {list(ours)} became {list(theirs)}"]
        return keys or [d for key in ours for d in same(ours[key], theirs[key], f"{at}.{key}")]
    if isinstance(ours, list | tuple):
        if len(ours) != len(theirs):
            return [f"{at}: {len(ours)} became {len(theirs)}"]
        return [d for i, pair in enumerate(zip(ours, theirs, strict=True)) for d in same(*pair, f"{at}.{i}")]
    if dataclasses.is_dataclass(ours):
        return same(vars(ours), vars(theirs), at)
    return [] if bits(ours) == bits(theirs) else [f"{at}: {ours!r} became {theirs!r}"]


def bits(value: Any) -> bytes:
    """Return the bytes of a leaf."""
    if isinstance(value, torch.Tensor):
        return (
            b"" if not value.numel() else value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(value)).tobytes()
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return np.asarray(value).tobytes()
    return struct.pack("<d", value) if isinstance(value, float) else repr(value).encode()

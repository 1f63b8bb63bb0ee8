"""Compare what a file holds with what it should: containers, keys, types, shapes and settings.

`load_state_dict` takes a good deal on trust: an optimizer takes over any settings and entries that a file has, a
scheduler overwrites its own attributes. So nothing reaches them that this module has not found to be alike.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from parity.errors import StateError

__all__ = ["require_alike"]

FREE = re.compile(
    r"optimizer\.param_groups\.\d+\.lr"
    r"|scheduler\.(last_epoch|_step_count|_last_lr\.\d+|_get_lr_called_within_step|_is_initial)"
    r"|scaler\.(scale|_growth_tracker)"
    r"|rng\.(python|numpy)\..*"
)
"""Scalars that change while training; every other one is a setting, and must be this run's."""

DEFAULTED = re.compile(r"optimizer\.param_groups\.\d+|scheduler")
"""Where a key may be missing: an older PyTorch did not have that setting, and this one's value stands."""


def require_alike(found: Any, like: Any, path: str = "") -> None:
    """Check that a loaded value has the structure of another one.

    Args:
        found: What a file holds.
        like: What this run would have written, in types, keys and shapes.
        path: Where in the state this is, for messages.

    Raises:
        StateError: Something is missing, unexpected, of another type or shape, or set otherwise.
    """
    if isinstance(like, Tensor):
        _require_tensor(found, like, path)
    elif isinstance(like, dict):
        _require(isinstance(found, dict), path, f"expected a mapping, got {type(found).__name__}")
        missing = [] if DEFAULTED.fullmatch(path) else sorted(like.keys() - found.keys(), key=str)
        for key in missing:
            raise StateError(_at(path, key), "is missing")
        for key in found:
            _require(key in like, _at(path, key), "unexpected: this run has no such state")
            require_alike(found[key], like[key], _at(path, key))
    elif isinstance(like, list | tuple):
        alike = type(found) is type(like) and len(found) == len(like)
        _require(alike, path, f"expected a {type(like).__name__} of {len(like)}, got {_short(found)}")
        for number, (item, wanted) in enumerate(zip(found, like, strict=True)):
            require_alike(item, wanted, _at(path, number))
    elif FREE.fullmatch(path):
        alike = type(found) is type(like) or {type(found), type(like)} == {float, type(None)}
        _require(alike, path, f"expected {type(like).__name__}, got {_short(found)}")
    else:
        alike = type(found) is type(like) and bool(found == like)
        _require(alike, path, f"this run has {_short(like)}, the checkpoint {_short(found)}")


def _require_tensor(found: Any, like: Tensor, path: str) -> None:
    expected = f"{like.dtype} {tuple(like.shape)}"
    _require(type(found) is Tensor, path, f"expected a tensor {expected}, got {_short(found)}")
    got = f"{found.dtype} {tuple(found.shape)}"
    _require(got == expected and found.layout == torch.strided, path, f"expected {expected}, got {got}")
    own = found.is_contiguous() and found.untyped_storage().nbytes() == found.numel() * found.element_size()
    _require(own, path, "does not have its bytes to itself, in order")


def _require(condition: bool, path: str, problem: str) -> None:
    if not condition:
        raise StateError(path, problem)


def _at(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _short(value: Any) -> str:
    """Return a value for a message, shortened where it is long."""
    if isinstance(value, bool | float | str | int) or value is None:
        text = repr(value) if not isinstance(value, int) or abs(value) < 1 << 64 else "a huge integer"
        return text if len(text) <= 60 else text[:57] + "..."
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, list | tuple | dict) else "")

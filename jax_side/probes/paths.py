"""Paths of trees of JAX as names, and the arguments of a call that say its mode."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

__all__ = ["keys_of", "modes_of", "parameters_of"]

_MODES = {"train": False, "training": False, "is_training": False, "deterministic": True,
          "use_running_average": True}  # fmt: skip
"""Arguments of a call that say the mode, to their value in evaluation."""


def keys_of(path: Sequence[Any]) -> str:
    """Return a path of a tree as keys joined by dots."""
    words = []
    for key in path:
        word = next((getattr(key, one) for one in ("key", "idx", "name") if hasattr(key, one)), key)
        words.append(str(word))
    return ".".join(words)


def parameters_of(function: Any) -> list[str]:
    """Return the names of what a function takes; none where it does not say."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def modes_of(function: Any) -> dict[str, bool]:
    """Return the arguments of a call that put it into evaluation."""
    wanted = parameters_of(function)
    return {name: value for name, value in _MODES.items() if name in wanted}

"""A module that others keep something in."""

from __future__ import annotations

from typing import Any

smoothed: Any = None
_hidden: Any = None


def get() -> Any:
    """Return what was put."""
    return _hidden


def put(value: Any) -> None:
    """Take it."""
    global _hidden
    _hidden = value

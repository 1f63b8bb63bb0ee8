"""The mark: the one line that a training loop needs to be seen by a check; outside of a check it does nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, Protocol

__all__ = ["Listener", "activate", "mark"]


class Listener(Protocol):
    """What takes the marks while a check runs."""

    def mark_frame(self, step: int, frame: FrameType, state: Mapping[str, Any]) -> None:
        """Take a mark: the completed steps, the frame that called, and what it said its state is."""


_active: Listener | None = None


def mark(step: int, **state: Any) -> None:
    """Tell a resume check that a loop has completed a number of steps; outside of a check it does nothing.

    Put it where the next step begins, once per step. The variables of the calling function are seen, what its `self`
    reaches, and the variables of its callers up to the function that is checked.

    Args:
        step: Completed steps: 0 before the first.
        state: What the state is, by name; then only that is looked at, and the generators all code shares.

    Raises:
        MarkError: Within a check, a step that is no whole number or goes backwards.

    Example:
        >>> for step in range(3):
        ...     mark(step)
    """
    if _active is None:
        return
    _active.mark_frame(step, sys._getframe(1), state)


def activate(listener: Listener | None) -> Listener | None:
    """Make a listener the one that takes marks; return the one before."""
    global _active
    before, _active = _active, listener
    return before

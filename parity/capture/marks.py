"""The mark: the one line that a training loop needs to be seen by a check; outside of a check it does nothing.

Beside it, two declarations that a loop may make: that a region evaluates, or that it saves, and so trains nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any, Literal, Protocol

__all__ = ["Listener", "Region", "activate", "evaluation", "mark", "saving"]

Region = Literal["evaluation", "save"]


class Listener(Protocol):
    """What takes the marks while a check runs."""

    def mark_frame(self, step: int, frame: FrameType, state: Mapping[str, Any]) -> None:
        """Take a mark: the completed steps, the frame that called, and what it said its state is."""

    def enter_region(self, what: Region, frame: FrameType) -> Callable[[], None]:
        """Take the beginning of a declared region of a frame; what is returned is called at its end."""


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


class _Declared:
    """A region of the loop of which its author says what it is for."""

    def __init__(self, what: Region) -> None:
        self._what: Region = what
        self._leave: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        if _active is not None:
            self._leave.append(_active.enter_region(self._what, sys._getframe(1)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._leave and (leave := self._leave.pop()) is not None and kind is None:
            leave()


def evaluation() -> _Declared:
    """Declare that a region evaluates: it leaves what is trained, the modes and the generators of training alone.

    Within a resume check the state is compared before and after the region, and what it changed is reported as lost.
    Without the declaration a check only lists what a statement changed. Outside of a check it does nothing.

    Example:
        >>> with evaluation():
        ...     accuracy = 0.9
    """
    return _Declared("evaluation")


def saving() -> _Declared:
    """Declare that a region saves: it changes nothing of the live state; see `evaluation`.

    Example:
        >>> with saving():
        ...     pass
    """
    return _Declared("save")

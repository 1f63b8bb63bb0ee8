"""Checks across two trainers as assertions: for tests, with a message that names what differs."""

from __future__ import annotations

from typing import Any

from parity.checks.live import Train
from parity.checks.ports.handover import Convert, hands_over
from parity.checks.ports.twins import twins_agree
from parity.results import Crossing

__all__ = ["CrossingBrokenError", "HandoverBrokenError", "TwinsDifferError", "assert_handover", "assert_twins"]


class CrossingBrokenError(AssertionError):
    """A trainer and its port that do not fit, or of which that cannot be shown.

    Attributes:
        crossing: The whole verdict.
    """

    def __init__(self, crossing: Crossing) -> None:
        self.crossing = crossing
        super().__init__(crossing.text())


class TwinsDifferError(CrossingBrokenError):
    """Two training functions that do not train alike."""


class HandoverBrokenError(CrossingBrokenError):
    """A run that changes where it is handed over."""


for _error in (TwinsDifferError, HandoverBrokenError):
    _error.__module__ = "parity"


def assert_twins(train_a: Train, train_b: Train, *, steps: int, **settings: Any) -> Crossing:
    """Assert that two training functions train alike; arguments as of `twins_agree`.

    Raises:
        TwinsDifferError: They do not, or that cannot be judged; the message has at most 25 lines.
    """
    found = twins_agree(train_a, train_b, steps=steps, **settings)
    if found.verdict != "holds":
        raise TwinsDifferError(found)
    return found


def assert_handover(train_a: Train, train_b: Train, *, convert: Convert, steps: int, **settings: Any) -> Crossing:
    """Assert that a run can be handed from one trainer to the other; arguments as of `hands_over`.

    Raises:
        HandoverBrokenError: It cannot, or that cannot be judged; the message has at most 25 lines.
    """
    found = hands_over(train_a, train_b, convert=convert, steps=steps, **settings)
    if found.verdict != "holds":
        raise HandoverBrokenError(found)
    return found

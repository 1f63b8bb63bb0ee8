"""Checks across two trainers as assertions: for tests, with a message that names what differs."""

from __future__ import annotations

from typing import Any

from parity.checks.ports.handover import Convert, hands_over
from parity.checks.ports.twins import twins_agree
from parity.checks.running import Train
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
    """Assert that two training functions train alike.

    Args:
        train_a: The trainer that counts as the reference.
        train_b: Its port.
        steps: Completed steps to train, at least 2.
        settings: Further arguments of `twins_agree`: `rules`, `precision`, `mode`, `options`, `seeds`, `name`,
            `workdir`.

    Returns:
        The verdict, which is `holds`.

    Raises:
        TwinsDifferError: The verdict is `broken` or `inconclusive`; the message has at most 25 lines.
        SpecError: An argument that cannot be used.
        TrainerError: A function that makes no marks, or fails.
        MarkError: A mark that is no whole number or goes backwards.

    Example:
        >>> import numpy as np
        >>> def train(folder, steps):
        ...     weights = np.array([1.0, 2.0, 3.0])
        ...     for step in range(steps):
        ...         yield step
        ...         weights -= 0.1 * weights
        >>> def port(folder, steps):
        ...     kernel = np.array([1.0, 2.0, 3.0])
        ...     for step in range(steps):
        ...         yield step
        ...         kernel -= np.float32(0.1) * kernel  # 0.1 is rounded to float32
        >>> try:
        ...     assert_twins(train, port, steps=6, mode="inline")
        ... except TwinsDifferError as error:
        ...     print(error.crossing.suspects[0].path)
        weights (port: kernel)
    """
    found = twins_agree(train_a, train_b, steps=steps, **settings)
    if found.verdict != "holds":
        raise TwinsDifferError(found)
    return found


def assert_handover(train_a: Train, train_b: Train, *, convert: Convert, steps: int, **settings: Any) -> Crossing:
    """Assert that a run can be handed from one trainer to the other.

    Args:
        train_a: The trainer that begins.
        train_b: The one that takes over.
        convert: Called as `convert(source, target)` with two folders.
        steps: Completed steps at which the run ends, at least 2.
        settings: Further arguments of `hands_over`: `stop_at`, `back`, `rules`, `precision`, `mode`, `options`,
            `seeds`, `name`, `workdir`.

    Returns:
        The verdict, which is `holds`.

    Raises:
        HandoverBrokenError: The verdict is `broken` or `inconclusive`; the message has at most 25 lines.
        SpecError: An argument that cannot be used.
        TrainerError: A function that makes no marks, saves nothing before the kill, or fails; a conversion that
            fails or writes nothing.
        MarkError: A mark that is no whole number or goes backwards.

    Example:
        >>> import numpy as np
        >>> def trainer(name):
        ...     def train(folder, steps):
        ...         weights, step = np.array([1.0, 2.0, 3.0]), 0
        ...         if (folder / name).exists():
        ...             *weights, step = np.load(folder / name)
        ...         weights, step = np.array(weights), int(step)
        ...         for step in range(step, steps):
        ...             yield step
        ...             weights -= 0.1 * weights
        ...             np.save(folder / name, [*weights, step + 1])
        ...     return train
        >>> def convert(source, target):
        ...     np.save(target / "theirs.npy", np.load(source / "ours.npy"))
        >>> ours, theirs = trainer("ours.npy"), trainer("theirs.npy")
        >>> assert_handover(ours, theirs, convert=convert, steps=6, mode="inline").handovers
        (3,)
    """
    found = hands_over(train_a, train_b, convert=convert, steps=steps, **settings)
    if found.verdict != "holds":
        raise HandoverBrokenError(found)
    return found

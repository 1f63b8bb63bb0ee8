"""Resume checks as assertions: for tests, with a message that names what was lost."""

from __future__ import annotations

from typing import Any

from parity.checks.live.check import resumes
from parity.checks.live.inline import Train
from parity.results import Resumption

__all__ = ["ResumeBrokenError", "assert_resumes"]


class ResumeBrokenError(AssertionError):
    """A training function that does not resume exactly, or of which that cannot be shown.

    Attributes:
        resumption: The whole verdict.
    """

    def __init__(self, resumption: Resumption) -> None:
        self.resumption = resumption
        super().__init__(resumption.text())


ResumeBrokenError.__module__ = "parity"


def assert_resumes(train: Train, *, steps: int, stop_at: int | None = None, **settings: Any) -> Resumption:
    """Assert that a training function resumes exactly; arguments as of `resumes`.

    Raises:
        ResumeBrokenError: It does not, or that cannot be judged; the message has at most 25 lines.
    """
    found = resumes(train, steps=steps, stop_at=stop_at, **settings)
    if found.verdict != "holds":
        raise ResumeBrokenError(found)
    return found

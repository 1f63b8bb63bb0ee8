"""What runs a training function once, in this process or in one of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from parity.checks.running.request import Request
from parity.checks.running.trace import Trace

__all__ = ["Runner"]


class Runner(Protocol):
    """Runs a training function once, in this process or in one of its own."""

    mode: str
    parallel: int
    """Runs that may take place at once."""
    ranks: int
    """Processes that train together in each run."""

    def run(self, folder: Path, request: Request) -> Trace:
        """Run it from its start, or from what the folder holds, to its end or to a kill.

        Args:
            folder: The folder that the function is given; made if there is none.
            request: How far it runs, and what is looked at.

        Raises:
            MarkError: A mark is no whole number or goes backwards.
            TrainerError: A process cannot be started any more.
        """

    def stop(self) -> None:
        """End the runs that take place, and refuse others: for a check that does not come to its end."""

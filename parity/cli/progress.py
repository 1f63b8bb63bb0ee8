"""The progress display of `parity train`: a bar on a terminal, plain lines elsewhere and with NO_COLOR."""

from __future__ import annotations

import sys
import time

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from parity.contract import StepRecord
from parity.report import open_console

__all__ = ["Progress"]

LINE_SECONDS = 10.0
"""Shortest time between two progress lines, where there is no terminal."""


class Progress:
    """A display of the steps of a run; a context manager.

    Args:
        steps: Step after which the run stops.
        shown: Whether to show the bar; False for all but one of several processes.
    """

    def __init__(self, steps: int, *, shown: bool = True) -> None:
        self._console = open_console(sys.stdout)
        self._steps, self._last = steps, time.monotonic()
        self._bar: Bar | None = None
        if shown and self._console.is_terminal and self._console.color_system is not None:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, console=self._console)
            self._task = self._bar.add_task("training", total=steps)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, line: str) -> None:
        """Print one line, above the bar if there is one."""
        self._console.print(line, markup=False, soft_wrap=True)

    def watch(self, record: StepRecord) -> None:
        """Show a completed step."""
        if self._bar is not None:
            self._bar.update(self._task, completed=record.step, description=f"loss {record.loss:.4g}")
        elif time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            rate = f"{1 / record.seconds:.4g} steps/s" if record.seconds else ""
            self.say(f"step {record.step}/{self._steps} loss {record.loss:.6g} {rate}")

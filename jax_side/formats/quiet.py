"""Quiet failures of Orbax: what it logs and raises late, in threads of its own, about a failure reported already."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["prepare_process"]


def prepare_process() -> None:
    """Keep Orbax from writing tracebacks of failures that are reported in one line anyway.

    Orbax makes its directories concurrently. When one cannot be made, it closes its event loop under the others, and
    asyncio reports these later, if they failed in time. It writes its arrays concurrently too, and TensorStore
    reports those that end after the first failure to the closed loop.
    """
    logging.getLogger("absl").addFilter(_not_of_orbax)
    logging.getLogger("asyncio").addFilter(_not_of_orbax)
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")  # of a save that was given up
    if not isinstance(sys.unraisablehook, _WithoutLateReports):
        sys.unraisablehook = _WithoutLateReports(sys.unraisablehook)


@dataclass(frozen=True)
class _WithoutLateReports:
    """A hook for exceptions that nobody can take, without those of reports to an event loop that is closed.

    A report comes from a thread below Python: the first frame of its traceback is the loop's own.
    """

    others: Callable[[sys.UnraisableHookArgs], object]

    def __call__(self, raised: sys.UnraisableHookArgs) -> None:
        error = raised.exc_value
        frames = error.__traceback__ if isinstance(error, RuntimeError) else None
        first = frames.tb_frame.f_code.co_name if frames is not None else ""
        if first != "call_soon_threadsafe" or str(error) != "Event loop is closed":
            self.others(raised)


def _not_of_orbax(record: logging.LogRecord) -> bool:
    """Return whether Orbax neither wrote a record nor stands in its message or its traceback."""
    own = str(Path("orbax", "checkpoint"))
    return own not in record.pathname and own not in logging.Formatter().format(record)

"""Checks that train in processes of their own run ahead of their turn, beside the one that runs in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from parity.checks import OnStep
from parity.results import CheckRecord

__all__ = ["Ahead"]


class Ahead:
    """Checks that run in other threads until their turn comes; a context manager, which waits for them at its end.

    Each keeps its order: a record is taken when its turn comes, and only the check whose turn it is reports steps.
    After an error nothing is waited for, and what has not begun never does.
    """

    def __init__(self, most: int, on_step: OnStep) -> None:
        """Begin nothing yet.

        Args:
            most: How many may run beside the one whose turn it is; with 0 each runs when its turn comes.
            on_step: Takes the steps of the check whose turn it is.
        """
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="check") if most else None
        self._on_step, self._turn = on_step, 0
        self._thread = threading.local()
        self._begun: dict[int, Future[CheckRecord]] = {}

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=error is None, cancel_futures=True)

    def submit(self, number: int, run: Callable[[], CheckRecord]) -> None:
        """Let a check run as soon as there is room for it; `take` gives its record.

        Args:
            number: Its place in the order.
            run: Runs it.
        """
        if self._pool is not None:
            self._begun[number] = self._pool.submit(self._run, number, run)

    def take(self, number: int, run: Callable[[], CheckRecord]) -> CheckRecord:
        """Return the record of the check whose turn it is, waiting for it; one that was not submitted runs here."""
        self._turn = number
        begun = self._begun.pop(number, None)
        return run() if begun is None else begun.result()

    def on_step(self, what: str, step: int, of: int) -> None:
        """Pass a step on if it is of the check whose turn it is; every check calls this, in its own thread."""
        if getattr(self._thread, "number", self._turn) == self._turn:
            self._on_step(what, step, of)

    def _run(self, number: int, run: Callable[[], CheckRecord]) -> CheckRecord:
        self._thread.number = number
        return run()

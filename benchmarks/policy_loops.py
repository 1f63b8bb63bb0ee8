"""Drive a training loop that saves by itself: block by block, each ending in the save that is asked for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from parity.errors import CheckpointError

BLOCK = 10
"""Steps from one save to the next."""


@dataclass(frozen=True)
class Order:
    """What the next block ends in."""

    step: int
    metric: float | None
    at: float


class NoSuchOption(Exception):
    """A manager has no option for what a case asks for; the message gives the reason."""


class Killed(BaseException):
    """Ends the loop in the middle, as a kill would, but for the process."""


class Loop:
    """A training loop in a thread of its own; it asks for an order before the first step of each block."""

    def __init__(self, train: Callable[[Loop], None]) -> None:
        self.order: Order | None = None
        self._orders: queue.Queue[Order | None] = queue.Queue()
        self._events: queue.Queue[BaseException | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(train,), daemon=True)
        self._thread.start()
        self._wait()

    def next_block(self) -> None:
        """Called by the loop where a block begins; returns when there is an order for it."""
        self._events.put(None)
        self.order = self._orders.get()
        if self.order is None:
            raise Killed

    def give(self, order: Order) -> None:
        """Have one block trained and saved."""
        if not self._thread.is_alive():
            raise CheckpointError("training has ended")
        self._orders.put(order)
        self._wait()

    def kill(self) -> None:
        """End the loop."""
        if self._thread.is_alive():
            self._orders.put(None)
            self._thread.join(60)

    def _wait(self) -> None:
        error = self._events.get(timeout=120)
        if error is not None:
            raise CheckpointError(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error

    def _run(self, train: Callable[[Loop], None]) -> None:
        try:
            train(self)
            self._events.put(RuntimeError("the loop finished"))
        except Killed:
            pass
        except BaseException as error:
            self._events.put(error)

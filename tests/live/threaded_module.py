"""A training script whose import starts a thread: a forked process would lack it."""

import queue
import threading

from tests.live.imports_of_users import in_saved_order

asked: "queue.Queue[int]" = queue.Queue()
threading.Thread(target=asked.get, daemon=True).start()


def train(folder, note):  # type: ignore[no-untyped-def]
    """Train, and note the threads of the process."""
    yield from in_saved_order(folder, note)

"""State of this process that a check puts aside: random generators that all code shares, settings of frameworks."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from parity import sides

__all__ = ["fresh_process", "set_aside_all"]


def set_aside_all() -> Callable[[], None]:
    """Return a function that puts generators and settings of this process back as they are now."""
    python, shared = random.getstate(), np.random.get_state()  # noqa: NPY002 - the state that all code shares
    frameworks = [adapter.set_aside() for adapter in sides.adapters().values()]

    def put_back() -> None:
        random.setstate(python)
        np.random.set_state(shared)  # noqa: NPY002
        for restore in frameworks:
            restore()

    return put_back


def fresh_process() -> None:
    """Seed what all code shares as a new process does: Python's and NumPy's generators from the system."""
    random.seed()
    np.random.seed()  # noqa: NPY002
    for adapter in sides.adapters().values():
        adapter.fresh_process()

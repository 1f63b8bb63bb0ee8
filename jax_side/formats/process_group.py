"""Processes of JAX that save or restore one tree together, and what they tell each other.

It goes through their devices, so through the thread that computes alone: collectives of two threads would meet in
another order in each process. A thread of its own that told it through the key-value store of JAX's coordination
service was tried, and hung once in some forty runs (docs/decisions.md).
"""

from __future__ import annotations

from typing import Any

import jax

from jax_side.processes import exchange

__all__ = ["JaxGroup"]


class JaxGroup:
    """All processes of JAX, for the thread that computes."""

    beside = None
    """No thread beside that one may ask."""

    @property
    def index(self) -> int:
        """Return the number of this process."""
        return jax.process_index()

    @property
    def count(self) -> int:
        """Return the number of processes."""
        return jax.process_count()

    def exchange(self, value: Any, /) -> list[Any]:
        """Return the values of all processes, in their order; each gives one, which must be JSON."""
        return exchange(value)

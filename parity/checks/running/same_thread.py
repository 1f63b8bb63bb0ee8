"""An executor without threads, for runs within one process: each is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

__all__ = ["SameThreadExecutor"]


class SameThreadExecutor(Executor):
    """Runs everything in this thread, when its result is asked for or at once."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function now and return a future that is done; what the function raises is raised here."""
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:  # type: ignore[override]
        """Call a function for each item when its turn comes."""
        return map(function, *iterables)

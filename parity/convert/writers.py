"""The writers of formats by their names; only the side that has one is imported."""

from __future__ import annotations

from collections.abc import Callable

from parity import sides
from parity.errors import CheckpointError
from parity.formats import FAMILIES, WRITTEN, Writer

__all__ = ["writer_of"]


def writer_of(name: str) -> Writer:
    """Return the writer of a format.

    Args:
        name: Of `parity.formats.WRITTEN`.

    Raises:
        CheckpointError: The side is not installed, or has no such writer.
    """
    written = WRITTEN[name]
    if written != "side":
        return written
    side = sides.load(FAMILIES[name])
    writers: Callable[[], tuple[Writer, ...]] | None = getattr(side, "writers", None)
    found = {writer.format: writer for writer in (writers() if writers else ())}
    if name not in found:
        raise CheckpointError(f"the side {FAMILIES[name]} writes {', '.join(found)}, not {name}")
    return found[name]

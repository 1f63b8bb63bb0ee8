"""Whether checkpoints may be kept below a prefix: asked before its lease is taken and anything is written there."""

from __future__ import annotations

from contextlib import suppress

from parity.checkpoints.remote.head import HEAD
from parity.checkpoints.remote.lease import read_head
from parity.checkpoints.remote.sending import ASIDE
from parity.errors import RunDirectoryError, StoreMissingError
from parity.storage.stores import Objects, require_safe

__all__ = ["require_place"]


def require_place(store: Objects) -> None:
    """Check that a prefix is ours, or empty, and that its store keeps what checkpoints need.

    Raises:
        RunDirectoryError: It holds something else, or the store does not keep that; names each thing.
        CheckpointError: Its head is damaged.
        StoreError: The store refused or was not reached.
    """
    store.look_around()
    head = read_head(store)
    if head is None:
        _require_empty(store)
    if head is None or head.unsafe:
        require_safe(store)


def _require_empty(store: Objects) -> None:
    """Refuse a prefix with objects of somebody else: what checkpoints remove there must be theirs."""
    if store.url.key:
        with suppress(StoreMissingError):
            store.up().look(store.url.name)
            raise RunDirectoryError(f"{store.url} is an object, and no place for checkpoints; name another prefix")
    if held := [key for key in store.first(100) if not key.startswith(ASIDE)]:
        shown = ", ".join(held[:3]) + (", ..." if len(held) > 3 else "")
        raise RunDirectoryError(
            f"{store.url} holds {shown}, and no {HEAD}: something else is kept there; name another prefix"
        )

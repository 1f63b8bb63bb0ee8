"""A seal for what another tool saved at a store: fetched, digested, and its seal written beside it there."""

from __future__ import annotations

import tempfile
from pathlib import Path

from parity.checkpoints import FILE, Seal, seal_beside, seal_text
from parity.checkpoints.remote import fetch_foreign, locate
from parity.convert.sealing import seal_checkpoint
from parity.errors import CheckpointError, StoreConflictError, StoreMissingError
from parity.storage.stores import StoreUrl

__all__ = ["seal_stored"]


def seal_stored(url: StoreUrl, *, replace: bool = False) -> Seal:
    """Seal a checkpoint of another tool at a store, and return its seal.

    It is fetched to a temporary directory for that, as its format is recognised by its content. An object that is
    written anew meanwhile has another version, and then there is no seal.

    Args:
        url: One object, or the place below which its objects are.
        replace: Whether a seal that does not fit what is there any more is replaced.

    Raises:
        CheckpointError: There is none of a known format, it is of a run of ours, it has a seal that does not fit, or
            it changed meanwhile.
        StoreError: The store refused or was not reached.
        OSError: There is no room for it.
    """
    found = locate(url)
    if found.head is not None:
        raise CheckpointError(f"{url} belongs to {found.store.url}, whose checkpoints have seals")
    with tempfile.TemporaryDirectory(prefix="parity-") as home:
        path, versions = fetch_foreign(found.store, Path(home))
        seal = seal_checkpoint(path, replace=replace)
        below = path.is_dir()
        store, key = (found.store, FILE) if below else (found.store.up(), seal_beside(path).name)
        try:
            now = {name: store.look(name).version for name in versions}
        except StoreMissingError as error:
            raise CheckpointError(f"{url} changed while it was sealed; seal it when its save is complete") from error
        if now != versions or (below and set(store.list()) != set(versions)):
            raise CheckpointError(f"{url} changed while it was sealed; seal it when its save is complete")
        text = seal_text(seal).encode()
        try:
            if key not in versions:
                store.create(key, text)
            elif store.read(key)[0] != text:
                store.swap(key, text, versions[key])
        except StoreConflictError as error:
            raise CheckpointError(f"{url} is being sealed by another process") from error
        return seal

"""A seal for what another tool saved at a store: fetched, digested, and its seal written beside it there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from parity.checkpoints import FILE, Seal, parse_seal, seal_beside, seal_text
from parity.checkpoints.remote import fetched_foreign, locate
from parity.convert.sealing import seal_checkpoint
from parity.errors import CheckpointError, StoreConflictError, StoreMissingError
from parity.storage.stores import Objects, StoreUrl, Version

__all__ = ["ObjectsThen", "look_stored", "seal_stored"]


@dataclass(frozen=True)
class ObjectsThen:
    """The objects of a checkpoint as they stand at one moment."""

    store: Objects
    """The place below which they are; of a single one, the place above."""
    seal: str
    """The key of the seal."""
    versions: Mapping[str, Version]
    """Key to what tells its content from a later one, without the seal; of a file that names others, its own."""

    def remove_seal(self) -> None:
        """Remove the seal, which is of what was there before.

        Raises:
            CheckpointError: It is one that a save of ours wrote: its digests of leaves would be lost.
            StoreError: The store refused or was not reached.
        """
        try:
            data, _ = self.store.read(self.seal)
        except StoreMissingError:
            return
        where = self.store.url / self.seal
        try:
            old = parse_seal(data, str(where))
        except CheckpointError:
            old = None  # what is no seal says nothing any more
        if old is not None and not old.foreign:
            raise CheckpointError(f"{where} was written by the side {old.side!r} as it saved; it is not replaced")
        self.store.delete([self.seal])


def look_stored(url: StoreUrl) -> ObjectsThen:
    """Return what is at a place now; no object is read.

    Raises:
        CheckpointError: Nothing is there, or it belongs to a run or a manager of ours.
        StoreError: The store refused or was not reached.
    """
    found = locate(url)
    if found.head is not None:
        raise CheckpointError(f"{url} belongs to {found.store.url}, whose checkpoints have seals")
    if listing := found.store.list():
        return ObjectsThen(found.store, FILE, {key: entry.version for key, entry in listing.items() if key != FILE})
    above = found.store.up()
    try:
        return ObjectsThen(above, seal_beside(Path(url.name)).name, {url.name: above.look(url.name).version})
    except StoreMissingError as error:
        raise CheckpointError(f"{url}: nothing is there") from error


def seal_stored(url: StoreUrl, *, replace: bool = False, then: ObjectsThen | None = None) -> Seal:
    """Seal a checkpoint of another tool at a store, and return its seal.

    It is fetched to a temporary directory for that, as its format is recognised by its content. An object that is
    written anew meanwhile has another version, and then there is no seal.

    Args:
        url: One object, or the place below which its objects are.
        replace: Whether a seal that does not fit what is there any more is replaced.
        then: What it was at the moment that is to be sealed; None for now.

    Raises:
        CheckpointError: There is none of a known format, it is of a run of ours, it has a seal that does not fit, or
            it changed meanwhile.
        StoreError: The store refused or was not reached.
        OSError: There is no room for it.
    """
    then = then or look_stored(url)
    with fetched_foreign(url) as (path, fetched):
        versions = {key: version for key, version in fetched.items() if key != then.seal}
        of_then = {key: versions.get(key) for key in then.versions}
        if of_then != then.versions or (path.is_dir() and versions.keys() != then.versions.keys()):
            raise _changed(url)
        seal = seal_checkpoint(path, replace=replace)
        try:
            now = {name: then.store.look(name).version for name in fetched}
        except StoreMissingError:
            raise _changed(url) from None
        if now != fetched or (path.is_dir() and set(then.store.list()) != set(fetched)):
            raise _changed(url)
        text = seal_text(seal).encode()
        try:
            if then.seal not in fetched:
                then.store.create(then.seal, text)
            elif then.store.read(then.seal)[0] != text:
                then.store.swap(then.seal, text, fetched[then.seal])
        except StoreConflictError as error:
            raise CheckpointError(f"{url} is being sealed by another process") from error
        return seal


def _changed(url: StoreUrl) -> CheckpointError:
    return CheckpointError(f"{url} changed while it was sealed; seal it when its save is complete")

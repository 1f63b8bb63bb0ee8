"""The lease of a prefix: one writer, by compare-and-swap on the head.

Taken with a new epoch, renewed in the background, given back at the end. Whether another may take it, the clock of
the store alone tells: the time of the last write of the head against that of an object written now. That is
politeness. What protects the checkpoints is that each change of the head is a swap, which fails once another has
taken the lease.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import replace

from parity.checkpoints.remote.head import HEAD, Owner, RemoteHead, head_text, parse_head
from parity.errors import LeaseLostError, LockedError, StoreConflictError, StoreError, StoreMissingError
from parity.storage.stores import ObjectEntry, Objects, Version

__all__ = ["LEASE_SECONDS", "Lease", "read_head"]

LEASE_SECONDS = 60.0
"""How long a lease lives without being renewed; it is renewed three times as often."""


def read_head(store: Objects) -> RemoteHead | None:
    """Return the head of a prefix; None where there is none.

    Raises:
        CheckpointError: It is damaged, or of another version.
        StoreError: The store refused or was not reached.
    """
    try:
        return parse_head(store.read(HEAD)[0], store.url)
    except StoreMissingError:
        return None


class Lease:
    """The right to write below a prefix, while it is held; `take` makes one.

    Every method may be called from any thread.
    """

    def __init__(self, store: Objects, head: RemoteHead, version: Version) -> None:
        self.store = store
        self._head, self._version = head, version
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.lost: LeaseLostError | None = None
        """Why it is no longer held; None while it is."""
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._renewing.start()

    @classmethod
    def take(cls, store: Objects, token: str, *, seconds: float = LEASE_SECONDS) -> Lease:
        """Take the lease of a prefix.

        Args:
            store: The prefix.
            token: That of the run directory. A lease with the same one is followed at once: only one process at a
                time holds the lock of that directory.
            seconds: How long the lease lives without being renewed.

        Raises:
            LockedError: Another holds it, and renewed it lately; names the owner.
            CheckpointError: The head is damaged.
            StoreError: The store refused or was not reached.
        """
        owner = Owner.here(token)
        try:
            data, entry = store.read(HEAD)
        except StoreMissingError:
            head = RemoteHead(epoch=1, owner=owner, seconds=seconds, unsafe=not store.conditional)
            try:
                return cls(store, head, store.create(HEAD, head_text(head).encode()))
            except StoreConflictError:
                data, entry = store.read(HEAD)
        found = parse_head(data, store.url)
        if found.owner is not None and found.owner.token != token:
            age = _store_time(store, token) - entry.modified
            if age < found.seconds:
                renewed = f"which renewed its lease {max(0, age):.0f} s ago"
                ends = f"without renewal it ends in {found.seconds - age:.0f} s"
                raise LockedError(store.url, f"{found.owner}, {renewed}; {ends}")
        head = replace(found, epoch=found.epoch + 1, owner=owner, seconds=seconds, unsafe=not store.conditional)
        try:
            return cls(store, head, store.swap(HEAD, head_text(head).encode(), entry.version))
        except StoreConflictError as error:
            now = read_head(store)
            who = str(now.owner) if now is not None and now.owner is not None else "another process"
            raise LockedError(store.url, f"{who}, which took it this moment") from error

    @property
    def head(self) -> RemoteHead:
        """Return the head as this process wrote it last."""
        return self._head

    def change(self, change: Callable[[RemoteHead], RemoteHead]) -> RemoteHead:
        """Replace the head by what a function makes of it.

        Args:
            change: Returns the new head; owner and epoch stay.

        Returns:
            The head as it is now.

        Raises:
            LeaseLostError: Another has taken the lease; nothing was changed.
            StoreError: The store refused or was not reached; whether it was changed is found out by the next call.
        """
        with self._lock:
            if self.lost is not None:
                raise self.lost
            head = change(self._head)
            text = head_text(head).encode()
            try:
                self._version = self.store.swap(HEAD, text, self._version)
            except StoreConflictError:
                # Ours, if an answer was lost before and the store carried that one out: then it names our epoch.
                data, entry = self._reread()
                now = parse_head(data, self.store.url)
                mine = self._head.owner
                if now.epoch != self._head.epoch or now.owner is None or mine is None or now.owner != mine:
                    self._lose(now)
                    assert self.lost is not None
                    raise self.lost from None
                self._version = self.store.swap(HEAD, text, entry.version)
            self._head = head
            return head

    def require(self) -> None:
        """Check that the lease is still held, as far as is known here.

        Raises:
            LeaseLostError: It is not.
        """
        if self.lost is not None:
            raise self.lost

    def close(self) -> None:
        """Give the lease back, if it is still held; a store that cannot be reached lets it expire."""
        self._ended.set()
        self._renewing.join()
        try:
            self.change(lambda head: replace(head, owner=None))
        except (StoreError, LeaseLostError):
            return

    def stop(self) -> None:
        """End the renewal without giving the lease back, as a process does that is killed."""
        self._ended.set()
        self._renewing.join()

    def _reread(self) -> tuple[bytes, ObjectEntry]:
        try:
            return self.store.read(HEAD)
        except StoreMissingError:
            self._lose(None)
            assert self.lost is not None
            raise self.lost from None

    def _lose(self, now: RemoteHead | None) -> None:
        owner = "nobody: the head was removed" if now is None else str(now.owner or "a process that has ended")
        self.lost = LeaseLostError(self.store.url, self._head.epoch, owner)

    def _renew(self) -> None:
        while not self._ended.wait(self._head.seconds / 3):
            try:
                self.change(lambda head: head)
            except LeaseLostError:
                return
            except StoreError:
                continue  # what uploads says that the store is gone


def _store_time(store: Objects, token: str) -> float:
    """Return what the clock of the store says now: the time of an object that is written for it."""
    key = f"clocks/{token}-{uuid.uuid4().hex}"
    store.put(key, key.encode())
    try:
        return store.look(key).modified
    finally:
        store.delete([key])

"""Trees at an object store: a place is a prefix with a head and a lease, as that of a run is.

A save is written and sealed on this machine, sent, and exists when the head names it. One process at a time saves to
a place; any number restore from it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parity import policy
from parity.checkpoints import LONE, CheckpointStore
from parity.checkpoints.remote import (
    Lease,
    assemble_run,
    choose_row,
    clean,
    drop,
    fetch,
    read_head,
    read_token,
    require_head,
    require_place,
    send,
    write_token,
)
from parity.errors import CheckpointError, DamagedError
from parity.policy import Mode, Rules, Saved, Which
from parity.storage.stores import StoreUrl, cache_of, open_store

__all__ = ["BEST", "StoredTrees"]

BEST = "best.json"
"""The record of a manager's checkpoint that says what is better, a larger metric or a smaller one."""

ATTEMPTS = 5
"""Most fetches of the newest or the best, where the one that was chosen is removed meanwhile."""


class StoredTrees:
    """The trees at one place of a store.

    Args:
        url: The place.
        kind: What their seals have in place of the hash of a run.

    Raises:
        MissingPackageError: obstore is not installed.
        StoreError: The environment makes no sense.
    """

    def __init__(self, url: StoreUrl, kind: str) -> None:
        self.url, self.home = url, cache_of(url, "trees").absolute()
        """The directory of this machine that a save is written to; its lock must be held while the place is open."""
        self._store, self._kind = open_store(url), kind
        self._lease: Lease | None = None
        self._mode: Mode | None = None

    def open(self, mode: Mode | None = None) -> None:
        """Become the one that saves there, and remove what a save that was killed left.

        Args:
            mode: By what the best is the best; None where no best is asked for.

        Raises:
            LockedError: Another process saves there.
            RunDirectoryError: Something else is kept there, or the store does not keep what is needed.
            CheckpointError: It holds a run, or trees that were saved in another way; or its head is damaged.
            StoreError: The store refused or was not reached.
            OSError: The directory of this machine cannot be used.
        """
        self._mode = mode
        if self._lease is not None:
            return
        require_place(self._store)
        token = read_token(self.home, self.url)
        write_token(self.home, self.url, token)
        lease = Lease.take(self._store, token)
        try:
            if lease.head.run not in (None, self._kind):
                raise CheckpointError(f"{self.url} holds a run, or what was saved in another way; name another place")
            clean(lease)
            self._remove_unsent()
        except BaseException:
            lease.close()
            raise
        self._lease = lease

    def _remove_unsent(self) -> None:
        """Remove what a process of before saved and did not send: what was done since need not follow from it."""
        store = CheckpointStore(self.home)
        left = [str(saved.step) for saved in store.scan().whole]
        if left and self._kind != LONE:  # a lone tree's `save` never returned
            warnings.warn(
                f"{self.url}: step {', '.join(left)} was saved by a process before this one and never sent there; it "
                f"is removed from {store.path}",
                RuntimeWarning,
                stacklevel=4,
            )
        shutil.rmtree(store.path, ignore_errors=True)

    def whole(self) -> list[Saved]:
        """Return the checkpoints that are there, by step.

        Raises:
            CheckpointError: The head is damaged.
            StoreError: The store refused or was not reached.
        """
        head = self._lease.head if self._lease is not None else read_head(self._store)
        return [] if head is None else [row.saved for row in head.checkpoints.values()]

    def send(self, path: Path, metric: float | None) -> None:
        """Send a sealed checkpoint; it exists there when this returns, and not before.

        Args:
            path: The checkpoint.
            metric: Its metric.

        Raises:
            CheckpointError: It is not what was sealed.
            LeaseLostError: Another process saves there by now.
            StoreError: The store refused or was not reached.
        """
        assert self._lease is not None
        with tempfile.TemporaryDirectory(prefix="parity-") as folder:
            record = Path(folder, BEST)
            record.write_text(json.dumps({"mode": self._mode}) + "\n")
            send(self._lease, path, metric, {BEST: record} if self._mode is not None else {})

    def retain(self, rules: Rules) -> None:
        """Remove what the rules no longer keep, there.

        Raises:
            LeaseLostError: Another process saves there by now.
            StoreError: The store refused or was not reached; the next that opens the place removes what is left.
        """
        assert self._lease is not None
        rows = self._lease.head.checkpoints
        kept = policy.kept([row.saved for row in rows.values()], rules)
        drop(self._lease, [step for step in rows if step not in kept])

    @contextmanager
    def fetched(self, which: Which, mode: Mode | None) -> Iterator[tuple[Path, int]]:
        """Fetch a checkpoint, each byte compared with its seal as it arrives.

        Args:
            which: The newest, the best, or a step.
            mode: By what the best is the best.

        Yields:
            A directory with the checkpoint in `checkpoints/`, until the block ends; and its step.

        Raises:
            DamagedError: It is not what was sealed.
            CheckpointError: It is not there.
            StoreError: The store refused or was not reached.
            OSError: There is no room for it.
        """
        for attempt in range(1, ATTEMPTS + 1):
            row = choose_row(require_head(self._store), which, mode, self._store)
            with tempfile.TemporaryDirectory(prefix="parity-") as folder:
                home = Path(folder, "home")
                draft = Path(folder, "draft")
                draft.mkdir()
                try:
                    fetch(self._store, row, draft)
                except DamagedError:
                    raise
                except CheckpointError:  # the process that saves there has removed it
                    if isinstance(which, int) or attempt == ATTEMPTS:
                        raise
                    continue
                assemble_run(draft, home, row.step)
                yield home, row.step
                return

    def close(self) -> None:
        """Let others save there."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()

"""What a run does about its copies at a store, from its start to its end: the lease first, then what is there."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from parity import policy
from parity.checkpoints.remote import (
    LEASE_SECONDS,
    Lease,
    RemoteHead,
    read_token,
    require_place,
    write_token,
)
from parity.contract import RunIdentity, RunPlan
from parity.errors import (
    CheckpointError,
    RunDirectoryError,
    SpecError,
    SpecMismatchError,
    StoreError,
    StoreMissingError,
)
from parity.runs.arrival import arrive
from parity.runs.copies import CarriersOf, NoCopies, RunCopies
from parity.runs.directory import RunDirectory
from parity.runs.resume import Log, ResumeChoice
from parity.storage.stores import ONE_WRITER, Objects, ask, open_store

__all__ = ["NO_REMOTE", "RemoteCopy", "RemoteStart"]


@dataclass(frozen=True, kw_only=True)
class RemoteCopy:
    """Where the checkpoints of a run are copied to."""

    url: str = ""
    """`s3://bucket/prefix` or `gs://bucket/prefix`; empty for none."""
    mode: policy.Mode | None = None
    """By what the best checkpoint is the best, for a fetch before the run is there."""
    identity: RunIdentity | None = None
    """The run that is to be trained, so that another one is refused before it is fetched."""
    unsafe: bool = False
    """Whether a store is taken that does not keep what one writer for each prefix needs."""
    seconds: float = LEASE_SECONDS
    """How long the lease lives without being renewed."""


NO_REMOTE = RemoteCopy()

SPEC = "spec.toml"
"""The record that every checkpoint of a run has with it."""


class RemoteStart:
    """The copies of one process of a run, before and while it trains; a context manager.

    Args:
        asked: Where they are.
        run: The run directory.
        resume: What the process continues from.
        log: Takes one line for people.

    Raises:
        RunDirectoryError: The URL is none of a store.
        MissingPackageError: obstore is not installed.
        StoreError: The environment makes no sense.
    """

    def __init__(self, asked: RemoteCopy, run: RunDirectory, resume: ResumeChoice, log: Log) -> None:
        self._asked, self._run, self._resume, self._log = asked, run, resume, log
        self._store: Objects | None = open_store(asked.url) if asked.url else None
        self._lease: Lease | None = None
        self._token = uuid.uuid4().hex
        self._hash: str | None = None
        self._copies = NoCopies()

    def __enter__(self) -> RemoteStart:
        return self

    def __exit__(self, *_: object) -> None:
        """End the copies, and give the lease back."""
        self._copies.close()
        if self._lease is not None:
            self._lease.close()

    def fetch_run(self, *, or_next: bool) -> None:
        """Fetch the run where nothing of it is here and the store has it.

        Args:
            or_next: Whether the next best takes the place of a damaged best.

        Raises:
            LockedError: Another process writes there.
            SpecMismatchError: The store has another run.
            CheckpointError: What was asked for is not there, or damaged.
            RunDirectoryError: The store does not keep what is needed, or the directory holds something else.
            StoreError: It refused or was not reached: whether there is something to continue from is unknown then,
                and starting over could hide a loss.
        """
        if self._store is None or self._run.exists or self._resume == "never":
            return
        self._run.require_free()
        lease = self._take()
        self._require_same_spec(self._store, lease.head)
        mode = self._asked.mode
        arrive(self._store, lease.head, self._run.path, self._resume, mode, self._log, or_next=or_next)

    def join(self) -> None:
        """Take the lease where it is not taken yet, before anything of the run is changed; its lock is held.

        A store that does not answer is left for later.

        Raises:
            LockedError: Another process writes there.
            RunDirectoryError: The prefix has later steps than this directory, or the store does not keep what is
                needed.
            StoreError: The store refused.
        """
        if self._store is None or self._lease is not None:
            return
        self._token = read_token(self._run.path, self._store.url)
        try:
            self._take()
        except StoreError as error:
            if not error.transient:
                raise
            self._log(f"{error}; training continues from what is here, and checkpoints are copied later")

    def require_run(self, spec_hash: str) -> None:
        """Check that the prefix holds this run or none, before anything of it is changed.

        Args:
            spec_hash: Hash of this run.

        Raises:
            RunDirectoryError: It holds another run.
        """
        self._hash = spec_hash
        if self._lease is not None:
            self._require_same_run(self._lease)

    def begin(self, plan: RunPlan, start: int | None, carriers: CarriersOf = lambda say: None) -> NoCopies:
        """Begin to copy; the run is open, and nothing was trained yet.

        Args:
            plan: Which checkpoints stay.
            start: The step that was resumed from.
            carriers: Returns the processes of the run that send together.
        """
        if self._store is not None:
            write_token(self._run.path, self._store.url, self._token)
            self._copies = RunCopies(self._run, plan, self._take, start, carriers)
        return self._copies

    def _take(self) -> Lease:
        """Return the lease; take it where it is not taken yet."""
        if self._lease is None:
            assert self._store is not None
            self._check(self._store)
            lease = Lease.take(self._store, self._token, seconds=self._asked.seconds)
            try:
                self._require_no_later(lease)
                self._require_same_run(lease)
            except RunDirectoryError:
                lease.close()
                raise
            self._lease = lease
        return self._lease

    def _check(self, store: Objects) -> None:
        """Refuse what is not ours, and a store that does not keep what is needed; a prefix with a head was asked."""
        if not self._asked.unsafe:
            require_place(store)
        elif any(row.promise == ONE_WRITER for row in ask(store).problems):
            store.conditional = False
            self._log(f"{store.url}: without one writer for each prefix, as was asked: never start a second process")

    def _require_no_later(self, lease: Lease) -> None:
        """Refuse to continue here from an older step than the newest there, unless a step was named on purpose."""
        if self._resume not in ("auto", "latest") or not self._run.exists:
            return
        there = max(lease.head.checkpoints, default=0)
        here = max((saved.step for saved in self._run.store.scan().whole), default=0)
        if there > here:
            go_on = f"; --resume {here} goes on from here and gives the later ones up" if here else ""
            raise RunDirectoryError(
                f"{lease.store.url} has step {there}, and the newest in {self._run.path} is {here or 'none'}: the "
                f"run was trained on elsewhere, or was lost here. A new --dir fetches it{go_on}"
            )

    def _require_same_spec(self, store: Objects, head: RemoteHead) -> None:
        """Refuse a run that differs in a field that may not change; what cannot be read now, the fetch judges."""
        if not head.checkpoints:
            return
        newest = head.checkpoints[max(head.checkpoints)]
        if SPEC not in newest.records:
            raise RunDirectoryError(
                f"{store.url} holds what `save` or a manager saved, and no run; name another prefix"
            )
        if self._asked.identity is None:
            return
        try:
            text = store.at(newest.folder).read(f"records/{SPEC}")[0].decode("utf-8-sig")
            changed = self._asked.identity.differences(text)
        except (CheckpointError, SpecError, StoreMissingError, ValueError):
            return
        if changed:
            raise SpecMismatchError(changed)

    def _require_same_run(self, lease: Lease) -> None:
        there = lease.head.run
        if self._hash is not None and there not in (None, self._hash):
            raise RunDirectoryError(
                f"{lease.store.url} holds another run (other model, data, optimizer or seed): its hash is "
                f"{there[:12]!r}, this run's {self._hash[:12]!r}; name another prefix"
            )

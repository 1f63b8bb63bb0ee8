"""Sending a checkpoint: its objects, its records, its seal, and last its row in the head; removing one in reverse.

Objects lie below the epoch of the lease, so what a writer that lost it still sends meets nobody else's objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from parity.checkpoints.remote.head import RemoteCheckpoint, RemoteHead
from parity.checkpoints.remote.lease import Lease
from parity.checkpoints.remote.shares import Carriers, joined
from parity.checkpoints.seal import FILE, Seal, compare_listing, read_seal
from parity.checkpoints.verify import require_verified
from parity.errors import CheckpointError, DamagedError, OtherRunError, StoreError
from parity.storage import digest_files, list_files, plain
from parity.storage.stores import Objects, upload

__all__ = ["RECORDS", "clean", "drop", "give_up_after", "note_metrics", "send"]

RECORDS = ("spec.toml", "side", "steps.jsonl", "validations.jsonl", "attempts.jsonl", "metrics.jsonl")
"""Files of a run that a checkpoint needs to be continued from; those that are there are sent with it."""


ASIDE, OLD = ("clocks/", "probe-"), 600.0
"""What processes that are about to begin write and remove again, and the seconds after which one was killed there."""


def send(
    lease: Lease,
    path: Path,
    metric: float | None,
    records: Mapping[str, Path],
    carriers: Carriers | None = None,
) -> Seal:
    """Send a sealed checkpoint; it exists at the store when this returns, and not before.

    Args:
        lease: Of the prefix.
        path: The checkpoint, which is compared with its seal first: damage must not be spread.
        metric: Its metric, as it is known now.
        records: Name to the file, of the records of the run up to the checkpoint. Each is only appended to, or
            replaced; what is sent is what a copy of it held when this began.
        carriers: The processes that send its files together; None for this one. What they sent is compared with the
            seal by its digests before the head names it, in place of a reading before.

    Returns:
        The seal.

    Raises:
        DamagedError: The checkpoint is not what was sealed.
        OtherRunError: The prefix holds another run.
        LeaseLostError: Another process has the lease.
        StoreError: The store refused or was not reached.
        OSError: A file cannot be read.
    """
    seal = require_verified(path) if carriers is None else _read_listed(path)
    _require_run(lease.head, seal)
    row = RemoteCheckpoint(
        step=seal.step,
        epoch=lease.head.epoch,
        metric=metric,
        saved_at=seal.saved_at,
        seal=digest_files(path, [FILE])[FILE],
        records={name: digest_files(file.parent, [file.name])[file.name] for name, file in records.items()},
    )
    folder = lease.store.at(row.folder)
    if carriers is None:
        upload(folder, {f"files/{name}": path / name for name in seal.files}, lease.require)
    else:
        row = replace(row, pieces=_send_together(carriers, folder, path, seal, lease.require))
    upload(folder, {f"records/{name}": file for name, file in records.items()}, lease.require)
    if digest_files(path, [FILE])[FILE] != row.seal:
        raise DamagedError(f"{path} was replaced while it was sent")
    upload(folder, {FILE: path / FILE}, lease.require)
    lease.change(
        lambda head: replace(head, run=seal.spec_hash, side=seal.side).with_checkpoints(
            {**head.checkpoints, row.step: row}
        )
    )
    return seal


def _read_listed(path: Path) -> Seal:
    """Return the seal of a checkpoint that has its files, in their sizes; their content is judged as it is sent."""
    try:
        seal = read_seal(path)
        if path.name == str(seal.step) and not compare_listing(seal, list_files(path)):
            return seal
    except CheckpointError:
        pass
    return require_verified(path)  # which says what is wrong


def _send_together(
    carriers: Carriers, folder: Objects, path: Path, seal: Seal, go_on: Callable[[], None]
) -> dict[str, tuple[int, ...]]:
    """Send the files by several processes; return those that lie in pieces, with the sizes of these.

    What another process sent may be what its machine remembers of a directory of the network: it is sent again from
    here before anything is called damaged.
    """
    sizes = {name: found.size for name, found in seal.files.items()}
    sent = dict(carriers.carry(folder, path, sizes, go_on))
    if wrong := {name for name, found in joined(sizes, sent).items() if found != seal.files[name]}:
        again = [part for part in sent if part.file in wrong]
        sent |= carriers.carry_again(folder, path, sizes, again, go_on)
    if any(found != seal.files[name] for name, found in joined(sizes, sent).items()):
        with suppress(StoreError):  # the next lease removes it
            folder.delete(folder.list())
        require_verified(path)  # which says what is wrong
        raise StoreError(folder.url, "other bytes were sent than the seal has", transient=True)
    pieces: dict[str, tuple[int, ...]] = {}
    for part in sorted(sent):
        if part.size != sizes[part.file]:
            pieces[part.file] = (*pieces.get(part.file, ()), part.size)
    return pieces


def drop(lease: Lease, steps: Iterable[int]) -> None:
    """Remove checkpoints: first from the head, then the seal of each, then its objects.

    Raises:
        LeaseLostError: Another process has the lease; nothing was removed.
        StoreError: The store refused or was not reached; objects that are left are removed by `clean`.
    """
    gone = [lease.head.checkpoints[step] for step in steps if step in lease.head.checkpoints]
    if not gone:
        return
    names = {one.step for one in gone}
    lease.change(
        lambda head: head.with_checkpoints({s: row for s, row in head.checkpoints.items() if s not in names})
    )
    for one in gone:
        folder = lease.store.at(one.folder)
        folder.delete([FILE])
        folder.delete(folder.list())


def note_metrics(lease: Lease, metrics: Mapping[tuple[int, float | None], float | None]) -> None:
    """Give checkpoints the metrics that were measured after they were sent: the best there is the best here.

    Args:
        lease: Of the prefix.
        metrics: Step and time of the save to the metric; others keep theirs.

    Raises:
        LeaseLostError: Another process has the lease.
        StoreError: The store refused or was not reached.
    """
    rows = lease.head.checkpoints
    now = {step: replace(row, metric=metrics.get((step, row.saved_at), row.metric)) for step, row in rows.items()}
    if any(plain(now[step].metric) != plain(row.metric) for step, row in rows.items()):  # nan is not itself
        lease.change(lambda head: head.with_checkpoints({**head.checkpoints, **now}))


def give_up_after(lease: Lease, step: int | None) -> list[int]:
    """Take the checkpoints after a step out of the run, as a start from that step does on disk; return their steps.

    Their objects stay.

    Args:
        lease: Of the prefix.
        step: The step that the run continues from; None for its beginning.

    Raises:
        LeaseLostError: Another process has the lease.
        StoreError: The store refused or was not reached.
    """
    after = [row for row in lease.head.checkpoints.values() if row.step > (step or 0)]
    if after:
        names = {row.step for row in after}
        lease.change(
            lambda head: replace(head, given_up=(*head.given_up, *after)).with_checkpoints(
                {s: row for s, row in head.checkpoints.items() if s not in names}
            )
        )
    return [row.step for row in after]


def clean(lease: Lease) -> int:
    """Remove the objects that uploads, removals and probes of before left; return how many.

    Raises:
        LeaseLostError: Another process has the lease.
        StoreError: The store refused or was not reached.
    """
    head = lease.head
    kept = {row.folder for row in (*head.checkpoints.values(), *head.given_up)}
    listing = lease.store.list()
    now = max((entry.modified for entry in listing.values()), default=0.0)
    found = [
        key
        for key, entry in listing.items()
        if (key.startswith(ASIDE) and entry.modified < now - OLD)
        or (key.startswith("checkpoints/") and not _belongs(key, kept, head.epoch))
    ]
    lease.change(lambda now: now)  # a lease that is lost by now removes nothing
    lease.store.delete(found)
    return len(found)


def _belongs(key: str, kept: set[str], epoch: int) -> bool:
    """Return whether an object is of a checkpoint that the head names, or may be on its way now."""
    parts = key.split("/")
    if len(parts) < 4 or not parts[1].isdigit() or not parts[2].isdigit():
        return True  # not ours
    return "/".join(parts[:3]) in kept or int(parts[2]) >= epoch


def _require_run(head: RemoteHead, seal: Seal) -> None:
    if head.run is not None and head.run != seal.spec_hash:
        raise OtherRunError(seal.step, seal.spec_hash, head.run)

"""Reading the checkpoints of a prefix: choose one, verify it where it is, or fetch it, verified while it arrives."""

from __future__ import annotations

from pathlib import Path

from parity import policy
from parity.checkpoints.remote.head import HEAD, RemoteCheckpoint, RemoteHead
from parity.checkpoints.remote.lease import read_head
from parity.checkpoints.seal import FILE, Seal, parse_seal
from parity.checkpoints.verify import Fault, describe
from parity.errors import CheckpointError, DamagedError, StoreMissingError
from parity.policy import Which
from parity.storage import FileDigest, digest_bytes, write_file
from parity.storage.stores import ObjectEntry, Objects, digest_objects, download

__all__ = ["RemoteVerified", "choose_row", "fetch", "read_remote_seal", "require_head", "verify_remote"]


def require_head(store: Objects) -> RemoteHead:
    """Return the head of a prefix.

    Raises:
        CheckpointError: There is none, or it is damaged.
        StoreError: The store refused or was not reached.
    """
    head = read_head(store)
    if head is None:
        held = ", ".join(store.first(3))
        there = f"it holds {held}" if held else "nothing is there"
        raise CheckpointError(f"{store.url} holds no run: there is no {HEAD}; {there}")
    return head


def choose_row(head: RemoteHead, which: Which, mode: policy.Mode | None, store: Objects) -> RemoteCheckpoint:
    """Return the checkpoint that is asked for.

    Args:
        head: Of the prefix.
        which: The newest, the best, or a step.
        mode: What best is measured by; None where no best is asked for.
        store: The prefix, for messages.

    Raises:
        CheckpointError: It is not there.
    """
    if isinstance(which, int):
        found = head.checkpoints.get(which)
    else:
        saved = [row.saved for row in head.checkpoints.values()]
        chosen = policy.latest(saved) if which == "latest" else policy.best(saved, mode)
        found = None if chosen is None else head.checkpoints[chosen.step]
    if found is None:
        have = ", ".join(map(str, head.checkpoints)) or "none"
        what = f"checkpoint of step {which}" if isinstance(which, int) else f"{which} checkpoint"
        raise CheckpointError(f"no {what} in {store.url} (steps: {have})")
    return found


def read_remote_seal(store: Objects, row: RemoteCheckpoint) -> Seal:
    """Return the seal of a checkpoint, after its bytes were compared with the head.

    Raises:
        DamagedError: It is not what the head names, or is gone.
        StoreError: The store refused or was not reached.
    """
    where = store.url / row.folder / FILE
    try:
        data, _ = store.at(row.folder).read(FILE)
    except StoreMissingError as error:
        raise DamagedError(f"{where} is gone, and {HEAD} names it") from error
    if digest_bytes(data) != row.seal:
        raise DamagedError(f"{where} does not hold the bytes that were sent")
    seal = parse_seal(data, str(where))
    if (seal.step, seal.saved_at) != (row.step, row.saved_at):
        raise DamagedError(f"{where} is of step {seal.step}, and {HEAD} names it as {row.step}")
    return seal


class RemoteVerified:
    """What verifying a checkpoint at a store found."""

    def __init__(self, seal: Seal | None, faults: list[Fault]) -> None:
        self.seal, self.faults = seal, faults

    @property
    def whole(self) -> bool:
        """Return whether every byte is as it was sealed."""
        return self.seal is not None and not self.faults


def verify_remote(store: Objects, row: RemoteCheckpoint) -> RemoteVerified:
    """Compare every object of a checkpoint with its seal and the head; nothing is kept on disk.

    Damage of any kind is returned.

    Raises:
        StoreError: The store refused or was not reached.
    """
    try:
        seal = read_remote_seal(store, row)
    except CheckpointError as error:
        return RemoteVerified(None, [Fault(file=FILE, problem=str(error))])
    folder = store.at(row.folder)
    faults, sound = _compare_listing(folder, row, seal)
    found = digest_objects(folder, {key: wanted.size for key, wanted in sound.items()}, _pieces(row))
    faults += _compare_digests(sound, found)
    return RemoteVerified(seal, faults)


def fetch(store: Objects, row: RemoteCheckpoint, draft: Path) -> Seal:
    """Fetch a checkpoint and its records into an empty directory, each byte compared with its seal as it arrives.

    Args:
        store: The prefix.
        row: The checkpoint.
        draft: Gets `files/`, which is then a sealed checkpoint, and `records/`.

    Raises:
        DamagedError: It is not what was sealed; names each object.
        CheckpointError: It was removed meanwhile by the one that writes.
        StoreError: The store refused or was not reached.
        OSError: It cannot be written.
    """
    try:
        seal = read_remote_seal(store, row)
        folder = store.at(row.folder)
        faults, sound = _compare_listing(folder, row, seal)
        if not faults:
            (draft / "files").mkdir()
            (draft / "records").mkdir()
            found = download(folder, {key: wanted.size for key, wanted in sound.items()}, draft, _pieces(row))
            faults = _compare_digests(sound, found)
        if faults:
            raise DamagedError(f"{store.url / row.folder} is not what was sealed:", describe(faults))
    except (DamagedError, StoreMissingError) as error:
        _require_there(store, row, error)
        raise
    data, _ = folder.read(FILE)
    if digest_bytes(data) != row.seal:
        raise DamagedError(f"{store.url / row.folder / FILE} changed while it was read")
    write_file(draft / "files" / FILE, data.decode())
    return seal


def _require_there(store: Objects, row: RemoteCheckpoint, error: Exception) -> None:
    """Say of what failed that the checkpoint was removed meanwhile, where it was: this is no damage."""
    now = read_head(store)
    if now is not None and now.checkpoints.get(row.step) != row:
        raise CheckpointError(
            f"{store.url / row.folder} was removed while it was read: the process that writes there removes what its "
            "policy no longer keeps; this is no damage"
        ) from error


def _compare_listing(folder: Objects, row: RemoteCheckpoint, seal: Seal) -> tuple[list[Fault], dict[str, FileDigest]]:
    """Return what is missing or of another size, and the objects that are worth reading."""
    wanted = {f"files/{name}": found for name, found in seal.files.items()}
    wanted |= {f"records/{name}": found for name, found in row.records.items()}
    listing, pieces = folder.list(), _pieces(row)
    faults, sound = [], {}
    for key, expected in wanted.items():
        objects = pieces.get(key, [(key, expected.size)])
        found = [
            fault for name, size in objects if (fault := _compare_size(name, listing.get(name), size)) is not None
        ]
        if (held := sum(size for _, size in objects)) != expected.size:
            found.append(Fault(file=key, problem=f"has pieces of {held} bytes, was sealed with {expected.size}"))
        faults += found
        if not found:
            sound[key] = expected
    return faults, sound


def _pieces(row: RemoteCheckpoint) -> dict[str, list[tuple[str, int]]]:
    """Return the objects of those files that several processes have sent, by the key of the whole."""
    return {f"files/{name}": row.objects(name) for name in row.pieces}


def _compare_size(name: str, entry: ObjectEntry | None, size: int) -> Fault | None:
    if entry is None:
        return Fault(file=name, problem="is missing")
    if entry.size != size:
        return Fault(file=name, problem=f"has {entry.size} bytes, was sealed with {size}")
    return None


def _compare_digests(wanted: dict[str, FileDigest], found: dict[str, FileDigest]) -> list[Fault]:
    return [
        Fault(file=key, problem="does not hold the bytes that were sealed")
        for key, expected in wanted.items()
        if found[key] != expected
    ]

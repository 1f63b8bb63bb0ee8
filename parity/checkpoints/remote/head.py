"""The head of a prefix: one object that says which run it is, who may write, and which checkpoints there are.

It is the only object below a prefix that ever changes, and only by compare-and-swap. A checkpoint exists exactly when
the head names it, which it does last and stops doing first. So a writer that was stopped and woken after another took
over cannot add one: its swap fails, whatever it has uploaded, and no clock decides.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import xxhash

from parity.errors import CheckpointError, explain
from parity.policy import Saved
from parity.storage import BLOCK, FileDigest, parse_json, plain
from parity.storage.stores import StoreUrl

__all__ = ["HEAD", "Owner", "RemoteCheckpoint", "RemoteHead", "head_text", "parse_head", "piece_key"]

HEAD = "parity-run.json"
"""Name of the head, below the prefix."""
SCHEMA = "parity.remote/1"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that may write."""

    host: str
    pid: int
    since: str
    command: str
    token: str
    """Of the run directory, drawn once: a process that holds its lock may follow one that was killed there."""

    @classmethod
    def here(cls, token: str) -> Owner:
        """Return this process.

        Args:
            token: That of its run directory.
        """
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        return cls(host=socket.gethostname(), pid=os.getpid(), since=since, command=_command(), token=token)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since} ({self.command})"


def _command() -> str:
    """Return the command of this process: of a user's program its name alone, as its arguments may hold a key."""
    program = Path(sys.argv[0])
    ours = program.name == "parity" or program.parent.name == "parity"
    return " ".join(sys.argv if ours else sys.argv[:1])[:300]


@dataclass(frozen=True, kw_only=True)
class RemoteCheckpoint:
    """One checkpoint of a prefix, as its head names it."""

    step: int
    epoch: int
    """That of the lease under which it was written, which is part of the names of its objects."""
    metric: float | None
    saved_at: float
    seal: FileDigest
    """Of the object of its seal, which has the digests of all the others."""
    records: Mapping[str, FileDigest] = field(default_factory=dict)
    """Name of each record of the run up to it, to the digest of its object."""
    pieces: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """File of it that several processes have sent, to the bytes of each piece, in order; others are one object."""

    @property
    def folder(self) -> str:
        """Return where its objects are, below the prefix."""
        return f"checkpoints/{self.step}/{self.epoch}"

    @property
    def saved(self) -> Saved:
        """Return what the policy asks of it."""
        return Saved(step=self.step, metric=self.metric, saved_at=self.saved_at)

    def objects(self, file: str) -> list[tuple[str, int]]:
        """Return the objects that hold the pieces of a file, below `folder`, and the bytes of each."""
        starts = accumulate(self.pieces[file], initial=0)
        return [(piece_key(file, start, size), size) for start, size in zip(starts, self.pieces[file], strict=False)]


@dataclass(frozen=True, kw_only=True)
class RemoteHead:
    """What the head of a prefix says."""

    run: str | None = None
    """Hash of the run; None before its first checkpoint."""
    side: str | None = None
    epoch: int
    """Number of the lease: one more with each that takes it."""
    owner: Owner | None
    """Who holds it; None where it was given back."""
    seconds: float
    """How long it is held without being renewed, by the clock of the store."""
    checkpoints: Mapping[int, RemoteCheckpoint] = field(default_factory=dict)
    given_up: tuple[RemoteCheckpoint, ...] = ()
    """Those after a step from which the run was continued on purpose; kept, as `abandoned/` keeps them on disk."""
    unsafe: bool = False
    """Whether the store was taken though it keeps no conditions; who writes there without being told so asks anew."""

    def with_checkpoints(self, checkpoints: Mapping[int, RemoteCheckpoint]) -> RemoteHead:
        """Return the head with other checkpoints."""
        return replace(self, checkpoints=dict(sorted(checkpoints.items())))


def piece_key(file: str, start: int, size: int) -> str:
    """Return where a piece of a file is, below the folder of its checkpoint.

    Its name says which bytes it holds: what a try of before still sends writes nothing else under it.
    """
    return f"pieces/{file}/{start}-{size}"


def head_text(head: RemoteHead) -> str:
    """Return the text of a head: JSON that ends with a digest of itself and is never the same twice."""
    value: dict[str, Any] = {
        "schema": SCHEMA,
        "nonce": uuid.uuid4().hex,
        "run": head.run,
        "side": head.side,
        "epoch": head.epoch,
        "owner": None if head.owner is None else asdict(head.owner),
        "seconds": head.seconds,
        "checkpoints": [_row(one) for one in head.checkpoints.values()],
        "given_up": [_row(one) for one in head.given_up],
    }
    if head.unsafe:
        value["unsafe"] = True
    text = json.dumps(value, indent=1, allow_nan=False)
    return f'{text[:-2]},\n "self": "{xxhash.xxh3_128_hexdigest(text.encode())}"\n}}\n'


def parse_head(data: bytes, url: StoreUrl) -> RemoteHead:
    """Return the head that an object holds.

    Args:
        data: Content of the object.
        url: The prefix, for messages.

    Raises:
        CheckpointError: It is not exactly what was written.
    """
    where = f"{url}/{HEAD}"
    value = parse_json(data, where)
    sealed = value.pop("self", None)
    text = json.dumps(value, indent=1, allow_nan=False)
    if sealed != xxhash.xxh3_128_hexdigest(text.encode()):
        raise CheckpointError(f"{where} was changed: its own digest does not fit")
    try:
        if value["schema"] != SCHEMA:
            raise ValueError(f"written as {value['schema']!r:.40}, this version reads {SCHEMA}")
        rows = [_checkpoint(row) for row in value["checkpoints"]]
        return RemoteHead(
            run=value["run"],
            side=value["side"],
            epoch=int(value["epoch"]),
            owner=_owner(value["owner"]),
            seconds=float(value["seconds"]),
            checkpoints={row.step: row for row in rows},
            given_up=tuple(_checkpoint(row) for row in value["given_up"]),
            unsafe=value.get("unsafe", False) is True,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{where} is not the head of a run: {explain(error)}") from error


def _row(one: RemoteCheckpoint) -> dict[str, Any]:
    return {
        "step": one.step,
        "epoch": one.epoch,
        "metric": plain(one.metric),
        "saved_at": one.saved_at,
        "seal": [one.seal.size, one.seal.digest],
        "records": {name: [found.size, found.digest] for name, found in one.records.items()},
        **({"pieces": {name: [*sizes] for name, sizes in one.pieces.items()}} if one.pieces else {}),
    }


def _checkpoint(row: Mapping[str, Any]) -> RemoteCheckpoint:
    metric = row["metric"]
    return RemoteCheckpoint(
        step=_count(row["step"]),
        epoch=_count(row["epoch"]),
        metric=None if metric is None else float(metric),
        saved_at=float(row["saved_at"]),
        seal=_digest(row["seal"]),
        records={_name(name): _digest(found) for name, found in row["records"].items()},
        pieces={str(name): _sizes(sizes) for name, sizes in row.get("pieces", {}).items()},
    )


def _name(name: str) -> str:
    if "/" in name or name in ("", ".", ".."):
        raise ValueError(f"{name!r} is no name of a record")
    return name


def _sizes(value: Any) -> tuple[int, ...]:
    sizes = tuple(_count(one) for one in value)
    if not sizes or 0 in sizes or any(one % BLOCK for one in sizes[:-1]):
        raise ValueError(f"{value!r:.40} are no sizes of pieces")
    return sizes


def _digest(value: Any) -> FileDigest:
    size, digest = value
    return FileDigest(_count(size), str(digest))


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r:.40} is no count")
    return value


def _owner(value: Any) -> Owner | None:
    if value is None:
        return None
    return Owner(**{one.name: value[one.name] for one in fields(Owner)})

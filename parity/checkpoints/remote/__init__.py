"""Checkpoints of a run at an object store: whole or absent, by one writer for each prefix.

Knows a prefix, its head and the lease on it; what a run does with them is in `parity.runs`.
"""

from parity.checkpoints.remote.fetching import (
    RemoteVerified,
    choose_row,
    fetch,
    read_remote_seal,
    require_head,
    verify_remote,
)
from parity.checkpoints.remote.head import HEAD, Owner, RemoteCheckpoint, RemoteHead, head_text, parse_head
from parity.checkpoints.remote.lease import LEASE_SECONDS, Lease, read_head
from parity.checkpoints.remote.on_disk import Located, assemble_run, fetched_foreign, locate, name_of, on_disk
from parity.checkpoints.remote.opening import require_place
from parity.checkpoints.remote.sending import RECORDS, clean, drop, give_up_after, note_metrics, send
from parity.checkpoints.remote.shares import Carriers, FilePart, Wrote, divide, send_part
from parity.checkpoints.remote.token import read_token, write_token

__all__ = [
    "HEAD",
    "LEASE_SECONDS",
    "RECORDS",
    "Carriers",
    "FilePart",
    "Lease",
    "Located",
    "Owner",
    "RemoteCheckpoint",
    "RemoteHead",
    "RemoteVerified",
    "Wrote",
    "assemble_run",
    "choose_row",
    "clean",
    "divide",
    "drop",
    "fetch",
    "fetched_foreign",
    "give_up_after",
    "head_text",
    "locate",
    "name_of",
    "note_metrics",
    "on_disk",
    "parse_head",
    "read_head",
    "read_remote_seal",
    "read_token",
    "require_head",
    "require_place",
    "send",
    "send_part",
    "verify_remote",
    "write_token",
]

"""A process that saves and sends checkpoints without end, for tests that kill it: prints each step that is there."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from parity.checkpoints import CheckpointStore
from parity.checkpoints.remote import Lease, drop, send
from parity.storage.stores import open_store
from tests.support.sealed import save

KEPT = 2


def main(url: str, home: Path, token: str, first: int, seconds: float) -> None:
    CheckpointStore(home).clean()
    lease = Lease.take(open_store(url), token, seconds=seconds)
    here = [int(one.name) for one in (home / "checkpoints").glob("*") if one.name.isdigit()]
    for step in count(max([first - 1, *here]) + 1):  # what was saved, and not sent before a kill, stays as it is
        path = save(home / "checkpoints", step, saved_at=float(f"{step}.{lease.head.epoch}"))
        send(lease, path, None, {})
        print(step, flush=True)
        drop(lease, list(lease.head.checkpoints)[:-KEPT])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))

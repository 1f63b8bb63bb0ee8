"""What buckets were found to keep, remembered on this machine: a bucket is probed once, and not for each prefix.

Conditions, lists and uploads are the work of the store and alike in all of a bucket. What credentials may do is
decided for each prefix, and tried there each time that a prefix is new.
"""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import xxhash

from parity.errors import ParityError, RunDirectoryError
from parity.storage.atomic import replace_file
from parity.storage.stores.cache import cached
from parity.storage.stores.objects import Objects
from parity.storage.stores.probing import TRIED, Probed, ProbeRow, probe
from parity.storage.untrusted import read_json

__all__ = ["ask", "require_safe"]

FRESH_SECONDS = 30 * 86400.0
"""How long it is remembered: a store may be exchanged, or its settings."""


def ask(store: Objects, *, again: bool = False) -> Probed:
    """Return what a bucket keeps: as it was found on this machine, or by a probe now.

    Args:
        store: A place in the bucket.
        again: Whether it is probed though it is remembered.

    Raises:
        StoreError: The store refused or was not reached: nothing is known of it.
    """
    place = _place(store)
    found = None if again else _recall(place)
    if found is None:
        found = probe(store)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            replace_file(place, _text(found))
        except OSError:
            pass  # the next start asks again
    return found


def require_safe(store: Objects) -> None:
    """Check that a store keeps what checkpoints rely on, and that these credentials may do it below a new prefix.

    Raises:
        RunDirectoryError: It does not; names each thing.
        StoreError: The store refused or was not reached.
    """
    if (known := _recall(_place(store))) is not None and known.safe:
        _try_permissions(store)
        return
    if problems := ask(store, again=True).problems:
        seen = "; ".join(f"{row.name}: {row.problem}" for row in problems[:3])
        raise RunDirectoryError(
            f"{store.url}: this store does not keep what checkpoints need ({seen}). `parity remote probe` shows all; "
            "--remote-unsafe takes it without what is lost"
        )


def _try_permissions(store: Objects) -> None:
    """Do once what a run does later, such as a removal after hours: one that is not allowed is said now."""
    key = f"probe-{uuid.uuid4().hex}"
    store.put(key, key.encode())
    store.read(key)
    store.first(1)
    store.delete([key])


def _place(store: Objects) -> Path:
    """Return where it is remembered; of the endpoint only a digest, as a URL may hold a password."""
    where = xxhash.xxh3_128_hexdigest(store.endpoint.encode())
    return cached("probed") / f"{store.url.scheme}-{store.url.bucket}-{where}.json"


def _recall(place: Path) -> Probed | None:
    """Return what is remembered; None where nothing is, or it is old, of another version, or cannot be read."""
    try:
        held = read_json(place)
        rows = tuple(ProbeRow(str(row["name"]), str(row["promise"]), str(row["problem"])) for row in held["rows"])
        fresh = 0 <= time.time() - float(held["at"]) < FRESH_SECONDS
    except (ParityError, KeyError, TypeError, ValueError):
        return None
    same = [(row.name, row.promise) for row in rows] == [(name, promise) for name, promise, _ in TRIED]
    return Probed(rows) if fresh and same else None


def _text(found: Probed) -> str:
    rows = [{"name": row.name, "promise": row.promise, "problem": row.problem} for row in found.rows]
    return json.dumps({"at": time.time(), "rows": rows}, indent=1) + "\n"

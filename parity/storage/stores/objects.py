"""The objects below one place of a store: put, put if absent, swapped, read, listed, deleted.

A conditional put whose answer was lost is repeated by the client, and then fails by its own first success. So the
body of each is unique, and where one fails, the object is read: it holds our body, or somebody else's.
"""

from __future__ import annotations

import builtins
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from parity.errors import StoreConflictError, StoreContentionError, StoreError, StoreMissingError
from parity.storage.stores.problems import translated
from parity.storage.stores.url import StoreUrl
from parity.storage.untrusted import MAX_BYTES

__all__ = ["ObjectEntry", "Objects", "Version"]

Version = tuple[str | None, str | None]
"""What tells the content of an object from an earlier one: its ETag, and its generation where the store has one."""

CONFLICTS = 6
"""How often a put is tried that the store answers with a conflict, though the object is as it must be: S3 does so
(409) while another conditional put is on its way."""


@dataclass(frozen=True)
class ObjectEntry:
    """What a store says of one object."""

    size: int
    version: Version
    modified: float
    """Seconds since the epoch, by the clock of the store."""


class Objects:
    """The objects below one place; keys are relative to it.

    Args:
        store: obstore's.
        url: The place.
        endpoint: Where requests go; empty for the cloud that the URL names.
    """

    def __init__(self, store: Any, url: StoreUrl, endpoint: str = "") -> None:
        self._store, self.url, self.endpoint = store, url, endpoint
        self.conditional = True
        """Whether conditions are asked for; plain puts take their place where a user has said so."""

    def at(self, name: str) -> Objects:
        """Return the objects below a part of this place."""
        return self._moved(self.url / name)

    def up(self) -> Objects:
        """Return the objects below the place one part further up."""
        return self._moved(self.url.parent)

    def _moved(self, url: StoreUrl) -> Objects:
        other = Objects(self._store, url, self.endpoint)
        other.conditional = self.conditional
        return other

    def path(self, key: str) -> str:
        """Return the key in the bucket."""
        return (self.url / key).key if key else self.url.key

    def read(self, key: str, most: int = MAX_BYTES) -> tuple[bytes, ObjectEntry]:
        """Return the content of an object, and what the store says of it.

        Args:
            key: The object.
            most: Largest size in bytes.

        Raises:
            StoreMissingError: There is none.
            StoreError: It is larger, or cannot be read.
        """
        import obstore

        with translated(self.url / key, "read"):
            found = obstore.get(self._store, self.path(key))
            entry = _entry(found.meta)
            if entry.size > most:
                raise StoreError(self.url / key, f"is longer than {most:,} bytes")
            data = bytes(found.bytes())
        if len(data) != entry.size:
            raise StoreError(self.url / key, f"has {entry.size} bytes, and {len(data)} came", transient=True)
        return data, entry

    def read_range(self, key: str, start: int, size: int) -> memoryview:
        """Return a range of the bytes of an object.

        Raises:
            StoreMissingError: There is no such object.
            StoreError: It ends before, or cannot be read.
        """
        import obstore

        with translated(self.url / key, "read"):
            data = memoryview(obstore.get_range(self._store, self.path(key), start=start, length=size))
        if len(data) != size:
            raise StoreError(self.url / key, f"gave {len(data)} bytes from {start} on, expected {size}")
        return data

    def look_around(self) -> None:
        """Check that the place can be read: an answer to this request says what is wrong, one to `look` does not.

        Raises:
            StoreError: The store refused or was not reached.
        """
        import obstore

        with suppress(StoreMissingError), translated(self.url, "read"):
            obstore.get(self._store, self.path(f"absent-{uuid.uuid4().hex}"))

    @contextmanager
    def writing(self, key: str, part: int) -> Iterator[Callable[[bytes], None]]:
        """Yield what takes the bytes of an object, part by part; it is complete when the block ends without an error.

        Args:
            key: The object.
            part: Bytes of one part.

        Raises:
            StoreError: The store refused or was not reached.
        """
        import obstore

        where = self.url / key
        with translated(where, "write"):
            writer: Any = obstore.open_writer(self._store, self.path(key), buffer_size=part)

        def write(data: bytes) -> None:
            with translated(where, "write"):
                writer.write(data)

        yield write
        with translated(where, "write"):
            writer.close()

    def look(self, key: str) -> ObjectEntry:
        """Return what the store says of an object.

        Raises:
            StoreMissingError: There is none.
            StoreError: The store refused.
        """
        import obstore

        with translated(self.url / key, "look at"):
            return _entry(obstore.head(self._store, self.path(key)))

    def put(self, key: str, data: bytes) -> Version:
        """Write an object, whatever was there.

        Raises:
            StoreError: It could not be written.
        """
        import obstore

        with translated(self.url / key, "write"):
            return _version(obstore.put(self._store, self.path(key), data, use_multipart=False))

    def create(self, key: str, data: bytes) -> Version:
        """Write an object that is not there yet.

        Args:
            key: The object.
            data: A body that no other writer gives.

        Raises:
            StoreConflictError: It is there.
            StoreError: It could not be written.
        """
        return self._write_if(key, data, None)

    def swap(self, key: str, data: bytes, version: Version) -> Version:
        """Replace an object by another content, if it is still of a version.

        Args:
            key: The object.
            data: A body that no other writer gives.
            version: That of the content that is replaced.

        Raises:
            StoreConflictError: It is another one by now, or gone.
            StoreError: It could not be written.
        """
        return self._write_if(key, data, version)

    def _write_if(self, key: str, data: bytes, version: Version | None) -> Version:
        if not self.conditional:
            return self.put(key, data)
        for attempt in range(CONFLICTS):
            try:
                return self._write_once(key, data, version)
            except (StoreConflictError, StoreMissingError) as error:
                try:
                    held, entry = self.read(key)
                except StoreMissingError:
                    if version is not None:
                        raise StoreConflictError(self.url / key, "another writer removed it") from error
                else:
                    if held == data:  # an earlier try was carried out, and its answer lost
                        return entry.version
                    if version is None or entry.version != version:
                        raise StoreConflictError(self.url / key, "another writer changed it first") from error
                time.sleep(0.03 * 2**attempt)
        problem = "the store refuses every conditional put as a conflict"
        raise StoreContentionError(self.url / key, problem, transient=True)

    def _write_once(self, key: str, data: bytes, version: Version | None) -> Version:
        import obstore

        names = zip(("e_tag", "version"), version, strict=True) if version is not None else ()
        mode: Any = "create" if version is None else {name: value for name, value in names if value is not None}
        with translated(self.url / key, "write"):
            return _version(obstore.put(self._store, self.path(key), data, mode=mode))

    def first(self, most: int) -> builtins.list[str]:
        """Return some of the keys below this place, the first that the store gives; the rest is not asked for.

        Raises:
            StoreError: The store refused.
        """
        import obstore

        base = f"{self.url.key}/" if self.url.key else ""
        with translated(self.url, "list"):
            chunk = next(iter(obstore.list(self._store, self.url.key or None, chunk_size=most)), [])
        return [row["path"].removeprefix(base) for row in chunk if row["path"].startswith(base)]

    def list(self, prefix: str = "") -> dict[str, ObjectEntry]:
        """Return the objects below a part of this place, by key relative to the place.

        Raises:
            StoreError: The store refused.
        """
        import obstore

        base = f"{self.url.key}/" if self.url.key else ""
        asked = f"{base}{prefix}".rstrip("/")
        with translated(self.url / prefix if prefix else self.url, "list"):
            rows = [row for chunk in obstore.list(self._store, asked or None) for row in chunk]
        return {row["path"].removeprefix(base): _entry(row) for row in rows if row["path"].startswith(base)}

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are not there are no error.

        Raises:
            StoreError: The store refused.
        """
        import obstore

        for key in keys:  # one by one: in one request S3 gives no status of its own, and other stores know none
            try:
                with translated(self.url / key, "delete"):
                    obstore.delete(self._store, self.path(key))
            except StoreMissingError:
                continue

    @property
    def raw(self) -> Any:
        """Return obstore's own, for transfers."""
        return self._store


def _entry(row: Any) -> ObjectEntry:
    return ObjectEntry(int(row["size"]), _version(row), row["last_modified"].timestamp())


def _version(row: Any) -> Version:
    return row.get("e_tag"), row.get("version")

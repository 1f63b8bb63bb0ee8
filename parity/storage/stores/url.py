"""URLs of object stores: `s3://bucket/prefix` and `gs://bucket/prefix`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Literal, cast

from parity.errors import RunDirectoryError

__all__ = ["Scheme", "StoreUrl", "is_url", "parse_url"]

Scheme = Literal["s3", "gs"]

_URL = re.compile(r"(s3|gs)://([^/]*)(?:/(.*))?", re.DOTALL)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")

MOST_KEY = 800
"""Longest prefix, in bytes; both stores take keys of 1,024, and names of files come behind it."""


@dataclass(frozen=True)
class StoreUrl:
    """A place in a bucket."""

    scheme: Scheme
    bucket: str
    key: str = ""
    """Without a slash at either end; empty for the bucket itself."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/")

    @property
    def name(self) -> str:
        """Return the last part of the key; the bucket where there is none."""
        return self.key.rpartition("/")[2] or self.bucket

    @property
    def parent(self) -> StoreUrl:
        """Return the place one part further up; the bucket is its own."""
        return replace(self, key=self.key.rpartition("/")[0])

    def __truediv__(self, name: str) -> StoreUrl:
        return replace(self, key=f"{self.key}/{name}" if self.key else name)


def is_url(text: str | os.PathLike[str]) -> bool:
    """Return whether a text is meant as a place in a store that is known.

    Example:
        >>> is_url("s3://bucket/run"), is_url("runs/s3"), is_url("https://host/x")
        (True, False, False)
    """
    return os.fspath(text).startswith(("s3://", "gs://"))


def parse_url(text: str) -> StoreUrl:
    """Return the place that a URL names.

    Raises:
        RunDirectoryError: It is of another kind, has no bucket, or holds what does not belong into a URL, such as a
            key; the message repeats nothing of a part in which a credential could stand.

    Example:
        >>> parse_url("s3://bucket/runs/a/")
        StoreUrl(scheme='s3', bucket='bucket', key='runs/a')
    """
    found = _URL.fullmatch(text)
    if found is None:
        kind = text.partition(":")[0][:20]
        raise RunDirectoryError(f"a URL of kind {kind!r} is not known; s3://BUCKET/PREFIX and gs://BUCKET/PREFIX are")
    scheme, bucket, key = found[1], found[2], (found[3] or "").strip("/")
    if set("@:") & set(bucket) or "?" in text or "#" in text:
        raise RunDirectoryError(
            f"a {scheme}:// URL takes no user, no question mark, no hash and no port: give {scheme}://BUCKET/PREFIX; "
            "keys and the endpoint come from the environment or a profile (docs/remote.md)"
        )
    if not _BUCKET.fullmatch(bucket):
        raise RunDirectoryError(f"{scheme}://{bucket[:80]}: {bucket[:80]!r} is no name of a bucket")
    parts = key.split("/") if key else []
    if {"", ".", ".."} & set(parts) or not key.isprintable() or len(key.encode("utf-8", "replace")) > MOST_KEY:
        raise RunDirectoryError(
            f"{scheme}://{bucket}: the prefix must be printable, at most {MOST_KEY} bytes, and have no part that is "
            f"empty, '.' or '..', got {key[:80]!r}"
        )
    return StoreUrl(cast(Scheme, scheme), bucket, key)

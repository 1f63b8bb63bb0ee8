"""Saves without their seal: no digest of a leaf, of a file or of a range is computed, all else is as it was."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from parity.storage import FileDigest

__all__ = ["NOTHING", "unsealed"]

NOTHING = FileDigest(0, "0" * 32)


class Unread:
    """Stands for XXH3-128, and looks at nothing."""

    def update(self, data: object) -> None:
        """Take no notice."""

    def digest(self) -> bytes:
        """Return a digest of nothing."""
        return bytes(16)


@contextmanager
def unsealed(side: str) -> Iterator[None]:
    """Save as always in the block, but digest nothing.

    Args:
        side: `jax` or `torch`.
    """
    hashes = SimpleNamespace(xxh3_128=Unread, xxh3_128_hexdigest=lambda data: NOTHING.digest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("parity.storage.digests"), "xxhash", hashes)
        patch.setattr(importlib.import_module("parity.checkpoints.saving").SaveUnderWay, "leaves", lambda save: {})
        sealing = importlib.import_module("parity.checkpoints.seal")
        patch.setattr(sealing, "digest_files", lambda root, names: dict.fromkeys(names, NOTHING))
        patch.setattr(importlib.import_module(f"{side}_side.checkpoint"), "places", lambda *args: {})
        yield

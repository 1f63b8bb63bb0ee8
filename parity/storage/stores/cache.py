"""Directories of this machine for what is named by its URL: of a run, of a manager, of what a bucket keeps.

They are below `XDG_CACHE_HOME`, or `~/.cache`; what lies there can be removed at any time, and is made anew.
"""

from __future__ import annotations

import os
from pathlib import Path

from parity.storage.stores.url import StoreUrl

__all__ = ["cache_of", "cached"]


def cache_of(url: StoreUrl, what: str = "runs") -> Path:
    """Return the directory of this machine for what is named by a URL, the same each time.

    Args:
        url: What is named.
        what: What it is: directories of different kinds of things at one URL are different ones.
    """
    return cached(what) / url.scheme / url.bucket / url.key


def cached(name: str) -> Path:
    """Return a place in the cache of this machine."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "parity" / name

"""The cache of the checks: envelopes and durations of earlier runs, which cost only time when they are lost."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from parity.storage import replace_file

__all__ = ["cache_directory", "read_durations", "write_durations"]

MOST_DURATIONS = 1_000
"""Durations that are kept; those of the last run always are."""


def cache_directory() -> Path:
    """Return the directory of the cache: PARITY_CACHE, or ~/.cache/parity."""
    return Path(os.environ.get("PARITY_CACHE") or Path.home() / ".cache" / "parity")


def read_durations() -> dict[str, float]:
    """Return the name of a check to the seconds that it took the last time; nothing where the cache has none."""
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
        return {str(name): float(value) for name, value in found.items() if 0 <= float(value) < math.inf}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_durations(durations: Mapping[str, float]) -> None:
    """Keep the durations of a run for the next one; a cache that cannot be written is no error."""
    kept = {name: value for name, value in read_durations().items() if name not in durations} | dict(durations)
    with suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        replace_file(_file(), json.dumps(dict(list(kept.items())[-MOST_DURATIONS:])) + "\n")


def _file() -> Path:
    return cache_directory() / "durations.json"

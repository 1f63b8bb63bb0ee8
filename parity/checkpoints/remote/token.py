"""What the lease of a prefix is known by in one directory of this machine: who follows whom there without waiting.

A process that holds the lock of a directory is the only one that uses its token. So a lease with this token is of a
process that has ended, and is taken over at once.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from parity.errors import ParityError
from parity.storage import read_json, replace_file
from parity.storage.stores import StoreUrl

__all__ = ["read_token", "write_token"]

TOKEN = "remote.json"
"""Name of the file."""


def read_token(directory: Path, url: StoreUrl) -> str:
    """Return the token of a directory; a new one where there is none, or one for another prefix."""
    try:
        held = read_json(directory / TOKEN)
    except ParityError:
        return uuid.uuid4().hex
    token = held.get("token")
    return token if held.get("url") == str(url) and isinstance(token, str) else uuid.uuid4().hex


def write_token(directory: Path, url: StoreUrl, token: str) -> None:
    """Keep the token in a directory, whose lock is held.

    Raises:
        OSError: It cannot be written.
    """
    replace_file(directory / TOKEN, json.dumps({"url": str(url), "token": token}) + "\n")

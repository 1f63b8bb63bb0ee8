"""What a verdict has to say of a loss: where it is named, and that something was not seen or differs."""

from __future__ import annotations

import re
from collections.abc import Collection

from parity.results import Resumption

__all__ = ["listed", "named", "says_so"]


def _has(text: str, words: Collection[str]) -> bool:
    return any(re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", text) for word in words)


def named(found: Resumption, words: Collection[str]) -> bool:
    """Return whether the first suspect is the place, or the file or value that shows it.

    Where the place cannot be looked into, it has to be listed as not seen, and the first suspect is what it moved.
    """
    if not found.suspects:
        return False
    first = found.suspects[0].path
    shown = _has(first, words) or _has(first, ("average", "return", "returned", "returns"))
    return shown or any(_has(line, words) for line in found.unseen)


def listed(found: Resumption, words: Collection[str]) -> bool:
    """Return whether the place is listed: as bookkeeping that differs, or as not seen."""
    return any(_has(line, words) for line in (*(one.path for one in found.bookkeeping), *found.unseen))


def says_so(found: Resumption) -> bool:
    """Return whether the first line of the verdict says that something differs or was not seen."""
    return bool(re.search(r"not seen|unseen|bookkeeping|differ", found.text().splitlines()[0]))

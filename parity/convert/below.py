"""Checkpoints in a folder, and folders further below that hold some: the advice where a folder above was given."""

from __future__ import annotations

import os
from pathlib import Path

from parity.formats import is_checkpoint

__all__ = ["advice_of_contents", "advice_of_folders", "folders_of_checkpoints"]

MOST_LOOKED_AT = 2000
"""Entries; a folder of data may hold millions."""
MOST_DEPTH = 4
MOST_SHOWN = 4
MOST_HELD = 100
"""Entries of a folder that are looked into to say which are checkpoints."""


def folders_of_checkpoints(folder: Path) -> list[Path]:
    """Return the folders below one that hold checkpoints right in them, as far as a bounded look sees.

    Args:
        folder: Holds none itself, such as Lightning's `lightning_logs` or its `version_0`.
    """
    found: list[Path] = []
    level, left = [folder], MOST_LOOKED_AT
    for _ in range(MOST_DEPTH):
        deeper: list[Path] = []
        for one in level:
            entries = _entries(one, left)
            left -= len(entries)
            held = [entry for entry in entries if is_checkpoint(entry)]
            if held and one != folder:
                found.append(one)
            deeper += [entry for entry in entries if entry not in held and entry.is_dir() and not entry.is_symlink()]
        level = deeper
    return found


def advice_of_folders(folder: Path) -> str:
    """Return which folders below one to give instead, to follow an error; empty if there is none."""
    found = folders_of_checkpoints(folder)
    if not found:
        return ""
    more = f" and {len(found) - MOST_SHOWN:,} more" if len(found) > MOST_SHOWN else ""
    shown = ", ".join(map(str, found[:MOST_SHOWN]))
    which = "the folder that holds them" if len(found) == 1 else "one of the folders that hold them"
    return f"; give {which}: {shown}{more}"


def advice_of_contents(folder: Path) -> str:
    """Return which checkpoints in a folder to give instead, or which folders below it; empty if there is none."""
    held = [one for one in _entries(folder, MOST_HELD) if is_checkpoint(one)]
    if not held:
        return advice_of_folders(folder)
    which = "the one" if len(held) == 1 else "one of those"
    return f"; give {which} in it: {', '.join(map(str, held[:MOST_SHOWN]))}{', ...' * (len(held) > MOST_SHOWN)}"


def _entries(folder: Path, most: int) -> list[Path]:
    names: list[str] = []
    try:
        with os.scandir(folder) as rows:
            for row in rows:
                if len(names) >= most:
                    break
                if not row.name.startswith("."):
                    names.append(row.name)
    except OSError:
        return []
    return [folder / name for name in sorted(names)]

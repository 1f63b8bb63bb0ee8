"""Folders further below that hold checkpoints, for the advice where a folder above them was given."""

from __future__ import annotations

import os
from pathlib import Path

from parity.convert.opening import is_checkpoint

__all__ = ["advice_of_folders", "folders_of_checkpoints"]

MOST_LOOKED_AT = 2000
"""Entries; a folder of data may hold millions."""
MOST_DEPTH = 4
MOST_SHOWN = 4


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


def _entries(folder: Path, most: int) -> list[Path]:
    names = []
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

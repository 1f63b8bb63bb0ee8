"""`latest.json` and `best.json` of a run: small files that name a checkpoint, for people and scripts.

The suite itself believes only a scan of `checkpoints/`. A pointer is replaced atomically, and before anything
is removed, so it names a checkpoint that is there; one that names a missing one shows that something was lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from parity import policy
from parity.errors import CheckpointError, RunDirectoryError
from parity.storage import named, plain, read_json, replace_file

__all__ = ["mode_in", "read_mode", "read_pointer", "write_pointers"]


def read_pointer(file: Path) -> policy.Saved | None:
    """Return what a pointer names; None where there is none, or none that can be read."""
    try:
        value = read_json(file)
        metric = None if value["metric"] is None else float(value["metric"])
        return policy.Saved(step=int(value["step"]), metric=metric)
    except (CheckpointError, KeyError, TypeError, ValueError, OverflowError):
        return None


def read_mode(file: Path) -> policy.Mode | None:
    """Return by what the checkpoint of a pointer is the best; None where that is not written, or cannot be read."""
    try:
        return mode_in(read_json(file))
    except CheckpointError:
        return None


def mode_in(pointer: Mapping[str, Any]) -> policy.Mode | None:
    """Return what the content of a pointer says is better; None where that is not written."""
    return next((mode for mode in get_args(policy.Mode) if mode == pointer.get("mode")), None)


def write_pointers(home: Path, saved: Iterable[policy.Saved], mode: policy.Mode | None) -> None:
    """Make the pointers in a directory name the latest and the best of some checkpoints; remove one that has none.

    Args:
        home: The directory, which has the checkpoints in `checkpoints/`.
        saved: The checkpoints, in any order.
        mode: Whether a larger metric is better, or a smaller one; None where no best is asked for.

    Raises:
        RunDirectoryError: Something else has the name of a pointer.
        OSError: It cannot be written.
    """
    saved = list(saved)
    for name, chosen in (("latest", policy.latest(saved)), ("best", policy.best(saved, mode))):
        target = home / f"{name}.json"
        if chosen is None:
            with named(target, "remove"):
                target.unlink(missing_ok=True)
            continue
        value: dict[str, Any] = {
            "step": chosen.step,
            "metric": plain(chosen.metric),
            "path": f"checkpoints/{chosen.step}",
        }
        if name == "best":
            value["mode"] = mode
        text = json.dumps(value) + "\n"
        if target.is_dir():
            raise RunDirectoryError(f"{target} is a directory, and should be a pointer; move it away")
        with named(target, "read"):
            same = target.is_file() and target.read_bytes() == text.encode()
        if not same:
            replace_file(target, text)

"""The latest and the best checkpoint in a directory of another tool, by what the tool wrote down."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Literal

from parity.convert.below import advice_of_folders
from parity.convert.opening import open_any
from parity.errors import CheckpointError
from parity.formats import TRACKER, Opaque, Tree, is_checkpoint, newest_of_megatron
from parity.storage import MAX_BYTES, read_given

__all__ = ["choose"]

_STEP = re.compile(r"(?:^|[^0-9A-Za-z]|[A-Za-z][-_=])(\d{1,15})(?=[^0-9]*$)")
"""The last number of a name, such as that of `checkpoint-500`, `epoch=3-step=1200.ckpt`, `step_100.pt`, `300`."""

_TEMPORARY = re.compile(r"\.tmp$|\.orbax-checkpoint-tmp|^tmp|^\.|~$|\.part$")
"""Names of drafts that were never finished."""


def choose(folder: Path, which: Literal["best", "latest"] | int) -> tuple[Path, str]:
    """Return a checkpoint in a directory that a tool fills, and why it is that one.

    The latest is the one that DeepSpeed's file `latest` or that of Megatron's tracker names, else the one of the
    largest number in its name; times of files are not looked at, as a copy changes them. The best is what the tool
    recorded: `best_model_checkpoint` of transformers' Trainer, `best_model_path` of a Lightning callback.

    Args:
        folder: The directory.
        which: The latest, the best, or the number in its name.

    Returns:
        The checkpoint, and the reason as a phrase.

    Raises:
        CheckpointError: None has a number, or not the one that was asked for, or two have it; what is best was not
            recorded; it is gone.
    """
    if which == "best":
        return _best(folder)
    pointer = folder / "latest"
    if which == "latest" and pointer.is_file():
        return _pointed(folder, pointer)
    if which == "latest" and (folder / TRACKER).is_file():
        return newest_of_megatron(folder), f"the file {TRACKER} names it"
    numbered = _numbered(folder)
    # thousands of files are told by their names: only those that may be the one are looked into
    wanted = sorted(numbered, reverse=True) if which == "latest" else [which]
    rows = ((number, list(filter(is_checkpoint, numbered.get(number, ())))) for number in wanted)
    number, found = next(((number, one) for number, one in rows if one), (0, []))
    if len(found) == 1:
        return found[0], f"{number} is the {'largest ' if which == 'latest' else ''}number in a name"
    if which == "latest" and not found:  # all were looked into
        numbered = {}
    numbered = {number: held for number, one in numbered.items() if (held := list(filter(is_checkpoint, one)))}
    if not numbered:
        if is_checkpoint(folder):
            raise CheckpointError(f"{folder} is one checkpoint, and holds no others with a number in their names")
        raise CheckpointError(
            f"{folder} holds no checkpoint with a number in its name; there are {_names(folder)}"
            f"{advice_of_folders(folder)}"
        )
    number = max(numbered) if which == "latest" else which
    found = numbered.get(number, [])
    have = ", ".join(map(str, sorted(numbered)[-8:]))
    problem = f"names {len(found)} of them: {', '.join(p.name for p in found)}" if found else f"is not among {have}"
    raise CheckpointError(f"{folder}: number {number} {problem}")


def _numbered(folder: Path) -> dict[int, list[Path]]:
    """Return what may be a checkpoint in a directory, by the last number in its name; drafts are left out.

    The files of a directory that is a checkpoint itself are parts of it, such as the random states of one process.
    """
    found: dict[int, list[Path]] = {}
    of_one = is_checkpoint(folder)
    for entry in sorted(folder.iterdir()):
        if of_one and entry.is_file():
            continue
        match = _STEP.search(entry.stem if entry.is_file() else entry.name)
        if match and not _TEMPORARY.search(entry.name):
            found.setdefault(int(match[1]), []).append(entry)
    return found


def _pointed(folder: Path, pointer: Path) -> tuple[Path, str]:
    try:
        name = read_given(pointer, 4096).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{pointer} cannot be read: {error}") from error
    if not name or Path(name).name != name:
        raise CheckpointError(f"{pointer} names {name[:80]!r}, which is no directory beside it")
    if not os.path.lexists(folder / name):
        raise CheckpointError(f"{pointer} names {name}, which is not there; there are {_names(folder)}")
    return folder / name, f"the file {pointer.name} names it"


def _best(folder: Path) -> tuple[Path, str]:
    numbered, some = _numbered(folder), False
    for number in sorted(numbered, reverse=True):
        for path in filter(is_checkpoint, numbered[number]):
            some = True
            recorded, why = _recorded_best(path)
            if recorded:
                best = folder / Path(recorded).name
                if not os.path.lexists(best):
                    raise CheckpointError(
                        f"{path} says that {Path(recorded).name} is the best, and it is not in {folder}"
                    )
                return best, why
    if not some and (advice := advice_of_folders(folder)):
        raise CheckpointError(f"{folder} holds no checkpoint itself; there are {_names(folder)}{advice}")
    raise CheckpointError(
        f"{folder}: which checkpoint is the best is unknown: no trainer_state.json has a best_model_checkpoint, and "
        "no checkpoint of Lightning a best_model_path; a run of this project records it"
    )


def _recorded_best(path: Path) -> tuple[str, str]:
    """Return what a checkpoint says is the best of its run, and where it says so."""
    state = path / "trainer_state.json"
    if path.is_dir():
        if not state.is_file():
            return "", ""
        try:
            value = json.loads(read_given(state, MAX_BYTES)).get("best_model_checkpoint")
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{state} cannot be read: {error}") from error
        return (value, f"best_model_checkpoint in {path.name}/{state.name}") if isinstance(value, str) else ("", "")
    tree = open_any(path).tree
    callbacks = tree.get("callbacks") if isinstance(tree, dict) else None
    found = [value for value in _values(callbacks, "best_model_path") if value]
    if len(set(found)) > 1:
        raise CheckpointError(
            f"{path}: {len(set(found))} callbacks have a best of their own: {', '.join(sorted(set(found)))}"
        )
    return (found[0], f"best_model_path in {path.name}") if found else ("", "")


def _values(tree: Tree, key: str) -> list[str]:
    if isinstance(tree, Opaque):
        return _values(tree.content, key)
    if not isinstance(tree, dict):
        return []
    own = [tree[key]] if isinstance(tree.get(key), str) else []
    return own + [found for child in tree.values() for found in _values(child, key)]


def _names(folder: Path) -> str:
    names = sorted(os.listdir(folder))
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "") if names else "no entries at all"

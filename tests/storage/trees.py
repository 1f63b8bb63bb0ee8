"""A process on a failing disk that saves trees by themselves and in a manager.

python -m tests.storage.trees SIDE DIRECTORY STRIDE

It prints one line of JSON for each fault: what was raised, and what must never be.
"""

import importlib
import itertools
import json
import logging
import sys
from pathlib import Path
from typing import Any

from parity.checkpoints import CheckpointStore, verify
from parity.errors import CheckpointError, SaveError
from tests.crash.tree_workload import tree
from tests.storage.disk import FAULTS, REASONS, Disk

NAMES = ("full", "read-only", "failing-once", "full-once")


def try_alone(module: Any, side: str, home: Path, disk: Disk, name: str, n: int) -> dict[str, Any]:
    """Save a tree by itself while the n-th operation fails, and once more on a sound disk."""
    path, errors = home / f"{name} {n}", []
    with disk.failing(FAULTS[name], n):
        try:
            module.save(path, tree(side, n))
        except CheckpointError as error:
            errors.append(str(error))
    wrong = [f"{path.name} is not whole"] if path.exists() and not verify(path).whole else []
    wrong += ["no error, and no checkpoint"] if not errors and not path.exists() else []
    for text in errors:
        said = text.startswith(f"{path} is saved, but" if path.exists() else f"{path} could not be saved: ")
        wrong += [] if said and "\n" not in text and REASONS[FAULTS[name].error] in text else [f"says {text}"]
    if not path.exists():  # where the tree is saved, the failing disk may have kept the lock's folder beside it
        module.save(path, tree(side, n))
        wrong += [f"left {entry.name}" for entry in home.iterdir() if entry.name == f".draft-{path.name}"]
    return {"what": "alone", "fired": disk.order.fired, "errors": errors, "wrong": wrong}


def try_managed(module: Any, side: str, home: Path, disk: Disk, name: str, n: int, step: int) -> dict[str, Any]:
    """Save the next step of a manager while the n-th operation fails; the one before stays."""
    errors, store = [], CheckpointStore(home)
    manager = module.CheckpointManager(home)
    with disk.failing(FAULTS[name], n):
        for act in (lambda: manager.save(step, tree(side, step)), manager.close):
            try:
                act()
            except (CheckpointError, SaveError) as error:
                errors.append(str(error))
    whole = [saved.step for saved in store.scan().whole]
    wrong = [f"whole are {whole}"] if not {0, step - 1} & {*whole} else []
    wrong += [f"{one} is not whole" for one in whole if not verify(store.path / str(one)).whole]
    wrong += [f"{name} looks like a checkpoint: {why}" for name, why in store.scan().damaged]
    wrong += ["no error, and no checkpoint"] if not errors and step not in whole else []
    wrong += [f"says {text}" for text in errors if "\n" in text or REASONS[FAULTS[name].error] not in text]
    if step not in whole:
        with module.CheckpointManager(home) as again:
            again.save(step, tree(side, step))
    wrong += [f"left {e.name}" for e in store.path.iterdir() if e.name.startswith(".")] if step not in whole else []
    return {"what": "managed", "fired": disk.order.fired, "errors": errors, "wrong": wrong}


def main(side: str, home: Path, stride: int) -> None:
    """Fail every operation in turn, or one of so many."""
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    module: Any = importlib.import_module(f"{side}_side")
    for folder in ("alone", "managed"):
        (home / folder).mkdir()
    disk = Disk(home)
    with module.CheckpointManager(home / "managed") as manager:
        manager.save(0, tree(side, 0))
    step = 0
    for name in NAMES:
        for n in itertools.count(1, stride):
            step += 1
            tried = [
                try_alone(module, side, home / "alone", disk, name, n),
                try_managed(module, side, home / "managed", disk, name, n, step),
            ]
            for one in tried:
                print(json.dumps(one), flush=True)
            if not any(one["fired"] for one in tried):
                break
    print("end", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))

"""The process that is recorded: trees saved by a manager, the second in place of the first, and one by itself.

python tests/crash/tree_workload.py SIDE DIRECTORY
"""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from parity import sides
from parity.policy import Rules
from tests.crash.operations import MARK

__all__ = ["ALONE", "READY", "REPLACED", "STEPS", "tree"]

READY, REPLACED, ALONE = 1, 2, 3
"""Moments: the first save is complete; the second is, and the first is gone; a tree by itself is saved."""
STEPS = (1, 2)


def tree(side: str, step: int) -> dict[str, Any]:
    """Return the items of a step."""
    values = np.full(300, step, np.float32)
    module: Any = importlib.import_module("torch" if side == "torch" else "jax.numpy")
    return {"params": {"w": module.asarray(values), "none": None}, "config": {"step": step}}


def main(side: str, directory: Path) -> None:
    """Save twice, and once by itself."""
    if prepare := getattr(sides.load(side), "prepare_process", None):
        prepare()
    module: Any = importlib.import_module(f"{side}_side")
    with module.CheckpointManager(directory, keep=Rules(mode="min", keep_latest=1, keep_best=0)) as manager:
        manager.save(STEPS[0], tree(side, STEPS[0]))
        manager.wait()
        os.access(f"{MARK}{READY}", os.F_OK)
        manager.save(STEPS[1], tree(side, STEPS[1]))
        manager.wait()
        os.access(f"{MARK}{REPLACED}", os.F_OK)
    module.save(directory / "alone", tree(side, 0))
    os.access(f"{MARK}{ALONE}", os.F_OK)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

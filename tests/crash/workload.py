"""The process that is recorded: a run that saves, starts again, saves a second time and removes the first checkpoint.

    python tests/crash/workload.py SIDE DIRECTORY

It asks for paths that do not exist, `MARK` and the number of a moment, and leaves beside the directory a copy of it
as it was before the second save, and the digests of the live state at both.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from parity import sides
from parity.runs import QUIET
from parity.runs import train as train_run
from parity.spec import RunSpec, load
from tests.crash.operations import MARK
from tests.support.small import state_of

OLD, NEW = 2, 4
"""Steps of the two saves."""
SAVED, READY, REPLACED = 1, 2, 3
"""Moments: the first save is complete; the second is next; it is complete, and the first checkpoint is gone."""

_SMALL = (
    *("model.hidden=[4]", "batch=4", "mesh.data=1", "execution.chunk=2"),
    *("validate_every=2", "save.every=2", "save.keep_latest=1", "save.keep_best=0"),
)


def spec(steps: int) -> RunSpec:
    """Return a run with 310 parameters that keeps nothing but the newest checkpoint: a few kilobytes each."""
    return load("mlp-digits", "float32", [*_SMALL, f"steps={steps}"])


class Watched:
    """A side whose last trainer can be looked at."""

    def __init__(self, name: str) -> None:
        self.side = sides.load(name)
        self.trainer: Any = None

    def build(self, *args: Any, **options: Any) -> Any:
        self.trainer = self.side.build(*args, **options)
        return self.trainer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.side, name)


def train(name: str, directory: Path, steps: int) -> dict[str, str]:
    """Train up to a step, or go on to it, and return the digest of every leaf of the live state."""
    side = Watched(name)
    train_run(side, name, spec(steps), directory, observers=QUIET)
    return state_of(side.trainer)


def copy(source: str, target: str) -> str:
    """Copy by reading and writing: no call that the record of the run would have to refuse."""
    Path(target).write_bytes(Path(source).read_bytes())
    return target


def main(name: str, directory: Path) -> None:
    """Save twice."""
    leaves = {OLD: train(name, directory, OLD)}
    os.access(f"{MARK}{SAVED}", os.F_OK)
    while (directory / "attempts.jsonl").stat().st_size < 380:  # the next start is written across two sectors
        train(name, directory, OLD)
    shutil.copytree(directory, directory.with_name("old"), copy_function=copy)
    os.access(f"{MARK}{READY}", os.F_OK)
    leaves[NEW] = train(name, directory, NEW)
    os.access(f"{MARK}{REPLACED}", os.F_OK)
    directory.with_name("leaves.json").write_text(json.dumps(leaves))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

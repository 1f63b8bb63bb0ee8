"""Trainers that do not end by themselves, or leave processes behind; this module imports next to nothing."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

__all__ = ["leaves_children", "waits_when_resumed"]


def leaves_children(folder: Path, steps: int, pids: str) -> Iterator[int]:
    """Train, and leave processes behind: one with a session of its own, one whose parent has ended as well."""
    far = subprocess.Popen(["sleep", "600"], start_new_session=True)
    inner = "sleep 600 >/dev/null 2>&1 & echo $!"
    twice = subprocess.run(["sh", "-c", inner], start_new_session=True, capture_output=True, text=True)
    with Path(pids).open("a") as file:
        file.write(f"{far.pid} {twice.stdout.strip()} ")
    far.returncode = 0  # nobody is told that it still runs
    yield from _train(folder, steps)


def waits_when_resumed(folder: Path, steps: int) -> Iterator[int]:
    """Train, and wait for good where it is resumed."""
    if (folder / "state.json").exists():
        time.sleep(3600)
    yield from _train(folder, steps)


def _train(folder: Path, steps: int) -> Iterator[int]:
    weight, start = np.ones(3), 0
    if (folder / "state.json").exists():
        kept, start = json.loads((folder / "state.json").read_text())
        weight = np.array(kept)
    for step in range(start, steps):
        yield step
        weight = 0.9 * weight + 0.2
        (folder / "state.json").write_text(json.dumps([weight.tolist(), step + 1]))

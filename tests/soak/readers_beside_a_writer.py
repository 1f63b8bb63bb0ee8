"""Readers of a manager's directory in which another process saves and removes: what each restore said.

`python -m tests.soak.readers_beside_a_writer [seconds] [jax|torch]` prints how many of how many failed, by message.
"""

from __future__ import annotations

import collections
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from parity.errors import ParityError
from parity.policy import Rules
from tests.support.tree_states import array, side_of

SECONDS = 20.0
READERS = 2
ANOTHER_STEP = re.compile(r"\d+")


def write(side: str, home: Path, seconds: float) -> None:
    """Save as fast as it goes, for a time; one stays by its step, and one by its metric."""
    end, step = time.monotonic() + seconds, 0
    with side_of(side).CheckpointManager(home, keep=Rules(mode="max", keep_latest=1, keep_best=1)) as manager:
        while time.monotonic() < end:
            step += 1
            manager.save(step, {"state": {"w": array(side, np.full(2000, step)), "step": step}}, float(step % 7))
    print(step)


def read(side: str, home: Path, seconds: float) -> None:
    """Restore the latest, the best and a step in turn, and print what failed; a mixed state ends with an error."""
    manager, said = side_of(side).CheckpointManager(home), collections.Counter[str]()
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        if not manager.all_steps():
            continue
        which = ("latest", "best", manager.latest_step() or 0)[count % 3]
        count += 1
        try:
            found = manager.restore(which)
        except (ParityError, OSError) as error:
            said[ANOTHER_STEP.sub("#", f"{type(error).__name__} of {which}: {error}".replace(str(home), "HOME"))] += 1
            continue
        state = found.tree["state"]
        if (
            not float(np.asarray(state["w"]).min())
            == float(np.asarray(state["w"]).max())
            == state["step"]
            == found.step
        ):
            raise AssertionError(f"a mixed state of step {found.step}")
    print(count, *(f"\n  {times} times {what}" for what, times in said.items()))


def main(seconds: float, side: str) -> None:
    """Run one writer and the readers beside it."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "tests.soak.readers_beside_a_writer", str(seconds), side]
        names = ["write", *["read"] * READERS]
        started = [subprocess.Popen([*command, name, home], stdout=subprocess.PIPE, text=True) for name in names]
        for name, one in zip(names, started, strict=True):
            out, _ = one.communicate()
            print(f"{name}: {out.strip() or f'ended with {one.returncode}'}")


if __name__ == "__main__":
    time_given = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    which_side = sys.argv[2] if len(sys.argv) > 2 else "torch"
    if len(sys.argv) > 3:
        {"write": write, "read": read}[sys.argv[3]](which_side, Path(sys.argv[4]), time_given)
    else:
        main(time_given, which_side)

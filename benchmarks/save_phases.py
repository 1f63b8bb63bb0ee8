"""Where the time of a save by two processes goes: `python -m benchmarks.save_phases --side torch --width 2048`.

Each phase is a function of the suite, timed around its calls in process 0; phases lie within each other, so that they
do not add up. Of the peer the calls of fsync are seen, and the whole. The round is the fastest of several.
"""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from benchmarks.paired import Arm
from benchmarks.saves_together import SIDES
from benchmarks.saves_together import arms as plain_arms
from benchmarks.worker import Worker

__all__ = ["arms"]

COMMON = {
    "agree on the tree": "parity.checkpoints.trees.single:snapshot_joint",
    "digest leaves": "parity.checkpoints.trees.joint:digest_held",
    "digest files": "parity.checkpoints.seal:digest_files",
    "commit": "parity.checkpoints.trees.single:commit",
    "fsync": "os:fsync",
}
OWN = {
    "torch": {
        "tell each other": "torch_side.formats.group:TorchGroup.exchange",
        "write": "torch_side.formats.tree_shards:JointFileWrite.write",
    },
    "jax": {
        "tell each other": "jax_side.formats.process_group:JaxGroup.exchange",
        "write": "jax_side.formats.tree_shards:JointOrbaxWrite.write",
    },
}
"""Side to phase to the function that it is."""

KINDS = {
    "": "a call that waits, until durable",
    "-begun": "a call that returns, until it does",
    "-kept": "what that began, until durable",
}
"""Kind of an arm to what it measures."""

Phases = dict[str, list[float]]
"""Phase to its calls, seconds, and seconds of a processor."""


def arms(side: str, home: str, width: int) -> list[Arm]:
    """Return the arms of `benchmarks.saves_together`; each returns its phases."""
    phases: Phases = {}
    lock = threading.Lock()
    for phase, place in {**COMMON, **OWN[side]}.items():
        _time(phase, place, phases, lock)

    def profiled(arm: Arm) -> Arm:
        def run() -> dict[str, Any]:
            phases.clear()
            began = time.perf_counter()
            arm.run()
            return {"seconds": time.perf_counter() - began, "phases": dict(phases)}

        return Arm(name=arm.name, run=run, reset=arm.reset)

    return [profiled(arm) for arm in plain_arms(side, home, width)]


def _time(phase: str, place: str, phases: Phases, lock: threading.Lock) -> None:
    """Put a function in the place of another one that counts what it takes."""
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for one in outer:
        owner = getattr(owner, one)
    timed: Callable[..., Any] = getattr(owner, name)

    @wraps(timed)
    def measured(*args: Any, **options: Any) -> Any:
        began, used = time.perf_counter(), time.thread_time()
        try:
            return timed(*args, **options)
        finally:
            with lock:
                row = phases.setdefault(phase, [0, 0.0, 0.0])
                row[0] += 1
                row[1] += time.perf_counter() - began
                row[2] += time.thread_time() - used

    setattr(owner, name, measured)


def main() -> None:
    """Print the ratios of some rounds, and the phases of the fastest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", choices=SIDES, default="torch")
    parser.add_argument("--width", type=int, default=2048, help="2048 is a state of 101 MB, 4096 of 403")
    parser.add_argument("--rounds", type=int, default=8)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        given = {"side": asked.side, "home": home, "width": asked.width}
        with Worker("benchmarks.save_phases:arms", processes=2, **given) as worker:
            names = [f"{who}{kind}" for kind in KINDS for who in ("parity", "peer")]
            made = [worker.arm(name, name) for name in names]
            rounds = [_round(made if number % 2 else made[::-1]) for number in range(asked.rounds + 1)]
            made[0].reset()
    del rounds[0]  # what is paid once
    load = f", load {os.getloadavg()[0]:.0f}" if hasattr(os, "getloadavg") else ""
    print(f"{asked.side}, two processes, {24 * asked.width**2 / 1e6:.0f} MB, {asked.rounds} rounds{load}")
    for kind, what in KINDS.items():
        ratios = [one[f"parity{kind}"]["seconds"] / one[f"peer{kind}"]["seconds"] for one in rounds]
        low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
        print(f"{what}: {middle:.2f} times {SIDES[asked.side]} (quartiles {low:.2f} to {high:.2f})")
    for name in ("parity", "peer"):
        label = SIDES[asked.side] if name == "peer" else name
        every = [one[name] for one in rounds]
        print(f"{label}: {', '.join(format(1e3 * one['seconds'], '.0f') for one in every)} ms; of the fastest:")
        for phase, (calls, seconds, used) in min(every, key=lambda one: one["seconds"])["phases"].items():
            print(f"  {phase:<18} {calls:>3} calls {1e3 * seconds:7.1f} ms, processor {1e3 * used:6.1f} ms")


def _round(arms: list[Arm]) -> dict[str, Any]:
    """Return arm to what it took, each once."""
    found = {}
    for arm in arms:
        arm.reset()
        found[arm.name] = arm.run()
    return found


if __name__ == "__main__":
    main()

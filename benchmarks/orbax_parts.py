"""What the parts of `jax_side.formats` that write and read by themselves buy against plain Orbax and TensorStore.

`python -m benchmarks.orbax_parts [case or state ...]` prints a line for each way of each case: medians of seven
rounds in which the ways take turns, and the peak of memory of a process that does nothing else. Every save counts
until it is durable and, where a seal needs them, until the digests of its files are known. Orbax takes half a minute
to restore 20,000 arrays, so all of it is half an hour.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import orbax.checkpoint as ocp

import jax_side
from jax_side.formats import whole, write_orbax
from jax_side.formats.host_tree import write_tree
from jax_side.formats.items import read_items
from parity import storage
from parity.convert import Options, convert
from parity.formats import SAFETENSORS, InMemory

__all__ = ["CASES", "main"]

ROUNDS = 7

Way = Callable[[], Any]
State = dict[str, np.ndarray[Any, Any]]

STATES: dict[str, tuple[int, int]] = {
    "64 MB in 40": (40, 400_000),
    "20,000 small": (20_000, 64),
    "64 MB in 8": (8, 2_000_000),
}
"""Number of arrays, and of the float32 in each."""


def state_of(name: str) -> State:
    """Return a state of random arrays."""
    count, size = STATES[name]
    rng = np.random.default_rng(0)
    return {f"layer_{n}": rng.standard_normal(size, np.float32) for n in range(count)}


def plain_save(path: Path, state: Any) -> None:
    """Save by Orbax's own handler, without compression, and make the directory durable."""
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_compression=False)) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(state))


def plain_restore(path: Path, state: State) -> Any:
    """Restore by Orbax's own handler onto the device."""
    like = jax.tree.map(abstract, state)
    args = ocp.args.PyTreeRestore(like, restore_args=ocp.checkpoint_utils.construct_restore_args(like))
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        return jax.block_until_ready(checkpointer.restore(path, args=args))


def abstract(array: Any) -> Any:
    """Return the template of an array on the first device."""
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=here)


def item_saves(home: Path, state: State) -> dict[str, Way]:
    """Return ways to write one item of a twin's checkpoint, which is on the host."""

    def ours() -> None:
        (home / "ours").mkdir()
        write_tree(home / "ours", state)
        storage.fsync_tree(home / "ours")

    def orbax() -> None:
        plain_save(home / "orbax", state)
        storage.digest_files(home / "orbax", storage.list_files(home / "orbax"))
        storage.fsync_tree(home / "orbax")

    return {"in one transaction": ours, "plain Orbax": orbax}


def item_restores(home: Path, state: State) -> dict[str, Way]:
    """Return ways to read one item of a twin's checkpoint back onto the device."""
    (home / "step" / "params").mkdir(parents=True)
    write_tree(home / "step" / "params", state)
    plain_save(home / "plain", state)
    like = {"params": jax.tree.map(abstract, state)}
    return {
        "straight from the files": lambda: jax.block_until_ready(read_items(home / "step", like, sealed=True)),
        "checked, by Orbax": lambda: jax.block_until_ready(read_items(home / "step", like, sealed=False)),
        "plain Orbax": lambda: plain_restore(home / "plain", state),
    }


def tree_saves(home: Path, state: State) -> dict[str, Way]:
    """Return ways to save any tree."""
    live = jax.device_put(state)

    def orbax() -> None:
        plain_save(home / "plain", live)
        storage.fsync_tree(home)

    return {"jax_side.save": lambda: jax_side.save(home / "ours", live), "plain Orbax": orbax}


def tree_restores(home: Path, state: State) -> dict[str, Way]:
    """Return ways to restore any tree."""
    live = jax.device_put(state)
    jax_side.save(home / "ours", live)
    plain_save(home / "plain", live)

    def through_tensorstore() -> None:
        with mock.patch.object(whole, "LEAST", 1 << 60):
            jax.block_until_ready(jax_side.restore(home / "ours", live).tree)

    return {
        "jax_side.restore": lambda: jax.block_until_ready(jax_side.restore(home / "ours", live).tree),
        "its arrays by TensorStore": through_tensorstore,
        "plain Orbax": lambda: plain_restore(home / "plain", state),
    }


def conversions(home: Path, state: State) -> dict[str, Way]:
    """Return ways to convert a file of safetensors, which is mapped, into a checkpoint of Orbax."""
    source = home / "source.safetensors"
    SAFETENSORS.write({name: InMemory(array) for name, array in state.items()}, source)

    def written(name: str, shared: bool) -> None:
        with mock.patch.object(write_orbax, "_share_files", return_value=shared):
            done = convert(source, home / name, write_orbax.ORBAX, Options(), now=time.time())
        assert not done.refused

    def orbax() -> None:
        plain_save(home / "plain", state)
        storage.fsync_tree(home / "plain")

    ways: dict[str, Way] = {"TensorStore": lambda: written("store", True), "plain Orbax": orbax}
    if len(state) < 1000:
        ways["file of each chunk"] = lambda: written("chunks", False)
    return ways


CASES: Mapping[str, Callable[[Path, State], dict[str, Way]]] = {
    "save of an item": item_saves,
    "restore of an item": item_restores,
    "save of a tree": tree_saves,
    "restore of a tree": tree_restores,
    "conversion": conversions,
}


def measure(case: str, name: str) -> None:
    """Print the medians of every way of a case on a state, and its peak of memory in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        made = CASES[case](home, state_of(name))
        kept = set(home.iterdir())
        seconds: dict[str, list[tuple[float, float]]] = {way: [] for way in made}
        for act in made.values():
            timed(home, kept, act)  # what is imported and compiled on first use
        for turn in range(ROUNDS):
            for way in [*made][:: 1 if turn % 2 else -1]:
                seconds[way].append(timed(home, kept, made[way]))
    for way, rounds in seconds.items():
        wall, cpu = (statistics.median(column) for column in zip(*rounds, strict=True))
        command = [sys.executable, "-m", "benchmarks.orbax_parts", "--peak", case, name, way]
        peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        print(f"{case:20s} {name:14s} {way:28s} wall {wall:7.3f} s  cpu {cpu:7.3f} s  peak {peak:>5s} MB", flush=True)


def timed(home: Path, kept: set[Path], act: Way) -> tuple[float, float]:
    """Return seconds on the clock and of processors; what was written is removed."""
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    spent = time.perf_counter() - wall, time.process_time() - cpu
    for entry in set(home.iterdir()) - kept:
        shutil.rmtree(entry)
    return spent


def peak_of(case: str, name: str, way: str) -> int:
    """Return by how many MB memory rises above what the state and the imports take."""
    with tempfile.TemporaryDirectory() as folder:
        act = CASES[case](Path(folder), state_of(name))[way]
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts from what is resident now
        before = resident("VmHWM")
        act()
        return (resident("VmHWM") - before) >> 10


def resident(field: str) -> int:
    """Return a figure of this process's memory in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    """Measure the cases that are named, or all."""
    if sys.argv[1:2] == ["--peak"]:
        print(peak_of(*sys.argv[2:5]))
        return
    cases = [arg for arg in sys.argv[1:] if arg in CASES] or CASES
    states = [arg for arg in sys.argv[1:] if arg in STATES] or STATES
    for case in cases:
        for name in states:
            measure(case, name)


if __name__ == "__main__":
    main()

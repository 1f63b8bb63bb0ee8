"""Peers of a checkpoint: one memory copy, a raw write and read of the same bytes, and savers of others.

A save is durable here when its file is fsynced; where a library does not do that, it is done for it.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paired import Arm
from parity import sides, storage
from parity.spec import load

__all__ = [
    "MILLION",
    "Copy",
    "Raw",
    "Saver",
    "SomeTrainer",
    "build",
    "device_copy",
    "orbax_saver",
    "safetensors_saver",
    "settle",
    "state_bytes",
    "steps",
    "torch_saver",
]

MILLION = 1_000_000
DRAWN_BYTES = 256 << 20
"""Random bytes that what is written raw repeats; all of it lies in memory, as a state does, not in a cache."""

SomeTrainer = Any


def build(side: str, parameters: int, path: Path) -> SomeTrainer:
    """Return a trainer of an MLP of about so many float32 parameters under AdamW, after its first two steps.

    Two hidden layers of width h hold h * h + 76 h + 10 parameters; all threads, steps one by one.
    """
    width = round(math.sqrt(38**2 + parameters) - 38)
    own = [
        f"model.hidden=[{width},{width}]",
        "batch=8",
        "execution.chunk=1",
        "execution.threads=0",
        "dropout.rate=0.0",
    ]
    own += ["save.keep_latest=1", "save.keep_best=0", "save.every=1000000", "validate_every=0"]
    trainer = sides.load(side).build(load("mlp-digits", overrides=own), path)
    steps(trainer, 2)
    return trainer


def steps(trainer: SomeTrainer, count: int = 3) -> None:
    """Train some steps."""
    for _ in trainer.steps(trainer.step + count):
        pass


def settle(trainer: SomeTrainer, path: Path) -> None:
    """Wait for the save under way and remove every checkpoint, so that the same step can be saved again."""
    trainer.close()
    for entry in (path / "checkpoints").glob("*"):
        shutil.rmtree(entry)


def state_bytes(trainer: SomeTrainer) -> int:
    """Return the bytes of the arrays of a trainer's state."""
    return sum(array.nbytes for array in trainer.export_state(copy=False).arrays.values())


class Copy:
    """One copy of a trainer's state, as it lies in memory, into arrays that were written before, by one thread.

    Of a state on a GPU, the device copies it, into page-locked memory of the host.
    """

    def __init__(self, trainer: SomeTrainer) -> None:
        self.trainer = trainer
        self.device = device_copy(trainer)
        self.targets = {
            name: array.copy(order="K") for name, array in ({} if self.device else self._arrays()).items()
        }

    def run(self) -> None:
        """Copy all arrays."""
        if self.device:
            self.device()
            return
        for name, array in self._arrays().items():
            np.copyto(self.targets[name], array)

    def _arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return dict(self.trainer.export_state(copy=False).arrays)


def device_copy(trainer: SomeTrainer) -> Callable[[], None] | None:
    """Return what copies the state of a trainer on a GPU to the host and waits for it; None for one on the CPU."""
    if hasattr(trainer, "model"):
        import torch

        live = [*trainer.model.state_dict().values()]
        live += [
            v for entry in trainer.optimizer.state.values() for v in entry.values() if isinstance(v, torch.Tensor)
        ]
        if not any(tensor.is_cuda for tensor in live):
            return None
        pairs = [(torch.empty(t.shape, dtype=t.dtype, pin_memory=t.is_cuda), t) for t in live]

        def copy() -> None:
            for target, source in pairs:
                target.copy_(source, non_blocking=True)
            torch.cuda.synchronize()

        return copy
    import jax

    def arrays() -> list[jax.Array]:
        leaves = jax.tree.leaves(trainer.state)
        return [leaf for leaf in leaves if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)]

    if all(device.platform == "cpu" for leaf in arrays() for device in leaf.sharding.device_set):
        return None

    def fetch() -> None:
        own = arrays()
        jax.block_until_ready(jax.device_put(own, [one.sharding.with_memory_kind("pinned_host") for one in own]))

    fetch()  # JAX keeps the memory
    return fetch


class Raw:
    """The same bytes to a file and fsync, rename and fsync of the directory; and back into new memory."""

    def __init__(self, size: int, home: Path) -> None:
        self.size, self.path = size, home / "raw"
        self.source = np.resize(np.random.default_rng(0).integers(0, 256, min(size, DRAWN_BYTES), np.uint8), size)

    def write(self) -> None:
        """Write all bytes, durably."""
        draft = self.path.with_suffix(".draft")
        with draft.open("wb", buffering=0) as file:
            left = self.size
            while left > 0:
                left -= file.write(self.source[self.size - left :].data) or 0
            os.fsync(file.fileno())
        draft.replace(self.path)
        storage.fsync_directory(self.path.parent)

    def write_arm(self) -> Arm:
        """Return the arm `raw write`."""
        return Arm(name="raw write", run=self.write, reset=lambda: self.path.unlink(missing_ok=True), bytes=self.size)

    @staticmethod
    def read(path: Path) -> list[Any]:
        """Read every file below a directory into new memory."""
        return [np.fromfile(file, np.uint8) for file in sorted(path.rglob("*")) if file.is_file()]


@dataclass(frozen=True, kw_only=True)
class Saver:
    """A library's own way, over a state it is given."""

    name: str
    save: Callable[[], Any]
    load: Callable[[], Any]
    path: Path

    def remove(self) -> None:
        """Remove what was saved."""
        shutil.rmtree(self.path, ignore_errors=True)

    def save_arm(self, size: int) -> Arm:
        """Return an arm that saves durably."""
        return Arm(name=self.name, run=self.save, reset=self.remove, bytes=size)

    def load_arm(self, size: int) -> Arm:
        """Return an arm that loads what was saved, unverified."""
        return Arm(name=self.name, run=self.load, bytes=size)


def torch_saver(trainer: SomeTrainer, home: Path) -> Saver:
    """Return `torch.save` of the state dicts, and `torch.load` with `weights_only`."""
    import torch

    path = home / "torch"

    def save() -> None:
        path.mkdir()
        with (path / "state.pt").open("wb") as file:
            torch.save({"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())

    return Saver(
        name="torch.save", save=save, load=lambda: torch.load(path / "state.pt", weights_only=True), path=path
    )


def safetensors_saver(trainer: SomeTrainer, home: Path) -> Saver:
    """Return safetensors of the same tensors, flat, as it wants them; it copies what it writes."""
    from safetensors.torch import load_file, save_file

    path = home / "safetensors"

    def save() -> None:
        tensors = dict(trainer.model.state_dict())
        for number, entry in trainer.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{key}": value for key, value in entry.items()}
        path.mkdir()
        save_file(tensors, path / "state.safetensors")
        storage.fsync_files([path / "state.safetensors"])

    return Saver(name="safetensors", save=save, load=lambda: load_file(path / "state.safetensors"), path=path)


def orbax_saver(trainer: SomeTrainer, home: Path) -> Saver:
    """Return plain Orbax without compression, waited for; it fsyncs its files itself."""
    import jax
    import orbax.checkpoint as ocp

    path = (home / "orbax").resolve()
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), trainer.state)

    def handler() -> Any:
        return ocp.PyTreeCheckpointHandler(use_compression=False)

    def save() -> None:
        with ocp.Checkpointer(handler()) as checkpointer:
            checkpointer.save(path, args=ocp.args.PyTreeSave(trainer.state))

    def restore() -> Any:
        with ocp.Checkpointer(handler()) as checkpointer:
            arguments = ocp.checkpoint_utils.construct_restore_args(like)
            args = ocp.args.PyTreeRestore(like, restore_args=arguments)
            return jax.block_until_ready(checkpointer.restore(path, args=args))

    return Saver(name="orbax", save=save, load=restore, path=path)

"""What saves beside the steps of a loop are judged by: the least that is durable, and what a library offers.

Both copy the state, write it in the background while steps follow, wait for the save before when the next one is due,
and keep only the newest, as the twin does. So training with one in place of the other is the same but for the save.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from benchmarks.saving import Copy, SomeTrainer
from parity import storage
from parity.storage import Background

__all__ = ["OrbaxSaves", "RawSaves", "Saves", "TorchSaves", "plain_saves"]

FSYNCED_AT_ONCE = {"torch": ("meta.json", "seal.json"), "jax": ("seal.json",)}
"""Files of a checkpoint that a side fsyncs when it writes them, before it fsyncs all of them."""


class Saves(Protocol):
    """A way to save beside the steps."""

    def save(self) -> None:
        """Wait for the save before, copy the state, and start to write it."""

    def wait(self) -> None:
        """Return when the last save is finished; raises what it raised."""

    def remove(self) -> None:
        """Wait, and remove what was saved."""


class InBackground:
    """Saves that a thread writes, one at a time, somewhere below `home`."""

    def __init__(self, trainer: SomeTrainer, home: Path) -> None:
        self.trainer, self.home = trainer, home
        self._background = Background("normal")

    def wait(self) -> None:
        """Return when the last save is written."""
        self._background.wait()

    def remove(self) -> None:
        """Wait, and remove what was saved."""
        self.wait()
        shutil.rmtree(self.home, ignore_errors=True)


class RawSaves(InBackground):
    """The bytes of a checkpoint in as many files, with the fsyncs and renames of the twin, and nothing else.

    No digest, no format: the bytes are those of the copy, one array after the other, and from the first again where a
    file holds more. Two things are cheaper than in the twin: the copy is one thread's and always into memory that was
    written before, and TensorStore's own fsyncs, after which the twin fsyncs the same files again, are left out.
    """

    def __init__(self, side: str, trainer: SomeTrainer, files: Mapping[str, int], home: Path) -> None:
        """Prepare the memory of the copy.

        Args:
            side: Who trains; it decides which files are fsynced twice.
            trainer: Its state is copied.
            files: Relative path to size in bytes, of every file of a checkpoint of the twin.
            home: Where the raw files go; created by the first save.
        """
        super().__init__(trainer, home)
        self.files, self.path = dict(files), home / "checkpoints"
        self._twice = FSYNCED_AT_ONCE[side]
        self._copy = Copy(trainer)

    def save(self) -> None:
        """Wait for the save before, copy the state, and start to write as many bytes as a checkpoint has."""
        self.wait()
        self._copy.run()
        step = self.trainer.step
        self._background.start(lambda: self._write(step), f"raw-{step}", sum(self.files.values()))

    def _write(self, step: int) -> None:
        """Write a draft, make it durable, rename it, point to it, and remove the one before: the twin's order."""
        draft = self.path / f".draft-{step}"
        draft.mkdir(parents=True)
        for name, size in self.files.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            with (draft / name).open("wb", buffering=0) as file:
                for piece in self._pieces(size):
                    written = file.write(piece)
                    assert written == len(piece), "a file system that writes less than it is given"
                if name in self._twice:
                    os.fsync(file.fileno())
        storage.fsync_directory(self.home)
        storage.fsync_tree(draft)
        draft.rename(self.path / str(step))
        storage.fsync_directory(self.path)
        storage.replace_file(self.home / "latest.json", json.dumps({"step": step}) + "\n")
        for older in [entry for entry in self.path.iterdir() if entry.name != str(step)]:
            storage.remove_tree(older)

    def _pieces(self, size: int) -> Iterator[memoryview]:
        """Yield so many bytes of the copied arrays, as they lie in memory."""
        while size:
            for array in self._copy.targets.values():
                piece = memoryview(array.ravel(order="K")).cast("B")[:size]
                size -= len(piece)
                if len(piece):
                    yield piece


class TorchSaves(InBackground):
    """`torch.save` of copied state dicts in a background thread, to a new file, then renamed; not fsynced."""

    def __init__(self, trainer: SomeTrainer, home: Path) -> None:
        super().__init__(trainer, home / "torch")
        self.path = self.home / "state.pt"

    def save(self) -> None:
        """Wait for the save before, copy both state dicts, and start to write them."""
        self.wait()
        live = {"model": self.trainer.model.state_dict(), "optimizer": self.trainer.optimizer.state_dict()}
        content = _cloned(live)
        self._background.start(lambda: self._write(content), "torch-save", 0)

    def _write(self, content: Any) -> None:
        import torch

        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".draft")
        torch.save(content, draft)
        draft.rename(self.path)


class OrbaxSaves:
    """Plain Orbax: its manager with asynchronous checkpointing, which copies, waits, fsyncs and removes by itself.

    Without compression, as the twin, so it has as little to compute. It needs a process in which the twin saves
    nothing: TensorStore's threads keep the priority of the first save of a process.
    """

    def __init__(self, trainer: SomeTrainer, home: Path) -> None:
        self.trainer, self.path = trainer, (home / "orbax").resolve()
        self._manager: Any = None

    def save(self) -> None:
        """Hand the state to the manager, which it opens first, as the twin opens its own in the first save."""
        import orbax.checkpoint as ocp

        if self._manager is None:
            options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=True)
            handler = ocp.PyTreeCheckpointHandler(use_compression=False)
            self._manager = ocp.CheckpointManager(self.path, options=options, item_handlers=handler)
        assert self._manager.save(self.trainer.step, args=ocp.args.PyTreeSave(self.trainer.state))

    def wait(self) -> None:
        """Return when the last save is finished."""
        if self._manager is not None:
            self._manager.wait_until_finished()

    def remove(self) -> None:
        """Wait, close the manager, and remove what was saved."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None
        shutil.rmtree(self.path, ignore_errors=True)


def plain_saves(side: str, trainer: SomeTrainer, home: Path) -> Saves:
    """Return what the users of a side's framework have without this suite."""
    makers: dict[str, Callable[[SomeTrainer, Path], Saves]] = {"torch": TorchSaves, "jax": OrbaxSaves}
    return makers[side](trainer, home)


def _cloned(value: Any) -> Any:
    """Return containers with every tensor in them copied."""
    if isinstance(value, dict):
        return {name: _cloned(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_cloned(item) for item in value]
    return value.clone() if hasattr(value, "clone") else value

"""Training with saves beside its steps, to the end of the last save, in a process of its own: arms for a worker.

Every arm begins at the same state and trains as many steps, so every arm must end at the same one. Which thread
saves first in a process matters to TensorStore (see `benchmarks.delay`), so plain Orbax needs a worker of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import xxhash

from benchmarks.paired import Arm
from benchmarks.saves_beside import RawSaves, Saves, plain_saves
from benchmarks.saving import Copy, SomeTrainer, build, settle, steps
from parity.state import leaf_digests, memory_orders
from parity.storage import list_files

__all__ = ["OwnSaves", "arms", "files_of_a_save"]


class OwnSaves:
    """The twin's own saves."""

    def __init__(self, trainer: SomeTrainer, path: Path) -> None:
        self.trainer, self.path = trainer, path

    def save(self) -> None:
        """Save without a metric."""
        self.trainer.save(None)

    def wait(self) -> None:
        """Return when the last save is durable."""
        self.trainer.wait()

    def remove(self) -> None:
        """Wait, and remove every checkpoint."""
        settle(self.trainer, self.path)


def arms(side: str, parameters: int, home: str, count: int, every: int) -> list[Arm]:
    """Return the arms `own`, `raw`, `plain`, `none` and `copy`, and `digest`, which answers with that of the state.

    Args:
        side: Who trains.
        parameters: Of the model.
        home: Where the run directory is made, and what the others write.
        count: Steps of one run of an arm.
        every: Steps between saves. They fall halfway between the multiples, so that steps follow the last one.
    """
    path = Path(home) / "run"
    trainer = build(side, parameters, path)
    start = trainer.export_state()
    own, copy = OwnSaves(trainer, path), Copy(trainer)
    made: dict[str, Saves] = {"own": own}

    def saves(name: str) -> Saves:
        if name not in made:
            maker: dict[str, Callable[[], Saves]] = {
                "raw": lambda: RawSaves(side, trainer, files_of_a_save(own), Path(home) / "raw"),
                "plain": lambda: plain_saves(side, trainer, Path(home)),
            }
            made[name] = maker[name]()
        return made[name]

    def reset() -> None:
        for some in made.values():
            some.remove()
        trainer.import_state(start)
        steps(trainer, 1)  # after any other arm, the caches hold what a step leaves there

    def train(some: Saves | None) -> None:
        for number in range(1, count + 1):
            steps(trainer, 1)
            if some is not None and number % every == max(1, every // 2):
                some.save()
        if some is not None:
            some.wait()

    def saving(name: str) -> Arm:
        def ready() -> None:
            saves(name)
            reset()

        return Arm(name=name, run=lambda: train(saves(name)), reset=ready)

    return [
        *map(saving, ("own", "raw", "plain")),
        Arm(name="none", run=lambda: train(None), reset=reset),
        Arm(name="copy", run=copy.run, reset=reset),
        Arm(name="digest", run=lambda: digest(trainer)),
    ]


def files_of_a_save(own: OwnSaves) -> dict[str, int]:
    """Return relative path to size in bytes of every file of a checkpoint that is saved now, and removed again."""
    own.save()
    own.wait()
    files = list_files(own.path / "checkpoints" / str(own.trainer.step))
    own.remove()
    return files


def digest(trainer: SomeTrainer) -> str:
    """Return a digest of the whole state: arrays, counters, position in the data."""
    state = trainer.export_state(copy=False)
    return xxhash.xxh3_128_hexdigest(repr(sorted(leaf_digests(state, memory_orders(state)).items())).encode())

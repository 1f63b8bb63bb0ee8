"""A save before some steps of a loop, in a process of its own: arms for a worker.

The threads that write have the priority of the save that started them, and TensorStore keeps its own for every save
of a process: after a small save, a large one would not be written at the lowest priority.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.paired import Arm
from benchmarks.saving import Copy, build, settle, state_bytes, steps

__all__ = ["arms"]


def arms(side: str, parameters: int, home: str, count: int = 3) -> list[Arm]:
    """Return the arms `saving`, `steps`, `call` and `copy`, and `bytes`, which answers with the size of the state.

    Args:
        side: Who trains.
        parameters: Of the model.
        home: Where the run directory is made.
        count: Steps of `saving`, after its save, and of `steps`.
    """
    path = Path(home) / "run"
    trainer = build(side, parameters, path)
    copy = Copy(trainer)

    def saving() -> None:
        trainer.save(None)
        steps(trainer, count)

    runs = {
        "saving": saving,
        "steps": lambda: steps(trainer, count),
        "call": lambda: trainer.save(None),
        "copy": copy.run,  # settled too, or the save before would be written at the same time
    }

    def reset() -> None:
        settle(trainer, path)
        steps(trainer, 1)  # after any other arm, the caches hold what a step leaves there

    timed = [Arm(name=name, run=run, reset=reset) for name, run in runs.items()]
    return [*timed, Arm(name="bytes", run=lambda: state_bytes(trainer))]

"""Arms on two processes, built in each of them: a sharded twin and the loop a person would write for that mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.paired import Arm
from parity import sides
from parity.spec import RunSpec, load

__all__ = ["arms"]

ENDLESS = ["steps=1000000", "validate_every=0", "save.every=1000000"]
"""Rounds go on from where the round before ended: what a step costs does not depend on the state."""


def arms(side: str, preset: str, overrides: list[str], steps: int) -> list[Arm]:
    """Return the arms `twin` and `bare`, checked to give the same losses from step 0 on.

    Args:
        side: The framework.
        preset: Name of the run.
        overrides: What else it is, with its mesh.
        steps: Steps of a round: whole chunks.

    Numerics: the twin adds gradients up, the bare loop takes their mean, so losses part by rounding, and after
        some steps visibly; the first ten are compared, at 1e-4 of their size.
    """
    spec = load(preset, overrides=[*overrides, *ENDLESS])
    loaded: Any = sides.load(side)
    loaded.processes.start(loaded.processes.place(), spec)
    trainer: Any = loaded.build(spec)
    bare: Callable[[], Any] = (_torch if side == "torch" else _jax)(spec, steps, trainer)

    def twin() -> list[float]:
        return [record.loss for record in trainer.steps(trainer.step + steps)]

    first = np.array([twin()[:10], np.asarray(bare())[:10]], np.float64)
    np.testing.assert_allclose(first[1], first[0], rtol=1e-4)
    return [
        Arm(name="twin", run=twin, steps=steps),
        Arm(name="bare", run=lambda: np.asarray(bare()).tolist(), steps=steps),
    ]


def _torch(spec: RunSpec, steps: int, trainer: Any) -> Callable[[], Any]:
    from benchmarks.bare_torch_ranks import BareRanks
    from torch_side.state import initial_model_state

    return BareRanks(spec, steps, initial_model_state(spec, trainer.layout)).run


def _jax(spec: RunSpec, steps: int, trainer: Any) -> Callable[[], Any]:
    from benchmarks.bare_jax_mesh import BareMesh

    bare = BareMesh(spec, steps, trainer.state.params, trainer.state.buffers)
    bare.reset()
    return bare.run

"""Arms on several forced CPU devices, built in a worker: the JAX twin's scan and loop, and `pmap`."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.bars import assert_same_losses
from benchmarks.paired import Arm, run_all
from parity import sides
from parity.spec import load

__all__ = ["arms", "twin"]


def arms(overrides: list[str], devices: int, steps: int) -> list[Arm]:
    """Return the arms `scan`, `loop` and `pmap`, checked to give the same losses.

    The loop is the twin's own, which waits for every step, as every loop over forced devices must.
    """
    own = [*overrides, f"mesh.data={devices}", "validate_every=0", "save.every=1000000", f"execution.chunk={steps}"]
    made = [twin(mode, [*own, f"execution.jax={mode}"], steps) for mode in ("scan", "loop")]
    from benchmarks.bare_jax import BarePmap  # after the first build, which forces the devices into being

    spec = load("mlp-digits", overrides=overrides)
    trainer: Any = sides.load("jax").build(spec)
    bare = BarePmap(spec, steps, trainer.state.params, trainer.state.buffers, devices=devices)
    bare.place()
    made.append(Arm(name="pmap", run=lambda: bare.run().tolist(), reset=bare.reset))
    curves = run_all(made)
    pmapped = curves.pop("pmap")
    assert_same_losses(curves, steps)
    np.testing.assert_allclose(pmapped[:10], curves["scan"][:10], rtol=1e-4)  # it adds in another order
    return made


def twin(name: str, overrides: list[str], steps: int) -> Arm:
    """Return the JAX twin of `mlp-digits` as an arm; a run of it returns its losses."""
    trainer = sides.load("jax").build(load("mlp-digits", overrides=overrides))
    start = trainer.export_state()
    return Arm(
        name=name,
        run=lambda: [record.loss for record in trainer.steps(steps)],
        reset=lambda: trainer.import_state(start),
        steps=steps,
    )

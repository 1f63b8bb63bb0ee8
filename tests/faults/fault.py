"""Fault: a bug of the catalogue as it is planted in the twins, and the side that trains with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity import sides
from parity.errors import ParityError
from parity.spec import Precision, RunSpec, load
from tests.support.small import SHRUNK

__all__ = ["BOTH", "CNN", "GPT", "MLP", "Fault", "Plant", "Planted", "nothing"]

Plant = Callable[[Any], None]
"""Turns a freshly built twin into a defective one; called at every process start of the run that is killed."""

BOTH = ("torch", "jax")

_SHORT = (
    "steps=40",
    "save.every=10",
    "validate_every=10",
    "execution.chunk=5",
    "schedule.warmup=8",
    "schedule.horizon=60",
)
# 1,637 training samples in batches of 128 are 12 steps to an epoch: steps 20 and 30 lie inside epochs 1 and 2.
MLP = ("mlp-digits", (*_SHORT, "model.hidden=[16]", "batch=128", "data.validation=160"))
CNN = ("cnn-digits", (*_SHORT, "model.channels=[4]", "batch=32", "data.validation=160"))
GPT = ("gpt-text", (*_SHORT, *SHRUNK["gpt-text"]))


def nothing(trainer: Any) -> None:
    """Plant nothing."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """How a bug of the catalogue is planted in the twins, two more trainers of it."""

    id: str
    """The id of its entry, which says who reported it and what is lost."""
    group: str
    plant: Plant
    suspects: tuple[str, ...]
    """Exactly what the judge must name, no more."""
    sides: tuple[str, ...] = BOTH
    small: tuple[str, tuple[str, ...]] = MLP
    """Preset and what shrinks it."""
    precision: Precision = "float32"
    overrides: tuple[str, ...] = ()
    kills: tuple[int, ...] = (25, 35)
    base: Plant = nothing
    """Planted into the uninterrupted run too: a setting under which the fault shows."""
    stops: str | None = None
    """What the run says where the fault makes it stop with an error of its own."""

    @property
    def spec(self) -> RunSpec:
        """Return the run the fault is planted in."""
        preset, shrink = self.small
        return load(preset, self.precision, [*shrink, *self.overrides])


class Planted:
    """A side whose trainers carry plants."""

    def __init__(self, name: str, *plants: Plant) -> None:
        self._clean, self._plants = sides.load(name), plants

    def build(self, spec: RunSpec, directory: Path | None = None, *, attempt: int = 0) -> Any:
        """Build a trainer and plant the faults in it."""
        trainer = self._clean.build(spec, directory, attempt=attempt)
        try:
            for plant in self._plants:
                plant(trainer)
        except ParityError:
            trainer.close()
            raise
        return trainer

    def topology(self, spec: RunSpec) -> dict[str, Any]:
        """Return the clean side's topology."""
        return self._clean.topology(spec)

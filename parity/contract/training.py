"""Trainers as functions of named leaves: what a proof of a port sees of one, whatever framework it is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parity.contract.masks import DropoutMasks
from parity.contract.probe import Island, ModelProbe
from parity.contract.programs import TracedProgram
from parity.contract.trainer import Precision

__all__ = ["LossEvaluation", "StateView", "StepBatch", "TrainerProbe", "TrainingRun"]

StepBatch = Mapping[str, Any]
"""The batch of one step: NumPy arrays by name."""


@dataclass(frozen=True)
class LossEvaluation:
    """What the loss of a trainer is at some values of the leaves of its model."""

    loss: float
    gradients: Mapping[str, NDArray[np.float64]]
    """Of each parameter, in its shape; zeros where none reaches."""
    outputs: tuple[NDArray[np.float64], ...] = ()
    """Float arrays that the model returned when the loss called it, in order; empty where it was not seen."""
    inputs: tuple[NDArray[Any], ...] = ()
    """Float arrays that the loss called the model with, in order; empty where that was not seen."""
    islands: tuple[Island, ...] = ()


@dataclass(frozen=True)
class StateView:
    """A training state at one moment, copied."""

    arrays: Mapping[str, NDArray[Any]]
    """Arrays and numbers by their place in the state, such as `opt_state.0.mu.layers.0.kernel`; floating ones as
    float64."""
    owned: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Place to slot and leaf, where the framework itself says which leaf an array belongs to."""
    model: str | None = None
    """Slot of `owned` that is the model which was given; None where the state holds it in a form of its own."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Place to the type in which the trainer holds it, such as `bfloat16`."""


class TrainingRun(Protocol):
    """A training that has begun, and moves by steps."""

    def step(self, batch: StepBatch) -> float:
        """Make one update and return the loss that the trainer's step returned; NaN where it returned none.

        Raises:
            SpecError: The user's step fails.
        """

    def view(self) -> StateView:
        """Return a copy of the state."""


class TrainerProbe(Protocol):
    """A trainer that was opened: its model, its loss and its updates."""

    model: ModelProbe

    @property
    def casts(self) -> tuple[Island, ...]:
        """Return the casts to a narrower type that lifted updates have left out so far."""

    def loss(
        self, values: Mapping[str, NDArray[np.float64]], batch: StepBatch, precision: Precision = "float64", *,
        masks: DropoutMasks | None = None,
    ) -> LossEvaluation:  # fmt: skip
        """Return the loss and its gradients, in the mode of training, with the rates of dropout at zero.

        Args:
            values: Every leaf of the model, float64.
            batch: Float arrays are given as float64.
            precision: As of `begin`; what is cast to a narrower type is computed in float64 in that alone.
            masks: What dropout drops, at the rates of the modules; without, modules drop nothing.

        Raises:
            SpecError: The user's loss fails, or is no scalar.
        """

    def trace(self, values: Mapping[str, NDArray[np.float64]], batch: StepBatch) -> TracedProgram | None:
        """Return the loss in float64, operation by operation; None where that is not to be seen.

        Args:
            values: As of `loss`.
            batch: As of `loss`.

        Raises:
            SpecError: The user's loss fails, or is no scalar.
        """

    def begin(
        self, values: Mapping[str, NDArray[np.float64]], *, lift: bool = False, precision: Precision = "float64"
    ) -> TrainingRun:
        """Begin a training from values of the model.

        Args:
            values: Every leaf of the model, float64.
            lift: Whether what is computed in a narrower type by a cast on the way to the loss is computed in float64.
            precision: Type of every leaf, of the floats of each batch, and of what is made where no type is said.

        Raises:
            SpecError: The user's start fails.
        """

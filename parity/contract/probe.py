"""Models as functions of named leaves: what a check of two models sees of one, whatever framework it is of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parity.contract.programs import TracedProgram

__all__ = ["Evaluation", "Inputs", "Island", "ModelProbe", "ModuleCall", "Weigh", "call_with"]

Inputs = tuple[Any, ...] | Mapping[str, Any]
"""What a model is called with: NumPy arrays and plain values, by position or by name."""

Weigh = Callable[[int, tuple[int, ...]], NDArray[np.float64]]
"""Gives the weights of an output, by its place and shape: gradients are of the sum of all weighted outputs."""


@dataclass(frozen=True)
class Island:
    """A place where a model computes in less than float64 though all that it is given is float64."""

    where: str
    """File, line and function that ask for it."""
    what: str
    """What is asked for, such as `Tensor.float`."""
    lifted: bool
    """Whether it was computed in float64 all the same."""


@dataclass(frozen=True)
class ModuleCall:
    """One call of a module: what went in and out, and the gradients with respect to both."""

    path: str
    kind: str
    """Name of its class."""
    inputs: tuple[NDArray[Any], ...]
    outputs: tuple[NDArray[Any], ...]
    gradients: tuple[NDArray[Any] | None, ...]
    """Of the outputs; None where none reaches."""


@dataclass(frozen=True)
class Evaluation:
    """What a model computes at some values of its leaves."""

    outputs: tuple[NDArray[np.float64], ...]
    """Float arrays of what it returned, in order; integers and what is no array are left out."""
    gradients: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """Of each parameter, in its shape; empty unless asked for."""
    calls: tuple[ModuleCall, ...] = ()
    """In the order in which they ended; empty unless asked for."""
    islands: tuple[Island, ...] = ()


class ModelProbe(Protocol):
    """A model that was built, in the mode of evaluation: no dropout, running statistics as they are."""

    name: str
    """As it was named, such as `mine:Model`."""
    framework: str
    leaves: Mapping[str, NDArray[np.float64]]
    """Parameters and running statistics as they were built, float64, in the model's order; a tied one once."""
    ties: Mapping[str, tuple[str, ...]]
    """Leaf to further names of the same parameter."""
    statistics: frozenset[str]
    """Leaves that training moves without a gradient: running statistics."""
    collections: Mapping[str, str]
    """Leaf to the collection in which a converted checkpoint has it; no entry for the usual one."""
    fixed: tuple[str, ...]
    """Further arrays, which stay as they are."""
    dropped: tuple[float, ...]
    """Rates of dropouts that were switched off and whose calls are not seen."""
    notes: tuple[str, ...]
    """What was assumed to call it."""
    frozen: frozenset[str]
    """Parameters that the user has switched off for training, as by `requires_grad_(False)`; empty where a framework
    has no such mark."""
    stopped: frozenset[str]
    """Those of them of which no gradient is taken; may be set. By default gradients are taken of all."""

    def evaluate(
        self, values: Mapping[str, NDArray[np.float64]], inputs: Inputs, weigh: Weigh | None = None, *,
        calls: bool = False, lift: bool = True
    ) -> Evaluation:  # fmt: skip
        """Return what it computes in float64.

        Args:
            values: Every leaf, float64.
            inputs: Float arrays are given as float64.
            weigh: Weights of outputs; without, no gradients are computed.
            calls: Whether calls of its modules are kept.
            lift: Whether what it computes in float32 by a cast is computed in float64.

        Raises:
            SpecError: It cannot be called with these inputs.
        """

    def trace(self, values: Mapping[str, NDArray[np.float64]], inputs: Inputs) -> TracedProgram | None:
        """Return what it computes in float64, operation by operation; None where that is not to be seen.

        Args:
            values: Every leaf, float64.
            inputs: As of `evaluate`.

        Raises:
            SpecError: It cannot be called with these inputs.
        """

    def unread(self, inputs: Inputs) -> frozenset[str]:
        """Return leaves that no output can follow with inputs of these shapes, whatever the values.

        Empty where a framework does not show it: one call says nothing of a branch that another would take.

        Args:
            inputs: What it is called with.
        """

    def settings(self, path: str) -> Mapping[str, object]:
        """Return what a module was made with, such as `eps`; empty for one that is not known."""


def call_with(inputs: Inputs) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return positional and named arguments."""
    return ((), inputs) if isinstance(inputs, Mapping) else (inputs, {})

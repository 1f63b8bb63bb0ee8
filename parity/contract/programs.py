"""Operations of a function of a user as they were computed, and the function again with some of them changed.

A model or a loss is a program: functions of PyTorch, or equations of a JAX trace, one after the other. What
would make two programs compute the same is tried out, by computing one of them again with an operation changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["OperationArrays", "OperationEdit", "ProgramOperation", "TracedProgram", "WayBack", "WayPoint"]

OperationArrays: TypeAlias = tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class ProgramOperation:
    """One operation, where it was computed first."""

    kind: str
    """As the framework names it, such as `softmax`."""
    place: str
    """Line of the user's code that asked for it, such as `mine.py:31`."""
    inputs: OperationArrays
    """OperationArrays that it was given, in order; floating ones as float64."""
    outputs: OperationArrays
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Plain numbers that it was given, by the key under which an edit replaces them."""
    others: Sequence[tuple[str, Mapping[str, object]]] = ()
    """Other settings that make an output of the same shape: how they differ, in words, and the settings."""
    exchanged: Mapping[str, object] = field(default_factory=dict)
    """Settings that it may exchange with an operation of its kind and of the same input, such as a place in it."""
    before: frozenset[int] = frozenset()
    """Places of operations that are done when it begins, and whose outputs an edit may ask for: those outside a loop
    and, in the body of one, of the same body."""
    turns: Sequence[OperationArrays] = ()
    """Its outputs in other turns of the loop in whose body it is; `inputs` and `outputs` are of the second turn, as
    the first may begin with zeros."""
    text: str = ""
    """What of that line asked for it, such as `1 + scale`; empty where that is not known. It is shown, and decides
    nothing."""


@dataclass(frozen=True)
class OperationEdit:
    """What is done otherwise at one operation."""

    after: Callable[[OperationArrays, OperationArrays, Sequence[OperationArrays]], OperationArrays] | None = None
    """Takes its outputs, its inputs and what `sources` hold to what is returned in place of its outputs."""
    given: Callable[[OperationArrays, Sequence[OperationArrays]], OperationArrays] | None = None
    """Takes its inputs and what `sources` hold to what it is computed from, arrays of the same shapes."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    sources: tuple[int, ...] = ()
    """Places of operations before it; each holds its outputs, then its inputs."""


@dataclass(frozen=True)
class WayPoint:
    """A value on the way back through a program: what an operation gives, or what it takes."""

    at: int
    """Place of the operation."""
    number: int
    """Of its input; -1 for what it gives."""
    source: int
    """Place of the operation that made the value; -1 for what the program is given."""
    stops: bool
    """Whether the gradient is stopped there."""


class WayBack(Protocol):
    """The gradient of a program by its leaves, with what goes back through its values scaled or stopped."""

    points: Sequence[WayPoint]

    def gradient(self, shares: Mapping[int, float]) -> Mapping[str, NDArray[np.float64]]:
        """Return the gradient of all leaves.

        Args:
            shares: Of what comes back to a point, by its number, how much goes on: 0 for one that is stopped, 1 for
                all. Where none is given it is as the program has it.
        """


class TracedProgram(Protocol):
    """A function that was called, with all that it did."""

    operations: Sequence[ProgramOperation]
    """In the order in which they ended; the body of a loop once."""
    outputs: tuple[NDArray[np.float64], ...]

    def run(
        self, edits: Mapping[int, OperationEdit], at: int | None = None
    ) -> tuple[NDArray[np.float64], ...] | None:
        """Return what it gives with some operations changed; None where it fails, or goes another way.

        Args:
            edits: Place of an operation to what is done there.
            at: Place of the operation whose first output is returned in place of what the program gives; nothing
                after it is computed.
        """

    def changed(self, edits: Mapping[int, OperationEdit]) -> TracedProgram | None:
        """Return the program with some operations changed for good, computed again; None where `run` gives None.

        Args:
            edits: Place of an operation to what is done there; the places stay as they are.
        """

    def way_back(self, leaves: Sequence[str], weights: Sequence[NDArray[np.float64]]) -> WayBack | None:
        """Return its gradient by its leaves; None where that is not to be had.

        Args:
            leaves: Names of the leaves that it was given first.
            weights: Of each output: the gradient is that of the sum of all weighted outputs.
        """

"""How far translations of one optimizer are from it: the problem that was trained, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LeastSquares", "Measured", "Translation"]


@dataclass(frozen=True, kw_only=True)
class LeastSquares:
    """A weight matrix that is fitted to a few batches in turn."""

    x: NDArray[np.float64]
    """Inputs, [batches, rows, inputs]."""
    y: NDArray[np.float64]
    """Targets, [batches, rows, outputs]."""
    start: NDArray[np.float64]
    """The matrix at the start, [inputs, outputs]."""
    maximize: bool = False
    """Whether gradients are those of the negative loss, for an optimizer that climbs."""

    def nudged(self) -> LeastSquares:
        """Return the problem with every element of the start one unit in the last place higher."""
        return replace(self, start=np.nextafter(self.start, np.inf))


@dataclass(frozen=True, kw_only=True)
class Translation:
    """What one would write for an optimizer in the other library, and what that changes."""

    text: str
    """The call."""
    left_out: tuple[str, ...] = ()
    """Arguments that were given and that it does not take."""
    source: str = ""
    """File and line of its function."""
    first: int | None = None
    """First step at which the loss is another one; None if there is none."""
    after_200: float | None = None
    """Largest relative difference of the loss within 200 steps; None in a shorter run."""
    after_all: float | None = None
    """Largest relative difference of the loss in all steps that count; None where nothing was measured."""
    problem: str = ""
    """Why nothing was measured; else empty."""

    def at(self, source: str) -> Translation:
        """Return the same with the file and line of its function."""
        return replace(self, source=source)

    def judged(self, **figures: Any) -> Translation:
        """Return the same with what was measured."""
        return replace(self, **figures)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of one optimizer with some arguments."""

    steps: int
    """Steps that were trained."""
    counted: int
    """Steps until PyTorch's loss was no longer a finite number; all of them if it always was."""
    translations: tuple[Translation, ...]
    """What one would write, the function of the same name first."""
    exact: float | None
    """Largest relative difference of the loss with the exact call; None if no step can be judged."""
    apart: int | None
    """First step at which the exact call is further from PyTorch than rounding explains; None if it never is."""
    judged: int
    """Steps in which one unit in the last place of the start keeps PyTorch itself within 1e-13."""
    source: str
    """File and line of the class in PyTorch."""
    versions: tuple[str, ...] = ()
    """Of the two libraries and what they stand on."""

"""An optimizer with the arguments that were given, measured: its obvious translations and the exact call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity import sides
from parity.contract import LeastSquares, Measured, Translation
from parity.environment import versions
from parity.errors import SpecError
from parity.state import OptimizerKind

__all__ = ["BAR", "FLOOR", "least_squares", "measure_optimizer"]

BAR = 1e-12
"""Relative difference of the loss above which it is another training."""

FLOOR = 1e-13
"""From where one unit in the last place of the start takes PyTorch this far from itself, nothing is judged."""

Losses = NDArray[np.float64]


def least_squares(maximize: bool = False) -> LeastSquares:
    """Return the problem of docs/optimizers.md: four batches of eight rows in turn, six inputs, four outputs.

    A batch is a quarter of the data: at the minimum of all of it, gradients would be rounding noise.

    Args:
        maximize: As the field.
    """
    generator = np.random.default_rng(0)
    x = generator.normal(size=(32, 6))
    y = x @ generator.normal(size=(6, 4)) + generator.normal(size=(32, 4))
    start = 0.3 * generator.normal(size=(6, 4))
    return LeastSquares(x=x.reshape(4, 8, 6), y=y.reshape(4, 8, 4), start=start, maximize=maximize)


def measure_optimizer(kind: OptimizerKind, given: Mapping[str, Any], steps: int) -> Measured:
    """Train with an optimizer in PyTorch, with each obvious translation, and with the exact call.

    Args:
        kind: The optimizer; one that PyTorch has.
        given: Its arguments under PyTorch's names; those left out are PyTorch's defaults.
        steps: Steps of each training, at least 1.

    Raises:
        MissingFrameworkError: A framework is not installed.
        SpecError: An argument outside of its range, one that PyTorch refuses here, or PyTorch has no such optimizer.
        UnknownNameError: The optimizer has no such argument.

    Numerics: float64. The loss of PyTorch's own training is the reference, as far as it is finite.
    """
    full = kind.resolve(given)
    if not kind.in_torch:
        raise SpecError(kind.name, "is not in torch.optim, so there is nothing to compare with")
    theirs, ours = sides.optimizers("torch"), sides.optimizers("jax")
    problem = least_squares(maximize=bool(full.get("maximize")))
    reference = theirs.losses(kind.name, given, problem, steps)
    counted = _first(~np.isfinite(reference), steps)
    with np.errstate(all="ignore"):
        own = _apart(theirs.losses(kind.name, given, problem.nudged(), steps), reference)
        judged = min(counted, _first(own > FLOOR, steps))
        exact = _apart(ours.losses(kind.name, given, problem, steps), reference)[:judged]
        found = [
            _judged(one, curve if isinstance(curve, str) else _apart(curve, reference)[:counted])
            for one, curve in ours.translations(kind, given, problem, steps)
        ]
    known = versions(("torch", "jax", "optax"))
    return Measured(
        steps=steps,
        counted=counted,
        translations=tuple(found),
        exact=float(exact.max()) if judged else None,
        apart=None if (differs := _first(exact > BAR, -1)) < 0 else differs,
        judged=judged,
        source=theirs.source(kind.name),
        versions=tuple(f"{name} {version}" for name, version in known.items()),
    )


def _judged(one: Translation, apart: Losses | str) -> Translation:
    if isinstance(apart, str):
        return one.judged(problem=apart)
    if not apart.size:
        return one.judged(problem="PyTorch's loss is not finite")
    differs = _first(apart > BAR, -1)
    return one.judged(
        first=None if differs < 0 else differs,
        after_200=float(apart[:200].max()) if apart.size >= 200 else None,
        after_all=float(apart.max()),
    )


def _apart(curve: Losses, reference: Losses) -> Losses:
    """Return the relative difference at each step; infinite where one is not a number and the other is."""
    apart = np.where(curve == reference, 0.0, np.abs(curve - reference) / np.abs(reference))
    return np.where(np.isnan(apart), np.inf, apart)


def _first(where: NDArray[np.bool_], otherwise: int) -> int:
    """Return the first step at which something holds."""
    found = np.flatnonzero(where)
    return int(found[0]) if found.size else otherwise

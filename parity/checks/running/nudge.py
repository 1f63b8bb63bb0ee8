"""Nudged starts: every parameter moved by one unit in the last place, to measure the rounding noise of a trainer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from parity import sides
from parity.capture import Scope, Walk, capture

__all__ = ["Compute", "Nudge", "nudge_parameters"]

Compute = Literal["float64", "float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Nudge:
    """How the parameters are moved."""

    seed: int
    """Draws the signs."""
    precision: Compute
    """Type whose last place counts: that in which the products are computed."""


class _Finder(Walk):
    """A walk that remembers the objects at the paths that it meets."""

    def __init__(self, keep: Iterable[str] = ()) -> None:
        super().__init__(keep=keep)
        self.objects: dict[str, Any] = {}

    def is_new(self, path: str, value: Any, component: str, key: Any = None) -> bool:
        """Remember the first object of a path: a variable comes before the array that it holds."""
        self.objects.setdefault(path, value)
        return super().is_new(path, value, component, key)


def nudge_parameters(scopes: Sequence[Scope], state: Mapping[str, Any] | None, nudge: Nudge) -> list[str]:
    """Move every parameter that can be written in place by one unit in the last place, up or down at random.

    Args:
        scopes: The frames that hold the marks.
        state: What the mark said its state is.
        nudge: Seed and precision.

    Returns:
        The paths that were moved; arrays that cannot be written, as those of JAX outside of a variable, are not.

    Numerics:
        Zeros count as 0.5: biases start at 0 and are added to values of size 1. Narrower types than the parameter's
        are moved by the last place of the narrower one, since less would vanish in the cast.
    """
    seen = capture(scopes, state).leaves
    paths = [path for path, leaf in seen.items() if _is_parameter(leaf.component, leaf.kind)]
    finder = _Finder(paths)
    snapshot = capture(scopes, state, walk=finder)
    writers = [_write_numpy, *(adapter.write for adapter in sides.adapters().values())]
    moved = []
    for number, path in enumerate(paths):
        values = snapshot.values.get(path)
        if values is None or path not in finder.objects:
            continue
        generator = np.random.default_rng((nudge.seed, number))
        target = _moved(np.asarray(values), generator, nudge.precision)
        if any(write(finder.objects[path], target) for write in writers):
            moved.append(path)
    return moved


def _is_parameter(component: str, kind: str) -> bool:
    return component in ("model.params", "optimizer.master_params") and "float" in kind


def _moved(values: NDArray[Any], generator: np.random.Generator, precision: Compute) -> NDArray[Any]:
    from parity.checks.criteria import ulp

    wide = values.astype(np.float64)
    signs = np.where(generator.integers(0, 2, wide.shape) > 0, 1.0, -1.0)
    size = np.where(wide == 0.0, 0.5, wide)
    own: Compute = "float64" if values.dtype == np.float64 else "float32"
    coarse = np.maximum(ulp(size, precision), ulp(size, own))
    return np.asarray(wide + signs * coarse, values.dtype)


def _write_numpy(target: Any, values: NDArray[Any]) -> bool:
    """Write into an array of NumPy; return whether it is one that can be written."""
    if not isinstance(target, np.ndarray) or not target.flags.writeable:
        return False
    target[...] = values
    return True

"""Nudged starts: every parameter moved by one unit in the last place, to measure the rounding noise of a trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity import sides
from parity.capture import Scope, Walk, capture
from parity.checks.noise import one_ulp_away
from parity.contract import Precision

__all__ = ["Compute", "Nudge", "nudge_parameters"]

Compute = Precision
"""Type in which a trainer computes its products."""


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


def nudge_parameters(
    scopes: Sequence[Scope], state: Mapping[str, Any] | None, nudge: Nudge
) -> tuple[list[str], Callable[[], None]]:
    """Move every parameter that can be written in place by one unit in the last place, up or down at random.

    Args:
        scopes: The frames that hold the marks.
        state: What the mark said its state is.
        nudge: Seed and precision.

    Returns:
        The paths that were moved; arrays that cannot be written, as those of JAX outside of a variable, are not. And
        a function that puts back, after the run, what still is as it was moved: an array of a module that is merely
        imported outlives the run, and belongs to the user.

    Numerics:
        As of `noise.one_ulp_away`.
    """
    seen = capture(scopes, state).leaves
    paths = [path for path, leaf in seen.items() if _is_parameter(leaf.component, leaf.kind)]
    objects, values = _found(scopes, state, paths)
    moved: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
    for number, path in enumerate(paths):
        if path not in values or path not in objects:
            continue
        generator = np.random.default_rng((nudge.seed, number))
        before = np.array(values[path])
        up = generator.integers(0, 2, before.shape) > 0
        target = one_ulp_away(before, up, nudge.precision)
        if _write(objects[path], target):
            moved[path] = before, target

    def put_back() -> None:
        now, reached = _found(scopes, state, list(moved))
        for path, (before, target) in moved.items():
            if now.get(path) is objects[path] and np.array_equal(reached.get(path, before), target, equal_nan=True):
                _write(objects[path], before)

    return list(moved), put_back


def _found(
    scopes: Sequence[Scope], state: Mapping[str, Any] | None, paths: Sequence[str]
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the objects at paths, and their values."""
    finder = _Finder(paths)
    return finder.objects, capture(scopes, state, walk=finder).values


def _write(target: Any, values: NDArray[Any]) -> bool:
    """Write values in place with what knows how; return whether anything does."""
    return any(write(target, values) for write in (_write_numpy, *(one.write for one in sides.adapters().values())))


def _is_parameter(component: str, kind: str) -> bool:
    return component in ("model.params", "optimizer.master_params") and "float" in kind


def _write_numpy(target: Any, values: NDArray[Any]) -> bool:
    """Write into an array of NumPy; return whether it is one that can be written."""
    if not isinstance(target, np.ndarray) or not target.flags.writeable:
        return False
    target[...] = values
    return True

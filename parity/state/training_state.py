"""TrainingState: the neutral form of everything that must survive a stop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import StateError

__all__ = ["TrainingState", "take_count", "take_scale"]

MAX_COUNT = 1 << 53
"""Counts stay below, so that every format holds them exactly."""


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """Canonical leaf paths to arrays and to JSON values.

    | leaves | type |
    |---|---|
    | `model.params.<name>`, `model.buffers.<name>` | arrays, PyTorch layout |
    | `optimizer.<slot>.<name>` | arrays, `first_moment`, `second_moment`, `momentum` |
    | `optimizer.step`, `schedule.step` | int: applied updates, completed steps |
    | `schedule.rule`, `.position`, `.groups`, `.schema` | JSON of a `parity.schedules.Schedule`, for a step |
    | `scaler.scale`, `scaler.growth_tracker` | float, int; only with a loss scaler |
    | `rng.init`, `rng.data`, `rng.dropout` | the seeds of the counter-based streams |
    | `rng.native.<stream>` | arrays; only with native dropout |
    | `data.position` | JSON object |
    | `counters.step`, `counters.updates`, `counters.epoch`, `counters.skips_in_row` | int |
    | `best` | JSON object (metric, step), or null before the first validation |
    | `config.spec`, `config.hash` | resolved spec as TOML, hash over what gives it meaning |
    """

    arrays: Mapping[str, NDArray[np.generic]]
    scalars: Mapping[str, Any] = field(default_factory=dict)

    def group(self, prefix: str) -> dict[str, NDArray[np.generic]]:
        """Return the arrays below a prefix, keyed by the rest of their path.

        Args:
            prefix: The start of a path, without a dot at its end, such as `optimizer.first_moment`.

        Example:
            >>> state = TrainingState(arrays={"model.params.w": np.ones(2), "optimizer.momentum.w": np.zeros(2)})
            >>> list(state.group("model.params"))
            ['w']
        """
        start = prefix + "."
        return {k.removeprefix(start): v for k, v in self.arrays.items() if k.startswith(start)}


def take_count(scalars: dict[str, Any], leaf: str) -> int:
    """Remove a counter from the scalars of a state and return it.

    Args:
        scalars: Leaf path to JSON value; it loses the leaf.
        leaf: Path of the counter.

    Raises:
        StateError: It is missing, or no integer in [0, 2**53).
    """
    value = _take(scalars, leaf)
    if type(value) is not int or not 0 <= value < MAX_COUNT:
        shown = repr(value)[:40] if type(value) is not int or abs(value) < MAX_COUNT else "more than any run has"
        raise StateError(leaf, f"expected a count of at least 0, got {shown}")
    return value


def take_scale(scalars: dict[str, Any], leaf: str) -> float:
    """Remove a loss scale from the scalars of a state and return it.

    Args:
        scalars: Leaf path to JSON value; it loses the leaf.
        leaf: Path of the scale.

    Raises:
        StateError: It is missing, or no finite float above 0.
    """
    value = _take(scalars, leaf)
    if type(value) is not float or not 0.0 < value < math.inf:
        raise StateError(leaf, f"expected a finite scale above 0, got {value!r}")
    return value


def _take(scalars: dict[str, Any], leaf: str) -> Any:
    if leaf not in scalars:
        raise StateError(leaf, "is missing")
    return scalars.pop(leaf)

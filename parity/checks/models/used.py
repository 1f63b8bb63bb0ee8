"""In which order a model takes its leaves into what it computes: alike in a port, however its leaves are listed.

A port of functions shows no modules, and a dictionary lists its leaves by the letters of their keys. What it computes
takes them in the order of the original, but for what no later value depends on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.contract import Inputs, ModelProbe
from parity.errors import SpecError

__all__ = ["LeafUse", "takers_of", "uses_of"]


MOST_LAYERS = 64
"""Layers of a stack above which they are not looked for one by one."""


@dataclass(frozen=True)
class LeafUse:
    """How a model takes a leaf."""

    number: int
    """In the order of first use; those that are not seen come last."""
    kind: str = ""
    """Operation that takes it first, such as `linear`; empty where none is seen."""


def uses_of(
    model: ModelProbe, values: Mapping[str, NDArray[np.float64]], inputs: Inputs
) -> dict[str, LeafUse] | None:
    """Return how each leaf is used first; None where that is seen of none.

    Args:
        model: The model.
        values: Of its leaves, no two alike.
        inputs: What it is called with.
    """
    try:
        program = model.trace(values, inputs)
    except SpecError:
        return None
    if program is None:
        return None
    known = {_key(np.asarray(value, np.float64)): leaf for leaf, value in values.items()}
    for name, value in values.items():  # a loop over a stack of layers takes them one by one
        layers = np.asarray(value, np.float64) if 1 < len(np.atleast_1d(value)) <= MOST_LAYERS else ()
        for layer in layers:
            if layer.size > 1:
                known.setdefault(_key(layer), name)
    found: dict[str, LeafUse] = {}
    for operation in program.operations:
        for x in operation.inputs:
            if x.dtype.kind == "f" and (leaf := known.get(_key(x))) is not None:
                found.setdefault(leaf, LeafUse(len(found), operation.kind))
    if not found:
        return None
    return {leaf: found.get(leaf, LeafUse(len(found) + at)) for at, leaf in enumerate(values)}


def takers_of(model: ModelProbe, values: Mapping[str, NDArray[np.float64]], inputs: Inputs, leaf: str) -> list[str]:
    """Return the kinds of the operations that take a leaf as a whole, in their order; none where that is not seen.

    Args:
        model: The model.
        values: Of its leaves, no two alike.
        inputs: What it is called with.
        leaf: The leaf.
    """
    try:
        program = model.trace(values, inputs)
    except SpecError:
        return []
    wanted = _key(np.asarray(values[leaf], np.float64))
    return [
        one.kind for one in (program.operations if program is not None else ())
        if any(x.dtype.kind == "f" and _key(x) == wanted for x in one.inputs)
    ]  # fmt: skip


def _key(value: NDArray[Any]) -> tuple[tuple[int, ...], bytes]:
    return value.shape, np.ascontiguousarray(value).tobytes()

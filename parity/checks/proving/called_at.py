"""The module whose call gives what one program alone computes: a line that several share says not which it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs import ValueGraft
from parity.contract import Inputs, ModelProbe, TracedProgram
from parity.errors import SpecError

__all__ = ["ModuleOf", "module_of", "with_module"]

ModuleOf: TypeAlias = Callable[[int, NDArray[Any], int], str]
"""Takes a side, what a program made there and the number of the draw to the module that gave it; empty where none."""

SAME = 1e-12
"""How far, of its largest element, what a module gives may be from what a program made."""


def module_of(
    model: ModelProbe, values: Mapping[str, NDArray[np.float64]], inputs: Inputs, made: NDArray[Any]
) -> str:
    """Return the path and the class of the module that gives a value, where the model has several of that class.

    Args:
        model: The model.
        values: Of its leaves.
        inputs: What it is called with.
        made: What was computed.
    """
    try:
        calls = model.evaluate(values, inputs, calls=True).calls
    except SpecError:
        return ""
    top = float(np.abs(made).max(initial=0.0))
    # of modules within one another the inner one ends first
    found = next((
        one for one in calls if one.path and one.outputs and one.outputs[0].shape == made.shape
        and float(np.abs(one.outputs[0] - made).max(initial=0.0)) <= SAME * top
    ), None)  # fmt: skip
    if found is None or len({one.path for one in calls if one.kind == found.kind}) < 2:
        return ""
    return f"{found.path} ({found.kind})"


def with_module(found: ValueGraft, programs: tuple[TracedProgram, TracedProgram], draw: int, called: ModuleOf) -> str:
    """Return what is left out, and of which module, where a line does not say it.

    Args:
        found: What one program alone computes.
        programs: Both, at one draw.
        draw: Its number.
        called: Tells the module.
    """
    text = found.text
    side = 0 if found.parts[0] else 1
    if not text.startswith("left out: ") or not found.parts[side] or found.parts[1 - side]:
        return text
    made = programs[side].operations[found.parts[side][-1]].outputs[0]
    module = called(side, made, draw)
    words = "left out: not here, " if side else "left out: "
    return text.replace(words, f"{words}{module}: ", 1) if module else text

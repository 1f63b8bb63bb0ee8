"""Whether an optimizer's state is whole: what a parameter lacks, PyTorch does not make up, and neither does this.

A parameter without any state had no update yet, and begins as in PyTorch. One with a part of it is damaged, or its
groups were changed after it was saved: PyTorch raises a KeyError at its next step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.convert.torch_state import OptimizerPart
from parity.errors import CheckpointError
from parity.formats import Array, count_of, leaf_name, number_of

__all__ = ["MOST_UPDATES", "require_complete"]

MOST_UPDATES = (1 << 31) - 1
"""Counts of updates are int32 in JAX."""


def require_complete(part: OptimizerPart, model: Mapping[str, Array]) -> None:
    """Check that each parameter with state has all of it, in forms that JAX has too.

    Args:
        part: The optimizer, its parameters named.
        model: Parameters by name.

    Raises:
        CheckpointError: One lacks a value, counts in another form or beyond int32, or is complex and has squares.
    """
    groups = {str(number): group for group in part.groups for number in group.get("params", ())}
    for number, name in part.names.items():
        entry = part.state.get(number, {})
        if not any(value is not None for value in entry.values()):
            continue
        where = f"{leaf_name((*part.at, 'state', number))}, of {name},"
        arguments = {**part.kind.arguments, **groups.get(str(number), {})}
        needed = [slot.key for slot in part.kind.kept(arguments, len(model[name].shape))]
        for key in [*needed, *(["step"] if part.kind.counts else [])]:
            value = entry.get(key)
            if value is None or (key != "step" and not isinstance(value, Array)):
                shown = "has no" if value is None else f"has {number_of(value)!r} as"
                raise CheckpointError(
                    f"{where} {shown} {key}, which {part.kind.name} keeps with {_shown(arguments)}: PyTorch would "
                    "fail at its next step, and nothing is made up for it; --reset optimizer leaves the optimizer out"
                )
        _require_count(where, entry.get("step"))
        if model[name].dtype.kind == "c" and part.kind.name != "SGD":
            raise CheckpointError(
                f"{where} is of a complex parameter: PyTorch keeps the squares of its real and imaginary parts, and "
                "JAX those of its size; --reset optimizer leaves the optimizer out"
            )


def _require_count(where: str, value: Any) -> None:
    if isinstance(value, Array) and value.shape:
        raise CheckpointError(f"{where} has {value} as step, expected a number without a shape")
    count = count_of(value)
    if count is not None and count > MOST_UPDATES:
        raise CheckpointError(f"{where} had {count:,} updates, and JAX counts them in int32, up to {MOST_UPDATES:,}")


def _shown(arguments: Mapping[str, Any]) -> str:
    flags = [f"{name}={arguments[name]}" for name in ("amsgrad", "centered", "momentum") if arguments.get(name)]
    return " and ".join(flags) or "its arguments"

"""Arguments as they are given: numbers of Python or NumPy, and scalars of JAX, whose value may change at any step.

`optax.inject_hyperparams` keeps hyperparameters in its state and builds the optimizer anew with them in each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from parity.errors import SpecError
from parity.state import OptimizerKind

__all__ = ["resolved"]

INSTEAD = {"momentum": 0.5}
"""What stands for a value that is not known, where torch's default would refuse another argument beside it."""


def resolved(kind: OptimizerKind, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments: those given, torch's defaults for the others, flags only where given.

    NumPy's scalars become numbers of Python. JAX's stay as they are, for a compiled function may be given others;
    their range is checked as far as their value is known. What decides how a step is built, such as `nesterov`, has
    to be known, and becomes a value of Python.

    Args:
        kind: The optimizer.
        given: Arguments under PyTorch's names.

    Raises:
        UnknownNameError: An argument that this optimizer does not take; lists those it does.
        SpecError: A value outside of its range, an array that is no scalar, or a value that is not known and has to
            be.

    Numerics: a scalar of JAX counts in its own dtype: as float32, 0.1 is 1e-9 off.
    """
    known = {name: _known(kind, name, value) for name, value in given.items()}
    found = kind.resolve(known)
    for name, value in given.items():
        if _is_live(value) and not _is_static(kind, name):
            found[name] = tuple(value) if isinstance(value, list) else value
    return found


def _is_live(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_is_live, value))
    return isinstance(value, jax.Array)


def _is_static(kind: OptimizerKind, name: str) -> bool:
    """Return whether an argument decides how a step is built."""
    default = kind.arguments.get(name)
    number = isinstance(default, float | tuple) or type(default) is int
    return not number or name == "ns_steps"


def _known(kind: OptimizerKind, name: str, value: Any, at: int | None = None) -> Any:
    """Return a value as Python has it; for one that is not known, one that passes every check."""
    if isinstance(value, tuple | list):
        return tuple(_known(kind, name, one, number) for number, one in enumerate(value))
    if isinstance(value, np.ndarray | np.generic | jax.Array) and value.ndim:
        raise SpecError(f"{kind.name}.{name}", f"must be a scalar, got an array of shape {tuple(value.shape)}")
    if not isinstance(value, jax.core.Tracer):
        return value.item() if isinstance(value, np.ndarray | np.generic | jax.Array) else value
    if name not in kind.arguments or _is_static(kind, name):
        problem = "decides how the step is built, and is not known here"
        raise SpecError(
            f"{kind.name}.{name}", f"{problem}: give a value of Python, in inject_hyperparams as static_args"
        )
    default = INSTEAD.get(name, kind.arguments[name])
    return default if at is None else default[at]

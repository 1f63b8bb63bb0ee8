"""The losses of a small least-squares training in float64 with an optimizer in JAX, compiled as one scan."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jax_side.optim.obvious import Call, obvious
from jax_side.optim.transform import by_name
from parity.contract import LeastSquares, Translation
from parity.state import OptimizerKind

__all__ = ["losses", "translations"]


def losses(name: str, arguments: Mapping[str, Any], problem: LeastSquares, steps: int) -> NDArray[np.float64]:
    """Return the losses of a training with the exact optimizer.

    Args:
        name: Class of torch.optim.
        arguments: Its arguments.
        problem: What is fitted.
        steps: Number of steps.

    Raises:
        SpecError: A value outside of its range.

    Numerics: float64; counts, NAdam's product and ASGD's rate in float32, as PyTorch keeps them by default.
    """
    with jax.enable_x64(True):
        return _train(by_name(name, arguments, scalar_dtype="float32"), problem, steps)


def translations(
    kind: OptimizerKind, given: Mapping[str, Any], problem: LeastSquares, steps: int
) -> list[tuple[Translation, NDArray[np.float64] | str]]:
    """Return what one would write in Optax, and the losses with each, or why there are none.

    Args:
        kind: The optimizer.
        given: Its arguments.
        problem: What is fitted.
        steps: Number of steps.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: The optimizer has no such argument.
    """
    found: list[tuple[Translation, NDArray[np.float64] | str]] = []
    for call, one in obvious(kind, given):
        with jax.enable_x64(True):
            try:
                curve: NDArray[np.float64] | str = _train(call.build(), problem, steps)
            except Exception as error:  # whatever Optax has against a value
                curve = " ".join(f"Optax refuses it: {type(error).__name__}: {error}".split())
        found.append((one.at(_line(call)), curve))
    return found


def _train(tx: Any, problem: LeastSquares, steps: int) -> NDArray[np.float64]:
    xs, ys = jnp.asarray(problem.x), jnp.asarray(problem.y)
    sign = -1 if problem.maximize else 1

    def body(carry: Any, step: jax.Array) -> tuple[Any, jax.Array]:
        weight, state = carry
        x, y = xs[step % len(xs)], ys[step % len(ys)]
        difference = x @ weight - y
        gradient = x.T @ difference * (sign * 2 / difference.size)
        updates, state = tx.update(gradient, state, weight)
        return (weight + updates, state), (difference**2).mean()

    weight = jnp.asarray(problem.start)
    run = jax.jit(lambda carry: jax.lax.scan(body, carry, jnp.arange(steps))[1])
    return np.asarray(run((weight, tx.init(weight))))


def _line(call: Call) -> str:
    """Return file and line of a function of Optax, from its package on; of a chain, those of its last part."""
    inner = [one for one in call.positional if isinstance(one, Call)]
    if inner:
        return _line(inner[-1])
    function = getattr(call.function(), "func", call.function())  # optax.nadam is a partial
    parts = Path(inspect.getsourcefile(function) or "").parts
    return f"{'/'.join(parts[len(parts) - 1 - parts[::-1].index('optax') :])}:{inspect.getsourcelines(function)[1]}"

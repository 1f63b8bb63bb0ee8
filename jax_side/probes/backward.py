"""The way back through a function of JAX: its gradient, with what goes back through its values scaled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jax_side.probes.traces import bind, body_of, evaluate_trace
from parity.contract import WayPoint

__all__ = ["JaxWayBack"]

MOST_TURNS = 16
"""Turns of a loop above which nothing in its body is scaled."""

_OWN_RULES = ("custom_jvp_call", "custom_vjp_call")
"""Primitives that have a derivative of their own, which is not that of the body."""


class JaxWayBack:
    """See `parity.contract.WayBack`.

    Args:
        closed: The trace.
        args: What it is given, the leaves first.
        leaves: Their names, in order.
        places: Path of an equation to the place of its operation.
        weights: Of each output: the gradient is that of the sum of all weighted outputs.
    """

    def __init__(
        self, closed: Any, args: Sequence[Any], leaves: Sequence[str], places: Mapping[tuple[Any, ...], int],
        weights: Sequence[NDArray[np.float64]],
    ) -> None:  # fmt: skip
        self._closed, self._args, self._leaves = closed, list(args), list(leaves)
        self._places, self._weights = places, weights
        self.points: list[WayPoint] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._makers: dict[int, tuple[int, Any]] = {}
        """Value of the first evaluation to what made it, with itself, by which it stays what it is."""
        with jax.enable_x64(True):
            self._run = jax.jit(jax.grad(self._weighted))
            held, rest = self._args[: len(leaves)], self._args[len(leaves) :]
            jax.eval_shape(lambda held, rest: self._weighted(held, rest, None), held, rest)
        self._makers.clear()

    def gradient(self, shares: Mapping[int, float]) -> dict[str, NDArray[np.float64]]:
        """Return the gradient with other shares of what goes back; see `parity.contract.WayBack`."""
        count = len(self._leaves)
        each = [float(shares.get(at, not one.stops)) for at, one in enumerate(self.points)]
        with jax.enable_x64(True):
            made = self._run(self._args[:count], self._args[count:], each)
        return {leaf: np.asarray(one, np.float64) for leaf, one in zip(self._leaves, made, strict=True)}

    def _weighted(self, held: Sequence[Any], rest: Sequence[Any], each: Sequence[Any] | None) -> Any:
        made = self._evaluated((), self._closed.jaxpr, self._closed.consts, [*held, *rest], each)
        pairs = [(one, weight) for one, weight in zip(made, self._weights, strict=True)
                 if jnp.issubdtype(one.dtype, jnp.floating)]  # fmt: skip
        return sum(jnp.sum(one * weight) for one, weight in pairs)

    def _evaluated(
        self, path: tuple[Any, ...], jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], shares: Any
    ) -> list[Any]:
        return evaluate_trace(
            jaxpr, consts, args, lambda number, eqn, values: self._equation((*path, number), eqn, values, shares)
        )

    def _equation(self, path: tuple[Any, ...], eqn: Any, values: list[Any], shares: Any) -> list[Any]:
        name = eqn.primitive.name
        body = None if name in _OWN_RULES else body_of(eqn)
        at = self._places.get(path)
        if body is not None:
            return self._evaluated(path, *body, values, shares)
        if name == "scan" and eqn.params["length"] <= MOST_TURNS:
            return self._scan(path, eqn, values, shares)
        given = values
        if at is not None and name != "stop_gradient":
            given = [self._point(at, n, one, shares) for n, one in enumerate(values)]
        made = list(given) if at is not None and name == "stop_gradient" else bind(eqn, given)
        if at is None or len(made) != 1:
            return made
        return [self._point(at, -1, made[0], shares, stops=name == "stop_gradient")]

    def _point(self, at: int, number: int, value: Any, shares: Any, *, stops: bool = False) -> Any:
        """Return a value, through which a share of the gradient goes back where it is an input or output of one."""
        if not isinstance(value, jax.Array) or not jnp.issubdtype(value.dtype, jnp.floating):
            return value
        if shares is not None:
            index = self._numbers.get((at, number))
            return value if index is None else _scaled(value, shares[index])
        if (at, number) not in self._numbers:  # once for all turns of a loop
            self._numbers[at, number] = len(self.points)
            source = at if number < 0 else self._makers.get(id(value), (-1, None))[0]
            self.points.append(WayPoint(at, number, source, stops))
        if number < 0:
            self._makers.setdefault(id(value), (at, value))
        return value

    def _scan(self, path: tuple[Any, ...], eqn: Any, values: list[Any], shares: Any) -> list[Any]:
        """Return what a scan gives, turn by turn, as `JaxProgram` computes it."""
        params = eqn.params
        count, carried, length = params["num_consts"], params["num_carry"], params["length"]
        body, consts = params["jaxpr"], values[:count]
        carry, rest = list(values[count : count + carried]), values[count + carried :]
        turns: list[list[Any]] = []
        for turn in range(length - 1, -1, -1) if params["reverse"] else range(length):
            given = [*consts, *carry, *[one[turn] for one in rest]]
            made = self._evaluated(path, body.jaxpr, body.consts, given, shares)
            carry = made[:carried]
            turns.append(made[carried:])
        turns = turns[::-1] if params["reverse"] else turns
        shapes = [atom.aval for atom in eqn.outvars[carried:]]
        if not turns:
            return [*carry, *[jnp.zeros(one.shape, one.dtype) for one in shapes]]
        return [*carry, *[jnp.stack(list(column)) for column in zip(*turns, strict=True)]]


@jax.custom_jvp
def _scaled(value: Any, share: Any) -> Any:
    """Return a value, through which a share of the gradient goes back."""
    return value


_scaled.defjvps(lambda tangent, made, value, share: share * tangent, None)

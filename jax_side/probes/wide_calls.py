"""Code of JAX that looks at its values, computed without its casts to narrower types: operation by operation.

A step that returns `float(loss)`, or asks whether a norm is finite, cannot be traced as a whole. Each operation that
it calls, compiled functions among them, is met as it is called, with its values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.core import Trace
from jax.extend import core

from jax_side.probes.islands import apply_wide
from jax_side.probes.traces import body_of
from parity.contract import Island

__all__ = ["widely"]


def widely(
    function: Callable[[], Any], found: dict[tuple[str, str], Island], compiled: dict[int, tuple[Any, Any]]
) -> Any:
    """Call a function whose operations compute in float64 what they compute in a narrower type by a cast.

    Args:
        function: Of arrays that it holds itself.
        found: Gets each cast, at its place.
        compiled: Gets what was compiled without casts, by the trace that it was compiled from; kept between calls.
    """
    with core.take_current_trace() as before, core.set_current_trace(_WideTrace(before, found, compiled)):
        return function()


class _Equation(NamedTuple):
    """An operation as it is called, with what `apply_wide` reads of an equation of a trace."""

    primitive: Any
    params: dict[str, Any]
    source_info: Any


class _SourceInfo(NamedTuple):
    traceback: Any = None


class _WideTrace(Trace):
    """Hands every operation to `apply_wide`, with its values."""

    def __init__(self, before: Any, found: dict[tuple[str, str], Island], compiled: dict[int, Any]) -> None:
        super().__init__()
        self.before, self.found, self.compiled = before, found, compiled

    def stage_value(self, val: Any) -> Any:
        return self.before.stage_value(val)

    def process_primitive(self, primitive: Any, tracers: Any, params: Any, /) -> Any:
        eqn = _Equation(primitive, params, _SourceInfo())
        with core.set_current_trace(self.before):
            body = body_of(eqn)
            made = apply_wide(eqn, list(tracers), self.found) if body is None else self._called(eqn, body[0], tracers)
        return made if primitive.multiple_results else made[0]

    def _called(self, eqn: _Equation, jaxpr: Any, values: Any) -> list[Any]:
        """Return what a compiled function gives, compiled without its casts: once, as JAX keeps its trace too."""
        if id(jaxpr) not in self.compiled:
            self.compiled[id(jaxpr)] = jaxpr, jax.jit(lambda *given: apply_wide(eqn, list(given), self.found))
        return list(self.compiled[id(jaxpr)][1](*values))

    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, tracers: Any, /, **_: Any) -> Any:
        return fun.call_wrapped(*tracers)

    def process_custom_vjp_call(self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, /, **_: Any) -> Any:
        return fun.call_wrapped(*tracers)

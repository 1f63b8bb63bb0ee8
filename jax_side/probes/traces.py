"""Traces of JAX computed again, equation by equation: what its readers share, which differ in what they do at one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jax.extend import core

__all__ = ["bind", "body_of", "evaluate_trace", "inner_traces", "inputs_read"]

_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr",
          "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "remat2": "jaxpr",
          "checkpoint": "jaxpr"}  # fmt: skip
"""Primitives that call another function once, to the parameter that holds it."""


def evaluate_trace(
    jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], apply: Callable[[int, Any, list[Any]], Sequence[Any]]
) -> list[Any]:
    """Return what a trace computes.

    Args:
        jaxpr: The trace.
        consts: Its constants.
        args: What it is given.
        apply: Returns what an equation gives: called with its number in the trace, itself, and what it takes.
    """
    known: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else known[atom]

    known.update(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, args, strict=True))
    for number, eqn in enumerate(jaxpr.eqns):
        made = apply(number, eqn, [read(atom) for atom in eqn.invars])
        known.update(zip(eqn.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def body_of(eqn: Any) -> tuple[Any, Sequence[Any]] | None:
    """Return the trace that an equation calls once, and its constants; None where it calls none, or a loop's."""
    if eqn.primitive.name not in _CALLS:
        return None
    body = eqn.params[_CALLS[eqn.primitive.name]]
    return (body.jaxpr, body.consts) if isinstance(body, core.ClosedJaxpr) else (body, ())


def inputs_read(jaxpr: Any, outputs: Sequence[bool] | None = None) -> list[bool]:
    """Return which inputs of a trace its outputs can follow, whatever the values.

    Args:
        jaxpr: The trace.
        outputs: Which of its outputs count; None for all.

    What a loop or a branch is given counts as read; a function that is called once is looked into.
    """
    asked = list(outputs or [True] * len(jaxpr.outvars))
    wanted = {atom for atom, one in zip(jaxpr.outvars, asked, strict=True) if one and isinstance(atom, core.Var)}
    for eqn in reversed(jaxpr.eqns):
        made = [var in wanted for var in eqn.outvars]
        if not any(made) and not eqn.effects:
            continue
        body = body_of(eqn)
        inner = None if body is None else inputs_read(body[0], made)
        read = inner if inner is not None and len(inner) == len(eqn.invars) else [True] * len(eqn.invars)
        wanted |= {atom for atom, one in zip(eqn.invars, read, strict=True) if one and isinstance(atom, core.Var)}
    return [var in wanted for var in jaxpr.invars]


def inner_traces(eqn: Any) -> Iterator[Any]:
    """Yield the traces that are parameters of an equation, of loops too; branches of a `cond` stand in a tuple."""
    for one in eqn.params.values():
        if isinstance(one, core.Jaxpr | core.ClosedJaxpr):
            yield one.jaxpr if isinstance(one, core.ClosedJaxpr) else one


def bind(eqn: Any, values: Sequence[Any], params: Mapping[str, Any] | None = None) -> list[Any]:
    """Return what the operation of an equation gives, as JAX computes it.

    Args:
        eqn: The equation.
        values: What it takes.
        params: In place of its own parameters.
    """
    bound = eqn.primitive.get_bind_params(dict(eqn.params if params is None else params))
    functions, given = bound if isinstance(bound, tuple) else ((), bound)  # a pair before jax 0.10
    made = eqn.primitive.bind(*functions, *values, **given)
    return list(made) if eqn.primitive.multiple_results else [made]

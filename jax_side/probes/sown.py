"""Calls of the modules of equinox, kept through `vmap`: values are marked while a model is traced, and read later.

A module of equinox is called inside of `vmap`, where its values are of one example; a mark is an operation that
does nothing, and has the whole batch once the trace is there. Marks inside of a loop of JAX (`scan`, `while`) are
not read, and modules that a transformation of equinox took apart and made anew (`filter_jit`, `filter_vmap`) are
not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from jax_side.probes.equinox_models import equinox, modules_in
from jax_side.probes.traces import bind, body_of, evaluate_trace, inner_traces

__all__ = ["CallTrace", "traced_calls"]

_mark = core.Primitive("parity_mark")
_mark.def_impl(lambda x, **_: x)
_mark.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(_mark, lambda _, x, **__: [x])
ad.primitive_jvps[_mark] = lambda primals, tangents, **how: (_mark.bind(primals[0], **how), tangents[0])
batching.primitive_batchers[_mark] = lambda args, dims, **how: (
    _mark.bind(jnp.moveaxis(args[0], dims[0], 0), **how), 0
)  # fmt: skip


@dataclass
class CallTrace:
    """A traced call of a model, whose marks can be read."""

    run: Callable[[Any, Any], tuple[list[Any], list[tuple[list[Any], list[Any]]]]]
    """Takes leaves by name and moves of what calls returned, or None; returns the outputs of the model, and what each
    call was given and returned, in the order in which they ended."""
    told: list[tuple[str, str]] = field(default_factory=list)
    """Path and class of the module of each call, once `run` was called."""


def traced_calls(call: Callable[[Any, Callable[[Any], Any]], list[Any]], held: Any) -> CallTrace:
    """Trace a model with marks at the calls of its modules.

    Args:
        call: Takes leaves by name, and what gives the context in which a module is called; returns the float arrays
            that the module returned.
        held: The leaves.
    """
    kinds: dict[int, tuple[str, str, int, int]] = {}
    closed = jax.make_jaxpr(lambda held: call(held, lambda module: _patched(modules_in(module), kinds)))(held)
    trace = CallTrace(lambda held, moves: ([], []))

    def run(held: Any, moves: Any) -> tuple[list[Any], list[tuple[list[Any], list[Any]]]]:
        reader = _MarkReader(kinds, moves)
        outputs = reader.evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(held))
        trace.told = [kinds[token][:2] for token, _, _ in reader.ended]
        return outputs, [(taken, made) for _, taken, made in reader.ended]

    trace.run = run
    return trace


@contextmanager
def _patched(modules: Mapping[str, Any], kinds: dict[int, tuple[str, str, int, int]]) -> Iterator[None]:
    """Mark what known modules take and return; their classes have their own `__call__` again afterwards."""
    paths = {id(one): path for path, one in reversed(list(modules.items()))}
    classes = {type(one) for one in modules.values() if "__call__" in dir(type(one))}
    homes = {next(base for base in cls.__mro__ if "__call__" in vars(base)) for cls in classes}
    before = {home: vars(home)["__call__"] for home in homes}
    active: set[int] = set()

    def wrapper(own: Any) -> Any:
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            # a call of the base class inside the call of one module is part of it
            if id(self) not in paths or id(self) in active:
                return own(self, *args, **kwargs)
            token = len(kinds)
            kinds[token] = ("", "", 0, 0)
            active.add(id(self))
            try:
                (args, kwargs), taken = _marked((args, kwargs), token, "taken")
                made, given = _marked(own(self, *args, **kwargs), token, "made")
            finally:
                active.discard(id(self))
            kinds[token] = (paths[id(self)], type(self).__name__, taken, given)
            return made

        return called

    try:
        for home, own in before.items():
            setattr(home, "__call__", wrapper(own))  # noqa: B010
        yield
    finally:
        for home, own in before.items():
            setattr(home, "__call__", own)  # noqa: B010


def _marked(value: Any, token: int, which: str) -> tuple[Any, int]:
    """Return what a module took or made with each of its float arrays marked, and how many there are."""
    state = equinox().nn.State
    leaves, tree = jax.tree.flatten(value, is_leaf=lambda one: isinstance(one, state))
    count = 0
    for at, leaf in enumerate(leaves):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating):
            leaves[at] = _mark.bind(leaf, token=token, which=which, number=count)
            count += 1
    return jax.tree.unflatten(tree, leaves), count


class _MarkReader:
    """An evaluation of a trace that keeps the values at marks.

    Args:
        kinds: Token of a call to path, class, and how many arrays it took and made.
        moves: What is added to the arrays that calls returned; None for nothing.
    """

    def __init__(self, kinds: Mapping[int, tuple[str, str, int, int]], moves: Any) -> None:
        self.kinds, self.moves = kinds, moves
        self.ended: list[tuple[int, list[Any], list[Any]]] = []
        self._open: dict[tuple[int, str], list[Any]] = {}

    def evaluate(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """Return what a trace computes."""
        return evaluate_trace(jaxpr, consts, args, self._apply)

    def _apply(self, number: int, eqn: Any, values: list[Any]) -> list[Any]:
        if eqn.primitive is _mark:
            return [self._kept(values[0], **eqn.params)]
        body = body_of(eqn)
        if body is not None and _has_marks(body[0]):
            return self.evaluate(*body, values)
        return bind(eqn, values)

    def _kept(self, value: Any, token: int, which: str, number: int) -> Any:
        if which == "made" and self.moves is not None:
            value = value + self.moves[len(self.ended)][number].astype(value.dtype)
        kept = self._open.setdefault((token, which), [])
        if number == 0:
            kept.clear()
        kept.append(value)
        if which == "made" and len(kept) == self.kinds[token][3]:
            self.ended.append((token, list(self._open.get((token, "taken"), [])), list(kept)))
        return value


def _has_marks(jaxpr: Any) -> bool:
    return any(eqn.primitive is _mark or any(map(_has_marks, inner_traces(eqn))) for eqn in jaxpr.eqns)

"""Calls of the modules of a model while it is traced: by `intercept_methods` of linen, by the classes of NNX.

The user's modules stay as they are: a class of NNX has its own `__call__` again when the context ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

__all__ = ["CallRecorder", "recorded", "trace_level"]


def trace_level() -> Any:
    """Return what tells the innermost transformation or trace that is under way from others."""
    return core.get_opaque_trace_state(convention="nnx")


class CallRecorder:
    """What modules were given and returned, in the order in which their calls ended.

    Args:
        moves: What is added to the arrays that each call returned, so that gradients reach them; None for nothing.
        level: Level of the trace (`trace_level`) at which calls are kept; None for all. What is called inside `vmap`
            or `grad` of the user has no value outside of it.
    """

    def __init__(self, moves: list[list[jax.Array]] | None = None, level: Any = None) -> None:
        self.moves, self.level = moves, level
        self.seen: list[tuple[str, str, list[jax.Array], list[jax.Array]]] = []
        self.modules: dict[str, Any] = {}
        """Path to the module of linen that was called last."""

    def called(self, path: str, kind: str, taken: Any, made: Any) -> Any:
        """Keep a call, and return what it returned with its moves added."""
        if self.level is not None and trace_level() != self.level:
            return made
        leaves, tree = jax.tree.flatten(made)
        places = [at for at, leaf in enumerate(leaves) if _is_float(leaf)]
        if self.moves is not None and len(self.seen) < len(self.moves):
            for at, move in zip(places, self.moves[len(self.seen)], strict=True):
                leaves[at] = leaves[at] + move.astype(leaves[at].dtype)
        inputs = [one for one in jax.tree.leaves(taken) if _is_float(one)]
        self.seen.append((path, kind, inputs, [leaves[at] for at in places]))
        return jax.tree.unflatten(tree, leaves)


@contextmanager
def recorded(recorder: CallRecorder, module: Any) -> Iterator[Callable[[Any], None]]:
    """Keep calls of modules in a recorder.

    Args:
        recorder: Gets them.
        module: Of NNX or of linen; none are kept for anything else.

    Yields:
        A function that takes the module of NNX that is called, to know its modules by their paths.
    """
    from flax import linen, nnx

    if isinstance(module, linen.Module):
        with linen.intercept_methods(_interceptor(recorder)):
            yield lambda _: None
    elif isinstance(module, nnx.Module):
        paths: dict[int, str] = {}
        active: set[int] = set()

        def know(bound: Any) -> None:
            for path, one in nnx.iter_modules(bound):
                paths.setdefault(id(one), ".".join(map(str, path)))

        classes = {type(one) for _, one in nnx.iter_modules(module) if "__call__" in dir(type(one))}
        homes = {next(base for base in cls.__mro__ if "__call__" in vars(base)) for cls in classes}
        before = {home: vars(home)["__call__"] for home in homes}
        try:
            for home, own in before.items():
                setattr(home, "__call__", _wrapper(own, recorder, paths, active))  # noqa: B010
            yield know
        finally:
            for home, own in before.items():
                setattr(home, "__call__", own)  # noqa: B010
    else:
        yield lambda _: None


def _interceptor(recorder: CallRecorder) -> Any:
    def intercept(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        made = call(*args, **kwargs)
        if context.method_name != "__call__":
            return made
        path = ".".join(context.module.path)
        recorder.modules[path] = context.module
        return recorder.called(path, type(context.module).__name__, (args, kwargs), made)

    return intercept


def _wrapper(own: Any, recorder: CallRecorder, paths: dict[int, str], active: set[int]) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        # a call of the base class inside the call of one module is part of it
        if id(self) not in paths or id(self) in active:
            return own(self, *args, **kwargs)
        active.add(id(self))
        try:
            made = own(self, *args, **kwargs)
        finally:
            active.discard(id(self))
        return recorder.called(paths[id(self)], type(self).__name__, (args, kwargs), made)

    return call


def _is_float(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating)

"""A training state of JAX as named arrays: modules and optimizers of NNX, any pytree, containers, numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jax_side.probes.equinox_models import parts_of_state
from jax_side.probes.islands import lifted
from jax_side.probes.paths import keys_of
from jax_side.probes.wide_calls import widely
from parity.contract import Island, StateView

__all__ = ["LiftedStep", "view_of"]

MODEL = "model"
"""Slot of the module of NNX that was given to the trainer."""

DEEPEST = 6
"""Objects inside one another that are looked into; containers, as optimizers of optimizers are, do not count."""


def view_of(state: Any, model: Any) -> StateView:
    """Return a copy of what a state holds.

    Args:
        state: What the user's `start` or `step` returned.
        model: What was given to `start`: a module of NNX is found again in the state, of anything else the state
            holds a copy under names of its own.
    """
    from flax import nnx

    walk = _PytreeWalk(model if isinstance(model, nnx.Module) else None)
    walk.visit("", state, 0)
    slot = MODEL if walk.owned else None
    return StateView(walk.arrays, walk.owned, slot, walk.kinds)


class _PytreeWalk:
    def __init__(self, model: Any) -> None:
        self.model = model
        self.arrays: dict[str, NDArray[Any]] = {}
        self.owned: dict[str, tuple[str, str]] = {}
        self.kinds: dict[str, str] = {}
        self.seen: set[int] = set()

    def keep(self, path: str, value: Any, leaf: str | None = None) -> None:
        if jax.dtypes.issubdtype(getattr(value, "dtype", np.float64), jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        kind = str(value.dtype) if hasattr(value, "dtype") else type(value).__name__
        wide = jnp.issubdtype(getattr(value, "dtype", np.int64), jnp.floating)
        self.arrays[path], self.kinds[path] = np.array(value, np.float64 if wide else None), kind
        if leaf is not None:
            self.owned[path] = (MODEL, leaf)

    def visit(self, path: str, value: Any, deep: int) -> None:
        from flax import nnx

        if isinstance(value, jax.Array | np.ndarray | np.generic | int | float) and not isinstance(value, bool):
            self.keep(path or "state", value)
            return
        if value is None or isinstance(value, str | bytes | bool | type) or deep > DEEPEST or id(value) in self.seen:
            return
        self.seen.add(id(value))
        dot = f"{path}." if path else ""
        if isinstance(value, nnx.Module | nnx.Optimizer | nnx.State):
            state = value if isinstance(value, nnx.State) else nnx.state(value)
            for keys, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
                if hasattr(leaf, "dtype"):
                    name = keys_of([key for key in keys if getattr(key, "name", "") != "value"])
                    self.keep(f"{dot}{name}", leaf, name if value is self.model else None)
        elif (parts := parts_of_state(value)) is not None:
            for key, one in parts.items():
                self.visit(f"{dot}{key}", one, deep)
        elif isinstance(value, Mapping):
            for key, one in value.items():
                self.visit(f"{dot}{key}", one, deep)
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            for key, one in zip(value._fields, value, strict=True):
                self.visit(f"{dot}{key}", one, deep)
        elif isinstance(value, list | tuple):
            for at, one in enumerate(value):
                self.visit(f"{dot}{at}", one, deep)
        elif jax.tree.leaves(value) and jax.tree.leaves(value)[0] is not value:
            for keys, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
                self.visit(f"{dot}{keys_of([k for k in keys if getattr(k, 'name', '') != 'value'])}", leaf, deep + 1)
        elif dataclasses.is_dataclass(value):
            for one in dataclasses.fields(value):
                self.visit(f"{dot}{one.name}", getattr(value, one.name, None), deep + 1)
        elif hasattr(value, "__dict__") and not callable(value):
            for key, one in vars(value).items():
                self.visit(f"{dot}{key}", one, deep + 1)


class LiftedStep:
    """A user's step that computes in float64 what it computes in a narrower type by a cast.

    The state is taken apart by NNX, so that the step is a function of arrays, which can be traced; what is no array
    in it is part of the program, which is compiled anew where that changes. A step that looks at values, as one that
    returns `float(loss)` does, is called operation by operation.

    Args:
        step: Takes a state and a batch, and returns both the state after an update and the loss.
    """

    def __init__(self, step: Callable[[Any, Any], Any]) -> None:
        self.step = step
        self._programs: dict[Any, Any] = {}
        self._compiled: dict[int, tuple[Any, Any]] = {}
        self._looks = False
        self.found: dict[tuple[str, str], Island] = {}

    def __call__(self, state: Any, batch: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the state after an update, and the loss."""
        from flax import nnx

        graph, held = nnx.split(_apart(state))
        # a rate that is computed from a count in int32 is float32, with its constants, whatever else is float64
        held = jax.tree.map(lambda one: one.astype(jnp.int64) if _is_count(one) else one, held)
        arrays = {name: one for name, one in batch.items() if isinstance(one, np.ndarray)}
        rest = {name: one for name, one in batch.items() if name not in arrays}
        if self._looks:
            return self._widely(graph, held, batch)
        key = (graph, repr(rest), repr({name: (one.shape, one.dtype) for name, one in arrays.items()}))
        if key not in self._programs:
            graphs: list[Any] = []

            def run(held: Any, arrays: Any) -> Any:
                made, loss = self.step(nnx.merge(graph, held), {**rest, **arrays})
                after, moved = nnx.split(_apart(made))
                graphs.append(after)
                return moved, loss

            self._programs[key] = (jax.jit(lifted(run, self.found)), graphs)
        program, graphs = self._programs[key]
        try:
            moved, loss = program(held, arrays)
        except jax.errors.JAXTypeError:
            self._looks = True
            return self._widely(graph, held, batch)
        return nnx.merge(graphs[-1], moved), loss

    def _widely(self, graph: Any, held: Any, batch: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return what the step gives where its values are known as it runs."""
        from flax import nnx

        state = nnx.merge(graph, held)
        made: tuple[Any, Any] = widely(lambda: self.step(state, dict(batch)), self.found, self._compiled)
        return made


def _is_count(value: Any) -> bool:
    return isinstance(value, jax.Array) and value.ndim == 0 and value.dtype == jnp.int32


def _apart(state: Any) -> Any:
    """Return a state whose averages are variables of their own: those of `nnx.state` are those of its module."""
    from flax import nnx

    if isinstance(state, nnx.State):
        return jax.tree.map(lambda one: one, state)
    if isinstance(state, dict):
        return {key: _apart(one) for key, one in state.items()}
    if type(state) in (list, tuple):
        return type(state)(_apart(one) for one in state)
    return state

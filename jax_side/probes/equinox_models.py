"""Modules of equinox as people bring them: without dropout, in evaluation, and with their `State`.

Equinox is looked up where the user's own code has imported it; it is not imported for this.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from jax_side.probes.paths import keys_of, parameters_of
from parity.contract import Inputs, call_with
from parity.errors import SpecError

BATCH_AXES = 2
"""Axes of a batch at most: examples, or time and examples."""

__all__ = [
    "StatefulModel",
    "equinox",
    "is_module",
    "modules_in",
    "parts_of_state",
    "stateful_model",
    "without_dropout",
]


def equinox() -> Any:
    """Return the module of that name; None where nobody has imported it."""
    return sys.modules.get("equinox")


def is_module(one: Any) -> bool:
    """Return whether something is a module of equinox."""
    found = equinox()
    return found is not None and isinstance(one, found.Module)


def modules_in(built: Any) -> dict[str, Any]:
    """Return the modules of equinox in a tree by their paths; the tree itself has the empty one."""
    found: dict[str, Any] = {}

    def visit(path: str, one: Any) -> None:
        if is_module(one):
            found[path] = one
        for keys, child in jax.tree_util.tree_flatten_with_path(one, is_leaf=lambda part: part is not one)[0]:
            if child is not one and not isinstance(child, jax.Array):
                visit(f"{path}.{keys_of(keys)}".lstrip("."), child)

    visit("", built)
    return found


def without_dropout(built: Any) -> tuple[Any, dict[str, float]]:
    """Return a module whose dropouts drop nothing, and their rates by path; anything else as it is."""
    if not is_module(built):
        return built, {}
    kind = equinox().nn.Dropout
    rates = {path: float(one.p) for path, one in modules_in(built).items() if isinstance(one, kind) and one.p}

    def still(one: Any) -> Any:
        return kind(0.0, inference=one.inference) if isinstance(one, kind) else one

    return jax.tree.map(still, built, is_leaf=lambda one: isinstance(one, kind)), rates


def parts_of_state(value: Any) -> dict[str, Any] | None:
    """Return what a `State` holds, by the names of the layers' fields; None for anything else.

    Its keys are the paths that `make_with_state` found in the model, such as `.layers[0].norm.batch_state_index`.
    """
    found = equinox()
    if found is None or not isinstance(value, found.nn.State):
        return None
    data = jax.tree.structure(value).node_data()
    keys = data[1] if data else ()
    parts = jax.tree.flatten(value, is_leaf=lambda one: one is not value)[0]
    names = [re.sub(r"\[([^\]]*)\]", r".\1", str(key)).replace("'", "").strip(".") for key in keys]
    return dict(zip(names, parts, strict=True))


@dataclass(frozen=True)
class StatefulModel:
    """A module with its `State`, whose leaves have the names of the layers that they are of."""

    names: tuple[str, ...]
    """Of the arrays of the state, in the order in which it is flattened, such as `norm.batch_state_index.0`."""
    leaves: tuple[Any, ...]
    filled: Callable[[Sequence[Any]], Any]
    """Returns a state with other arrays in this order."""
    call: Callable[[Any, Any, Inputs], Any]
    """Takes a module, a state, and inputs with a batch; returns what the module returned, without the state."""
    note: str
    """What was assumed to call it; empty for nothing."""


def stateful_model(option: str, name: str, built: Any, inputs: Inputs) -> StatefulModel | None:
    """Return a module with its `State`, as `eqx.nn.make_with_state` gives both; None for anything else.

    Whether the module takes a batch or one example is measured: a batch norm that is training reduces over the axis
    of a `vmap`, and a module that has none of its own cannot be called without one around it.

    Raises:
        SpecError: It can be traced neither way, or its norms reduce over several axes.
    """
    found = equinox()
    pair = isinstance(built, tuple) and len(built) == 2 and is_module(built[0])
    if found is None or not pair or not isinstance(built[1], found.nn.State):
        return None
    module, state = built
    flat, structure = jax.tree.flatten(state)
    names = [""] * len(flat)
    for path, index in modules_in(module).items():
        if type(index) is found.nn.StateIndex:
            for keys, leaf in jax.tree_util.tree_flatten_with_path(state.get(index))[0]:
                at = next(at for at, one in enumerate(flat) if one is leaf and not names[at])
                names[at] = ".".join(word for word in (path, keys_of(keys)) if word)
    axes = {one.axis_name for one in modules_in(module).values() if isinstance(one, found.nn.BatchNorm)}
    still, _ = without_dropout(module)
    problem = _traced(still, state, inputs, _whole)
    call: Callable[[Any, Any, Inputs], Any] = _whole
    note = ""
    if problem is not None and axes:
        if len(axes) > 1 or not isinstance(axis := next(iter(axes)), str):
            raise SpecError(option, f"{name} reduces over {', '.join(map(str, axes))}: give it within your own vmap")
        call = partial(_each, axis)
        note = f"assumed: {name} takes one example, and is called under jax.vmap(..., axis_name={axis!r})"
        problem = _traced(still, state, inputs, call)
    if problem is not None:
        why = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise SpecError("inputs", f"{name} cannot be called with them and its State: {why[:300]}")
    return StatefulModel(tuple(names), tuple(flat), structure.unflatten, call, note)


def axes_of_examples(call: Callable[[Sequence[Any], Mapping[str, Any]], Any], inputs: Inputs) -> int:
    """Return how many `vmap` a call needs around it: 0 where it takes the whole of the inputs.

    Most modules of equinox take one example, and the loss of a trainer puts `vmap` around them, twice for sequences.
    Which it is is measured, not guessed: a module that cannot be called with the whole of the inputs, and can be with
    one example of them, takes examples. One that can be called with both gets the whole, as it was given.
    """
    args, named = call_with(inputs)
    for axes in range(BATCH_AXES + 1):
        try:
            jax.eval_shape(each_example(call, axes), tuple(args), dict(named))
        except Exception:  # anything that the user's code does
            continue
        return axes
    return 0


def each_example(call: Callable[..., Any], axes: int) -> Callable[..., Any]:
    """Return a call of arguments and named arguments for each example along their first axes."""
    for _ in range(axes):
        call = jax.vmap(call)
    return call


def _traced(module: Any, state: Any, inputs: Inputs, call: Callable[[Any, Any, Inputs], Any]) -> Exception | None:
    """Return why a call that trains cannot be traced; None where it can."""
    try:
        call(module, state, inputs)
    except Exception as error:  # anything that the user's code does
        return error
    return None


def _whole(module: Any, state: Any, inputs: Inputs) -> Any:
    args, named = call_with(inputs)
    return _without_state(_with_state(module, state, args, named))


def _each(axis: str, module: Any, state: Any, inputs: Inputs) -> Any:
    args, named = call_with(inputs)

    def one(args: Any, named: Mapping[str, Any]) -> Any:
        return _without_state(_with_state(module, state, args, named))

    return jax.vmap(one, axis_name=axis)(tuple(args), dict(named))


def _with_state(module: Any, state: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    clone = jax.tree.map(lambda one: one, state)  # a state is used up by the first layer that sets it
    if "state" in parameters_of(type(module).__call__):
        return module(*args, **{**named, "state": clone})
    return module(*args, clone, **named)


def _without_state(returned: Any) -> Any:
    kind = equinox().nn.State
    return jax.tree.map(lambda one: None if isinstance(one, kind) else one, returned,
                        is_leaf=lambda one: isinstance(one, kind))  # fmt: skip

"""Models of JAX as a tree of arrays and a function of it: NNX, linen, pytrees that can be called, plain functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jax_side.probes.equinox_models import (
    StatefulModel,
    axes_of_examples,
    each_example,
    equinox,
    is_module,
    stateful_model,
    without_dropout,
)
from jax_side.probes.paths import keys_of, modes_of
from parity.contract import Inputs, call_with
from parity.errors import SpecError

__all__ = ["ModelTree", "tree_of"]


@dataclass(frozen=True)
class ModelTree:
    """A model as a function of a tree."""

    arrays: Mapping[str, Any]
    """Arrays by their dotted names, in the order of the tree."""
    call: Callable[[Mapping[str, Any], Inputs], Any]
    """Takes arrays by name and what the model is called with."""
    statistics: frozenset[str] = frozenset()
    collections: Mapping[str, str] = field(default_factory=dict)
    bind: Callable[[Mapping[str, Any]], Any] | None = None
    """NNX: returns a module with these arrays."""
    module: Any = None
    """The module of NNX or linen; None for functions."""
    notes: tuple[str, ...] = ()
    assemble: Callable[[Mapping[str, Any]], Any] | None = None
    """Returns what the user's own functions take as the model: a module of NNX or a pytree with these arrays, the
    pair of a module of linen and its variables, or the pair of parameters and a function."""
    wide: Callable[[], tuple[ModelTree, tuple[str, ...]]] | None = None
    """NNX: returns it with float64 in place of the narrow types that its modules compute in, and these modules."""
    dropouts: Mapping[str, float] = field(default_factory=dict)
    """Path to rate of dropouts that were set to zero, whose modules say no rate any more: those of equinox."""
    built: Any = None
    """The module of equinox as it was given, for its settings; None for anything else."""
    watched: Callable[[Mapping[str, Any], Inputs, Callable[[Any], Any]], Any] | None = None
    """Equinox: as `call`, within the context that the third argument gives for the module that is called."""


def tree_of(option: str, name: str, made: Any, args: Sequence[Any], kwargs: Mapping[str, Any], inputs: Inputs
            ) -> ModelTree:  # fmt: skip
    """Return what a user's object is as a model.

    Raises:
        SpecError: It cannot be built, or is no model.
    """
    from flax import linen, nnx

    built = made
    kinds = (nnx.Module, linen.Module)
    is_tree = not callable(made) or _has_arrays(made)
    if not isinstance(made, kinds) and not isinstance(made, tuple) and not is_tree:
        built = _build(option, name, made, args, kwargs)
    elif args or kwargs:
        raise SpecError(f"{option}-args", f"{name} is built already and takes no arguments")
    if isinstance(built, nnx.Module):
        return _nnx(nnx.clone(built) if built is made else built)
    if isinstance(built, linen.Module):
        return _linen(option, name, built, inputs)
    pair = isinstance(built, tuple) and len(built) == 2
    if pair and isinstance(built[0], linen.Module) and _has_arrays(built[1]):
        return _linen(option, name, built[0], inputs, built[1])
    if isinstance(built, tuple) and len(built) == 2 and callable(built[1]) and not callable(built[0]):
        return _function(built[0], built[1])
    if callable(built) and _has_arrays(built):
        return _callable_tree(built, inputs)
    if (found := stateful_model(option, name, built, inputs)) is not None:
        return _stateful_tree(built[0], found)
    raise SpecError(
        option,
        f"{name} gave {type(built).__name__}; expected a module of NNX or linen, one of linen with its variables, a "
        "pytree that can be called, or a pair of parameters and a function of them and the inputs",
    )


def _build(option: str, name: str, made: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    from flax import nnx

    given = dict(kwargs)
    try:
        # the metaclass of NNX takes anything, its classes do not
        own = made.func if isinstance(made, partial) else made
        own = getattr(own, "__init__") if isinstance(own, type) else own  # noqa: B009
        wanted = inspect.signature(own).parameters
    except (TypeError, ValueError):
        wanted = {}  # type: ignore[assignment]
    if "rngs" in wanted and "rngs" not in given:
        given["rngs"] = nnx.Rngs(0)
    if "key" in wanted and "key" not in given and wanted["key"].default is inspect.Parameter.empty:
        given["key"] = jax.random.key(0)
    try:
        return made(*args, **given)
    except Exception as error:  # anything that the user's code does
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise SpecError(
            option, f"{name} cannot be built: {why[:300]}; give its arguments with {option}-args"
        ) from error


def _has_arrays(value: Any) -> bool:
    return any(isinstance(one, jax.Array) for one in jax.tree.leaves(value))


def _said(modes: Mapping[str, bool]) -> tuple[str, ...]:
    return (f"called with {', '.join(f'{k}={v}' for k, v in modes.items())}",) if modes else ()


def _nnx(module: Any) -> ModelTree:
    from flax import nnx

    module.eval()
    tables = []
    for _, one in nnx.iter_modules(module):
        # it keeps the type of its table when it is built (flax/nnx/nn/linear.py, Embed.__init__), and would cast a
        # table of float64 to that; what a user multiplies with then is rounded too, which no lifting brings back
        if isinstance(one, nnx.Embed) and one.dtype == one.embedding.dtype:
            tables.append((one, one.dtype))
            one.dtype = None
    graph, params, stats, rest = nnx.split(module, nnx.Param, nnx.BatchStat, ...)
    for one, dtype in tables:  # the user's own stays as it is
        one.dtype = dtype
    held: dict[str, Any] = {}
    places: dict[str, tuple[int, int]] = {}
    split = []
    for which, state in enumerate((params, stats)):
        flat, tree = jax.tree_util.tree_flatten_with_path(state)
        split.append((flat, tree))
        for at, (path, leaf) in enumerate(flat):
            name = keys_of([key for key in path if getattr(key, "name", "") != "value"])
            held[name], places[name] = leaf, (which, at)

    def bind(values: Mapping[str, Any]) -> Any:
        leaves = [[leaf for _, leaf in flat] for flat, _ in split]
        for name, (which, at) in places.items():
            leaves[which][at] = values[name]
        states = [jax.tree_util.tree_unflatten(tree, one) for one, (_, tree) in zip(leaves, split, strict=True)]
        # a key's count moves where the model drops, and belongs to the trace in which the model is made
        return nnx.merge(graph, *states, jax.tree.map(lambda one: one, rest))

    modes = modes_of(type(module).__call__)

    def call(values: Mapping[str, Any], inputs: Inputs) -> Any:
        args, named = call_with(inputs)
        return bind(values)(*args, **{**modes, **named})

    def wide() -> tuple[ModelTree, tuple[str, ...]]:
        copied, found = nnx.clone(module), []
        for path, one in nnx.iter_modules(copied):
            if (narrow := getattr(one, "dtype", None)) is not None and jnp.dtype(narrow).itemsize < 8:
                one.dtype = jnp.float64
                found.append(f"{'.'.join(map(str, path))} ({type(one).__name__}, dtype={jnp.dtype(narrow).name})")
        return _nnx(copied), tuple(found)

    statistics = frozenset(name for name, (which, _) in places.items() if which)
    return ModelTree(held, call, statistics, {}, bind, module, _said(modes), bind, wide)


def _linen(option: str, name: str, module: Any, inputs: Inputs, variables: Any = None) -> ModelTree:
    args, named = call_with(inputs)
    modes = modes_of(type(module).__call__)
    keys = {word: jax.random.key(at) for at, word in enumerate(("params", "dropout"))}
    try:
        variables = variables if variables is not None else module.init(keys, *args, **{**modes, **named})
    except Exception as error:  # anything that the user's code does
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise SpecError(option, f"{name} cannot be initialized with the inputs: {why[:300]}") from error
    flat, tree = jax.tree_util.tree_flatten_with_path(variables)
    held, statistics, collections, order = {}, set(), {}, []
    for path, leaf in flat:
        collection, _, leaf_name = keys_of(path).partition(".")
        if collection != "params":
            statistics.add(leaf_name)
            collections[leaf_name] = collection
        held[leaf_name] = leaf
        order.append(leaf_name)

    def call(values: Mapping[str, Any], inputs: Inputs) -> Any:
        args, named = call_with(inputs)
        return module.apply(whole(values), *args, **{**modes, **named})

    def whole(values: Mapping[str, Any]) -> Any:
        return jax.tree_util.tree_unflatten(tree, [values[one] for one in order])

    return ModelTree(held, call, frozenset(statistics), collections, None, module, _said(modes),
                     lambda values: (module, whole(values)))  # fmt: skip


def _function(params: Any, function: Any) -> ModelTree:
    flat, tree = jax.tree_util.tree_flatten_with_path(params)
    names = [keys_of(path) for path, _ in flat]
    modes = modes_of(function)

    def call(values: Mapping[str, Any], inputs: Inputs) -> Any:
        args, named = call_with(inputs)
        return function(whole(values), *args, **{**modes, **named})

    def whole(values: Mapping[str, Any]) -> Any:
        return jax.tree_util.tree_unflatten(tree, [values[one] for one in names])

    return ModelTree(dict(zip(names, (leaf for _, leaf in flat), strict=True)), call, notes=_said(modes),
                     assemble=lambda values: (whole(values), function))  # fmt: skip


def _callable_tree(built: Any, inputs: Inputs) -> ModelTree:
    still, dropouts = without_dropout(built)
    moving, whole = _filled(still)
    modes = modes_of(type(built).__call__)

    def called(model: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        return model(*args, **{**modes, **named})

    axes = axes_of_examples(partial(called, still), inputs) if is_module(built) else 0
    notes = _said(modes)
    if axes:
        notes += (f"assumed: the module takes one example, and is called under {' of '.join(['jax.vmap'] * axes)}",)

    def watched(values: Mapping[str, Any], inputs: Inputs, watch: Callable[[Any], Any]) -> Any:
        args, named = call_with(inputs)
        model = whole(values)
        with watch(model):
            return each_example(partial(called, model), axes)(tuple(args), dict(named))

    def call(values: Mapping[str, Any], inputs: Inputs) -> Any:
        return watched(values, inputs, nullcontext)

    if not is_module(built):
        return ModelTree(moving, call, notes=notes, assemble=whole)
    return ModelTree(moving, call, notes=notes, assemble=whole, dropouts=dropouts, built=built,
                     watched=watched)  # fmt: skip


def _stateful_tree(module: Any, found: StatefulModel) -> ModelTree:
    """Return a module of equinox with its State; in evaluation where it is called, in training for a trainer."""
    still, dropouts = without_dropout(module)
    moving, whole = _filled(still)
    held = dict(zip(found.names, found.leaves, strict=True))

    def state(values: Mapping[str, Any]) -> Any:
        return found.filled([values[name] for name in found.names])

    def watched(values: Mapping[str, Any], inputs: Inputs, watch: Callable[[Any], Any]) -> Any:
        model = equinox().nn.inference_mode(whole(values))
        with watch(model):
            return found.call(model, state(values), inputs)

    def call(values: Mapping[str, Any], inputs: Inputs) -> Any:
        return watched(values, inputs, nullcontext)

    statistics = [name for name, leaf in held.items() if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return ModelTree(
        moving | held,
        call,
        frozenset(statistics),
        dict.fromkeys(statistics, "state"),
        notes=(found.note,) if found.note else (),
        assemble=lambda values: (whole(values), state(values)),
        dropouts=dropouts,
        built=module,
        watched=watched,
    )


def _filled(built: Any) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], Any]]:
    """Return the float arrays of a tree by name, and what puts others in their places."""
    flat, tree = jax.tree_util.tree_flatten_with_path(built)
    names = [keys_of(path) for path, _ in flat]
    moving = {
        name: leaf
        for name, (_, leaf) in zip(names, flat, strict=True)
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)
    }

    def whole(values: Mapping[str, Any]) -> Any:
        leaves = [values.get(name, leaf) for name, (_, leaf) in zip(names, flat, strict=True)]
        return jax.tree_util.tree_unflatten(tree, leaves)

    return moving, whole

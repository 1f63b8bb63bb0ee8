"""Kinds of Flax: modules, variables, streams and optimizers of NNX; train states and modules of linen."""

from __future__ import annotations

import dataclasses
from types import FunctionType
from typing import Any

import jax
import numpy as np

from jax_side.adapters.arrays import child, component_of, key_bytes, raw_value, tree
from parity.capture import Leaf, Role, Walk, component_from_name, digest_of, register

__all__ = ["register_modules"]

_MODES = frozenset(("deterministic", "use_running_average", "training", "train", "is_training", "decode"))
_STATE_FIELDS = {
    "step": "counters.step",
    "params": "model.params",
    "batch_stats": "model.buffers",
    "model_state": "model.buffers",
    "mutable": "model.buffers",
    "opt_state": "optimizer.state",
}
"""Fields of a train state."""
_SCALER_FIELDS = {"scale": "scaler.scale", "loss_scale": "scaler.scale", "fin_steps": "scaler.growth_tracker"}
_VARIABLES: dict[str, tuple[str, Role]] = {
    "Param": ("model.params", "state"),
    "OptState": ("optimizer.state", "state"),
    "MetricState": ("loss", "scalar"),
    "Intermediate": ("model.intermediates", "array"),
    "Perturbation": ("gradients", "gradient"),
}
"""Classes of variables to what they are, component and role."""
_BUFFER: tuple[str, Role] = ("model.buffers", "state")
"""What all other variables are."""


_TREES = (dict, list, tuple, jax.Array, np.ndarray, int, float)
"""What a field of a train state holds that is no object of its own kind."""


def _copy_of(path: str) -> str:
    """Return `ema` or `best` if a path leads into such a copy of a model, else nothing."""
    if component_of(path) == "ema":
        return "ema"
    return "best" if path.removeprefix("self.").startswith("best") else ""


def _module(walk: Walk, path: str, module: Any) -> None:
    if not walk.is_new(path, module, "model.ties"):
        return
    known = type(module).__module__.startswith("flax.")
    for name, value in vars(module).items():
        if name.startswith("_pytree__") or (known and name == "_length"):
            continue
        where = f"{path}[{name}]" if name.isdigit() else f"{path}.{name}"
        if name in _MODES and isinstance(value, bool | None):
            if not _copy_of(path):
                walk.leaf(where, value, "model.mode")
        elif isinstance(value, bool | int | float | str):
            if not name.startswith("_"):
                walk.leaf(where, value, "model.hyperparameters", "state" if known else "scalar")
        elif isinstance(value, jax.Array | np.ndarray):
            tree(walk, where, value, _copy_of(path) or "model.buffers")
        elif known and (value is None or isinstance(value, type | FunctionType)):
            continue  # dtypes, initializers, absent biases
        elif hasattr(value, "_pytree__nodes") or hasattr(type(value), "get_raw_value"):
            walk.inside(where, value)
        else:
            walk.visit(where, value)


def _variable(walk: Walk, path: str, variable: Any) -> None:
    names = {base.__name__ for base in type(variable).__mro__}
    stream = "RngState" in names
    if not walk.is_new(path, variable, f"rng.{path}" if stream else "model.ties"):
        return
    walk.names.setdefault(id(variable), path)
    raw = raw_value(variable)
    if stream:
        tree(walk, path, raw, f"rng.{path}", "stream")
        return
    component, role = next((what for name, what in _VARIABLES.items() if name in names), _BUFFER)
    if component == "optimizer.state":
        component = component_of(path) if component_of(path).startswith("optimizer.") else component
    tree(walk, path, raw, _copy_of(path) or component, role)


def _stream(walk: Walk, path: str, stream: Any) -> None:
    """Show a stream as one leaf: its key stays, its count moves, and it is what both make of it."""
    if walk.is_new(path, stream, f"rng.{path}"):
        _stream_leaf(walk, path, stream.key, stream.count)


def _stream_leaf(walk: Walk, path: str, key: Any, count: Any) -> None:
    key, count = raw_value(key), raw_value(count)
    if not isinstance(key, jax.Array) or isinstance(key, jax.core.Tracer) or isinstance(count, jax.core.Tracer):
        return
    words = key_bytes(key)
    if words is None or (isinstance(count, jax.Array) and count.is_deleted()):
        walk.add(path, Leaf("stream", f"rng.{path}", "deleted", ""), lambda: None)
        return
    counted = key_bytes(count) if isinstance(count, jax.Array) else np.asarray(count, np.uint32).tobytes()
    data = words + (counted or b"")
    walk.add(
        path, Leaf("stream", f"rng.{path}", "RngStream", digest_of(data)), lambda: np.frombuffer(data, np.uint32)
    )


def _nnx_state(walk: Walk, path: str, state: Any) -> None:
    """Show a state that was split from a module: the same leaves as the module's."""
    for key in state:
        value, where = state[key], child(path, key)
        if _is_stream(value):
            _stream_leaf(walk, where, value["key"], value["count"])
        elif hasattr(type(value), "get_raw_value"):
            walk.inside(where, value)
        elif hasattr(value, "keys"):
            _nnx_state(walk, where, value)
        else:
            walk.visit(where, value)


def _is_stream(value: Any) -> bool:
    return hasattr(value, "keys") and set(value) == {"key", "count"} and type(value["count"]).__name__ == "RngCount"


def _nnx_optimizer(walk: Walk, path: str, optimizer: Any) -> None:
    if not walk.is_new(path, optimizer, "optimizer.identity"):
        return
    for name, value in vars(optimizer).items():
        where = f"{path}.{name}"
        if name == "step":
            tree(walk, where, value, "optimizer.step")
        elif name == "opt_state":
            tree(walk, where, value, "optimizer.state")
        elif name not in ("wrt", "graph") and not name.startswith("_pytree__"):
            walk.visit(where, value)


def _train_state(walk: Walk, path: str, state: Any) -> None:
    """Show a train state, or any other dataclass of Flax; it cannot be changed, so two names of it are no tie."""
    copy = _copy_of(path)
    trained = any(
        base.__name__ == "TrainState" and base.__module__.startswith("flax.") for base in type(state).__mro__
    )
    for field in dataclasses.fields(state):
        value, where = getattr(state, field.name, None), f"{path}.{field.name}"
        component = "ema" if component_from_name(field.name) == "ema" else _STATE_FIELDS.get(field.name, "")
        if not component and trained and field.metadata.get("pytree_node", True) and isinstance(value, _TREES):
            component = component_of(where)  # what a subclass adds is carried along like the rest of it
        if component:
            tree(walk, where, value, copy or component)
        else:
            walk.visit(where, value)


def _scaler(walk: Walk, path: str, scaler: Any) -> None:
    """Show a dynamic loss scale, of Flax or of jmp."""
    for field in dataclasses.fields(scaler):
        component = _SCALER_FIELDS.get(field.name, "scaler.hyperparameters")
        value = getattr(scaler, field.name)
        if not isinstance(value, str):
            tree(walk, f"{path}.{field.name}", value, component)


def _linen(walk: Walk, path: str, module: Any) -> None:
    """Show what a module of linen was made with; its variables are elsewhere unless it is bound to them."""
    if not walk.is_new(path, module, component_from_name(path)):
        return
    for field in dataclasses.fields(module):
        value = vars(module).get(field.name)
        if field.name in ("parent", "name") or value is None:
            continue
        where = f"{path}.{field.name}"
        if isinstance(value, bool) and field.name in _MODES:
            walk.leaf(where, value, "model.mode")
        elif isinstance(value, bool | int | float | str):
            walk.leaf(where, value, "model.hyperparameters", "scalar")
        elif not isinstance(value, type):
            walk.visit(where, value)
    if getattr(module, "scope", None) is not None:
        walk.visit(f"{path}.variables", module.variables)


def _frozen(walk: Walk, path: str, value: Any) -> None:
    component = component_of(path)
    walk.leaf(f"{path}.len", len(value), component, "structure")
    for key in value:
        walk.visit(child(path, key), value[key])


def register_modules() -> None:
    """Register them, by name: a trainer that has none need not import Flax."""
    register("flax.nnx.pytreelib.Pytree", _module, order=0)
    register("flax.nnx.rnglib.RngStream", _stream, order=0)
    register("flax.nnx.variablelib.Variable", _variable, order=0)
    register("flax.nnx.training.optimizer.Optimizer", _nnx_optimizer, order=2)
    register("flax.nnx.statelib.State", _nnx_state)
    register("flax.struct.PyTreeNode", _train_state)
    register("flax.training.train_state.TrainState", _train_state)
    register("flax.training.dynamic_scale.DynamicScale", _scaler)
    register("jmp._src.loss_scale.DynamicLossScale", _scaler)
    register("flax.core.frozen_dict.FrozenDict", _frozen)
    register("flax.linen.module.Module", _linen)

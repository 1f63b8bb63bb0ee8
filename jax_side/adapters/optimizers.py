"""Kinds of Optax: states by the names of their classes and fields; the numbers that transformations close over."""

from __future__ import annotations

import functools
import re
from types import FunctionType
from typing import Any

import jax
import numpy as np

from jax_side.adapters.arrays import add_array, child, is_number, tree
from parity.capture import Leaf, Visit, Walk, kind_of, register, slot_component

__all__ = ["register_optimizers"]

_SCHEDULES = frozenset(
    ("ScaleByScheduleState", "WrappedScheduleState", "InjectHyperparamsState", "InjectStatefulHyperparamsState")
)
"""States whose count is the position of a schedule."""
_RATE = re.compile(r"(^|_)(lr|learning_rate|step_size)$")
_FIELDS = {
    "acc_grads": "gradients",
    "avg_grad": "gradients",
    "ema": "ema",
    "gradient_step": "optimizer.step",
    "learning_rate": "schedule.lr",
    "micro_step": "counters.step",
    "mini_step": "counters.step",
    "step_count": "optimizer.step",
    "steps_since_sync": "optimizer.step",
    "m": "optimizer.first_moment",
    "m1": "optimizer.first_moment",
    "v": "optimizer.second_moment",
    "v_row": "optimizer.second_moment",
    "v_col": "optimizer.second_moment",
}
"""Fields whose name alone says more than that they are slots."""
_MOST_DEPTH = 12


def _named(builtin: Visit, walk: Walk, path: str, value: Any) -> None:
    """Show a tuple: of Optax, by its fields; any other as the capture does."""
    cls = type(value)
    if cls.__module__.partition(".")[0] != "optax" or not hasattr(cls, "_fields"):
        builtin(walk, path, value)
    elif "Transformation" in cls.__name__:
        _closure(walk, f"{path}.update", value.update, 0)
    else:
        _state(walk, path, value)


def _state(walk: Walk, path: str, value: Any) -> None:
    """Show a state of Optax; states inside of it, as of masks and partitions, by their own names."""
    cls = type(value).__name__
    for field, item in zip(type(value)._fields, value, strict=True):
        where = f"{path}.{field}"
        if field == "hyperparams" and isinstance(item, dict):
            for name, number in item.items():
                component = "schedule.lr" if _RATE.search(name) else "optimizer.hyperparameters"
                tree(walk, child(where, name), number, component)
        else:
            tree(walk, where, item, _component(cls, field))


def _component(cls: str, field: str) -> str:
    if cls == "EmaState":
        return "ema"
    if field == "count" and cls in _SCHEDULES:
        return "schedule.step"
    if cls == "ReduceLROnPlateauState":
        return {"count": "schedule.step", "scale": "schedule.lr"}.get(field, f"schedule.{field}")
    if cls == "LookaheadParams":
        return "model.params"
    return _FIELDS.get(field) or slot_component(field)


def _closure(walk: Walk, path: str, value: Any, depth: int, *, scheduled: bool = False) -> None:
    """Show the numbers that a transformation was made with: rates, decays, lengths of schedules.

    A schedule that a resumed run makes with the steps that are left differs here, before any step was taken.
    """
    if depth > _MOST_DEPTH:
        return
    name = path.rpartition(".")[2].partition("[")[0]
    if is_number(value) or (isinstance(value, jax.Array) and value.ndim == 0):
        rate = "schedule.lr" if _RATE.search(name) else ""
        component = rate or (f"schedule.{name}" if scheduled else "optimizer.hyperparameters")
        _number(walk, path, value, component)
    elif isinstance(value, FunctionType):
        scheduled = scheduled or "schedule" in f"{value.__qualname__}.{name}" or name in _AS_SCHEDULE
        for free, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            _closure(walk, f"{path}.{free}", content, depth + 1, scheduled=scheduled)
    elif isinstance(value, functools.partial):
        _closure(walk, f"{path}.func", value.func, depth + 1, scheduled=scheduled)
        for at, item in enumerate(value.args):
            _closure(walk, f"{path}.args[{at}]", item, depth + 1, scheduled=scheduled)
        for key, item in value.keywords.items():
            _closure(walk, f"{path}.{key}", item, depth + 1, scheduled=scheduled)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        if "Transformation" in type(value).__name__:
            _closure(walk, f"{path}.update", value[1], depth + 1, scheduled=scheduled)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            _closure(walk, f"{path}[{at}]", item, depth + 1, scheduled=scheduled)
    elif isinstance(value, dict):
        for key, item in value.items():
            _closure(walk, child(path, key), item, depth + 1, scheduled=scheduled)


def _number(walk: Walk, path: str, value: Any, component: str) -> None:
    """Add a number as float32 has it: some schedules make a float of a length when they are first called."""
    if isinstance(value, jax.core.Tracer):
        return
    if isinstance(value, jax.Array):
        add_array(walk, path, value, component, "state")
    elif isinstance(value, bool | complex | np.complexfloating):
        walk.leaf(path, value, component)
    else:
        text = repr(np.float32(value).item())
        walk.add(path, Leaf("state", component, "number", text), lambda: np.float32(value))


_AS_SCHEDULE = ("step_size_fn", "learning_rate", "schedule", "sched_fns")


def register_optimizers() -> None:
    """Register them in front of the capture's tuples: the states of Optax have no base of their own but the tuple."""
    found = kind_of(tuple)
    assert found is not None  # the capture knows tuples
    builtin, order, _ = found
    if getattr(builtin, "func", None) is not _named:  # else they are registered already
        register(tuple, functools.partial(_named, builtin), order=order, attributes=True)

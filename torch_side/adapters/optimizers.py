"""Kinds of optimizers, by the names of their parameters, of schedulers and of loss scalers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from parity.capture import Role, Walk, register, slot_component
from torch_side.adapters.arrays import add_tensor, processes_of, show_hooks

__all__ = ["register_optimizers"]

_OPTIMIZER_INTERNALS = frozenset(
    {"state", "param_groups", "defaults", "_zero_grad_profile_name", "_warned_capturable_if_run_uncaptured", "step"}
)
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_OF_SCHEDULERS = frozenset(
    ("_step_count", "_last_lr", "_get_lr_called_within_step", "_is_initial", "_initial_step", "_schedulers",
     "_milestones")
)  # fmt: skip
"""What PyTorch keeps in private attributes of a scheduler: its next value needs none of it, but for the last two."""
_SCHEDULE_STEP = frozenset({"last_epoch", "T_cur", "T_i", "total_steps", "step_num", "milestones", "_milestones"})
_NO_EFFECT = frozenset({"foreach", "fused", "capturable", "differentiable", "initial_lr"})
"""Fields of a group that choose between implementations, or that only schedulers read."""


def _optimizer(walk: Walk, path: str, optimizer: torch.optim.Optimizer) -> None:
    if not walk.is_new(path, optimizer, "optimizer.identity"):
        return
    names: dict[int, str] = {}
    for at, group in enumerate(optimizer.param_groups):
        where = f"{path}.param_groups[{at}]"
        walk.is_new(where, group, "optimizer.param_groups")
        order = []
        for index, parameter in enumerate(group["params"]):
            name = walk.names.get(id(parameter))
            if name is None:
                name = f"{where}.params[{index}]"
                narrow = parameter.dtype.itemsize >= 4 and parameter.shape in walk.noted.get("narrow", ())
                component = "optimizer.master_params" if narrow or "master" in path else "model.params"
                add_tensor(walk, name, parameter, "state", component)
                walk.names[id(parameter)] = name
                if parameter.grad is not None:
                    add_tensor(walk, f"{name}.grad", parameter.grad, "gradient", "gradients")
            names[id(parameter)] = name
            order.append(name)
        walk.leaf(f"{where}.params", order, "optimizer.param_order")
        for key, value in group.items():
            if key == "params":
                continue
            role: Role = "scalar" if key in _NO_EFFECT else "state"
            component = "schedule.lr" if key == "lr" else "optimizer.hyperparameters"
            _hyperparameter(walk, f"{where}.{key}", value, component, role)
        if together := _trained_together(walk, group["params"]):
            walk.copied(f"{where}.lr", together)
    walk.is_new(f"{path}.param_groups", optimizer.param_groups, "optimizer.param_groups")
    for parameter, slots in optimizer.state.items():
        name = names.get(id(parameter)) or walk.names.get(id(parameter)) or "parameter in no group"
        for slot, value in slots.items() if isinstance(slots, dict) else ():
            where = f"{path}.state[{name}].{slot}"
            if isinstance(value, torch.Tensor):
                add_tensor(walk, where, value, "state", slot_component(slot))
            elif isinstance(value, bool | int | float | None):
                walk.leaf(where, value, slot_component(slot))
            else:
                walk.visit(where, value)
    for name, value in optimizer.defaults.items():
        _hyperparameter(walk, f"{path}.defaults.{name}", value, "optimizer.defaults", "scalar")
    for name in _HOOKS:
        show_hooks(walk, f"{path}.{name}", getattr(optimizer, name, None))
    for name, value in vars(optimizer).items():
        if name not in _OPTIMIZER_INTERNALS and not name.startswith(("_optimizer_", "_patch", "_step_", "_hook")):
            walk.visit(f"{path}.{name}", value)


def _trained_together(walk: Walk, parameters: Iterable[torch.Tensor]) -> str:
    """Return which processes train parameters together, as what copies give; empty where one is trained alone.

    Such processes take each step alike, or replicas part: with one rate, and with one scale of the loss.
    """
    of_replicas = walk.noted.get("copied", {})
    found = [of_replicas.get(id(p)) or processes_of(p) for p in parameters]
    alone = not all(found)
    walk.noted["alone"] = walk.noted.get("alone", False) or alone
    together = "" if alone else f"processes {sorted(set().union(*found))}"
    walk.noted.setdefault("together", together)
    return together


def _hyperparameter(walk: Walk, path: str, value: Any, component: str, role: Role) -> None:
    if isinstance(value, torch.Tensor):
        add_tensor(walk, path, value, role, component)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            _hyperparameter(walk, f"{path}[{at}]", item, component, role)
    else:
        walk.leaf(path, value, component, role)


def _sharded(walk: Walk, path: str, optimizer: Any) -> None:
    """Show the optimizer inside a ZeroRedundancyOptimizer: what it trains here.

    Its own `state` is of the last state that was loaded or sent, and the rest of it how processes share the work.
    """
    if walk.is_new(path, optimizer, "optimizer.identity"):
        walk.inside(f"{path}.optim", optimizer.optim)


def _scheduler(walk: Walk, path: str, scheduler: Any) -> None:
    if not walk.is_new(path, scheduler, "schedule.identity"):
        return
    for name, value in vars(scheduler).items():
        where = f"{path}.{name}"
        private = name in _OF_SCHEDULERS or type(scheduler).__module__.startswith("torch.")
        if name.startswith("_") and private and name not in ("_schedulers", "_milestones"):
            continue  # what it returned last, and whether it was called in order: its next value needs neither
        if name == "step" or (callable(value) and not isinstance(value, list) and not hasattr(value, "__self__")):
            walk.visit(where, value)
        elif isinstance(value, bool | int | float | str | None):
            walk.leaf(where, value, "schedule.step" if name in _SCHEDULE_STEP else f"schedule.{name}")
        elif isinstance(value, list | tuple) and all(isinstance(item, int | float) for item in value):
            walk.leaf(where, list(value), f"schedule.{name}")
        else:
            walk.visit(where, value)


def _scaler(walk: Walk, path: str, scaler: Any) -> None:
    if not walk.is_new(path, scaler, "scaler.identity"):
        return
    walk.leaf(f"{path}.enabled", scaler.is_enabled(), "scaler.enabled")
    for name, value in scaler.state_dict().items():  # empty where it is not enabled
        component = {"_growth_tracker": "scaler.growth_tracker", "scale": "scaler.scale"}
        walk.leaf(f"{path}.{name}", value, component.get(name, "scaler.hyperparameters"))
        if name in component and not walk.noted.get("alone"):
            walk.copied(f"{path}.{name}", walk.noted.get("together", ""))


def register_optimizers() -> None:
    """Register the kinds; again is no harm."""
    register(torch.optim.Optimizer, _optimizer, order=1)
    zero = "torch.distributed.optim.zero_redundancy_optimizer.ZeroRedundancyOptimizer"
    register(zero, _sharded, order=1)
    register(torch.optim.lr_scheduler.LRScheduler, _scheduler)
    register("torch.optim.lr_scheduler.ReduceLROnPlateau", _scheduler)
    register(torch.amp.GradScaler, _scaler)

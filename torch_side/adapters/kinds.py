"""Kinds of PyTorch for the capture of live state: tensors, modules, optimizers, schedulers, scalers, generators."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import nn

from parity.contract.capture import (
    TRAINED,
    Leaf,
    Role,
    Walk,
    ambient,
    component_from_name,
    digest_of,
    register,
    slot_component,
)
from torch_side.adapters.loaders import register_loaders
from torch_side.adapters.trainers import register_trainers

__all__ = ["install", "tensor_leaf"]

_MODULE_INTERNALS = frozenset(vars(nn.Module()))
_WIRING = ("_forward", "_backward", "_state_dict", "_load_state", "__composable_api_", "_fsdp", "_is_fsdp")
"""Beginnings of the names of attributes of modules that are hooks, or how parameters are spread over processes."""
_OPTIMIZER_INTERNALS = frozenset(
    {"state", "param_groups", "defaults", "_zero_grad_profile_name", "_warned_capturable_if_run_uncaptured", "step"}
)
_SCHEDULE_STEP = frozenset({"last_epoch", "T_cur", "T_i", "total_steps", "step_num", "milestones", "_milestones"})
_NO_EFFECT = frozenset({"foreach", "fused", "capturable", "differentiable", "initial_lr"})
"""Fields of a group that choose between implementations, or that only schedulers read."""


def tensor_leaf(value: torch.Tensor, role: Role, component: str) -> Leaf:
    """Return the leaf of a tensor: dtype, shape, device, order of axes if it is not C order, digest of its bytes.

    Args:
        value: The tensor; of one without axes the value itself stands for the digest.
        role: Role of the leaf.
        component: What it is in the field's words, such as `model.params`.

    Numerics: No copy for a dense tensor in memory of the host, in any order of axes; a device's is copied to the
    host, one with gaps made dense.
    """
    value = value.detach()
    kind = f"{str(value.dtype).removeprefix('torch.')}[{'x'.join(map(str, value.shape))}]"
    local = getattr(value, "to_local", None)
    if local is not None and hasattr(value, "placements"):
        kind, value = f"{kind}{value.placements!r}", local()
    if value.layout != torch.strided or value.is_quantized:
        value, kind = value.dequantize() if value.is_quantized else value.to_dense(), f"{kind}@{value.layout}"
    if value.device.type == "meta":
        return Leaf(role, component, f"{kind}@meta", "")
    if _is_freed(value):
        return Leaf(role, component, f"{kind}@freed", "")
    if value.ndim == 0:
        return Leaf(role, component, kind, repr(value.item()))
    if value.device.type != "cpu":
        kind, value = f"{kind}@{value.device}", value.cpu()
    if not value.is_contiguous():
        order = sorted(range(value.ndim), key=lambda axis: (-value.stride(axis), axis))
        kind = f"{kind}@{','.join(map(str, order))}"
        value = value.permute(order).contiguous()  # a view where the tensor is dense
    if value.is_conj() or value.is_neg():
        value = value.resolve_conj().resolve_neg()
    return Leaf(role, component, kind, digest_of(_bytes(value)))


def _bytes(value: torch.Tensor) -> Any:
    """Return the memory of a contiguous tensor; not by `numpy()`, which would forbid its owner to resize it."""
    if not value.numel():
        return b""
    flat = value.reshape(-1).view(torch.uint8)
    if type(flat) is not torch.Tensor:
        return flat.clone().numpy().data
    return (ctypes.c_char * flat.numel()).from_address(flat.data_ptr())


def _is_freed(value: torch.Tensor) -> bool:
    """Return whether the memory of a tensor was given back, as FSDP does with what it gathered."""
    if type(value) is not torch.Tensor or value.layout != torch.strided or not value.numel():
        return False
    last = value.storage_offset() + sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
    return value.untyped_storage().nbytes() < (last + 1) * value.element_size()


def _values(value: torch.Tensor) -> Any:
    """Return a copy of a tensor's values as NumPy has them; narrow floats as float32."""
    value = value.detach().cpu()
    if hasattr(value, "to_local"):
        value = value.to_local()
    plain = value.float() if value.dtype.is_floating_point and value.dtype.itemsize < 4 else value
    return plain.clone().numpy()


def _memory(value: torch.Tensor) -> Any:
    """Return what two tensors of the same memory and shape share."""
    if (
        value.numel() == 0
        or type(value) not in (torch.Tensor, nn.Parameter, nn.Buffer)
        or value.layout != torch.strided
    ):
        return id(value)
    if value.device.type == "meta":
        return id(value)
    return ("tensor", str(value.device), value.data_ptr(), tuple(value.shape), value.stride(), value.dtype)


def _add(walk: Walk, path: str, value: torch.Tensor, role: Role, component: str, tie: str = "") -> bool:
    if not walk.is_new(path, value, tie or component, _memory(value)):
        return False
    walk.add(path, tensor_leaf(value, role, component), lambda: _values(value))
    return True


def _tensor(walk: Walk, path: str, value: torch.Tensor) -> None:
    component = component_from_name(path)
    role: Role = "array" if value.numel() != 1 or component.startswith(TRAINED) else "scalar"
    if isinstance(value, nn.Parameter):
        role, component = "state", component if component == "ema" else "model.params"
    _add(walk, path, value, role, component)
    if value.is_leaf and value.grad is not None:
        _add(walk, f"{path}.grad", value.grad, "gradient", "gradients")


def _module(walk: Walk, path: str, module: nn.Module) -> None:
    inner = getattr(module, "_orig_mod", None)
    if isinstance(inner, nn.Module):  # torch.compile's wrapper has no name in the user's words
        walk.inside(path, inner)
        return
    averaged = component_from_name(path) == "ema" or type(module).__name__ == "AveragedModel"
    if not walk.is_new(path, module, "model.ties"):
        return
    if not averaged:
        walk.leaf(f"{path}.training", module.training, "model.mode")
    for name, parameter in module._parameters.items():
        if parameter is None:
            continue
        where = f"{path}.{name}"
        walk.names.setdefault(id(parameter), where)
        if parameter.dtype.itemsize < 4:
            walk.noted.setdefault("narrow", set()).add(parameter.shape)
        _add(walk, where, parameter, "state", "ema" if averaged else _parameter_component(where), tie="model.ties")
        if not averaged:
            walk.leaf(f"{where}.requires_grad", parameter.requires_grad, "model.requires_grad")
        if parameter.grad is not None:
            _add(walk, f"{where}.grad", parameter.grad, "gradient", "gradients")
    for name, buffer in module._buffers.items():
        if buffer is not None:
            _add(walk, f"{path}.{name}", buffer, "state", "ema" if averaged else "model.buffers")
    for name, child in module._modules.items():
        if child is not None:
            walk.inside(f"{path}.{name}", child)
    for name, value in vars(module).items():
        if name not in _MODULE_INTERNALS and not name.startswith(_WIRING):
            if isinstance(value, bool | int | float | str | torch.Tensor) and not name.startswith("_"):
                _attribute(walk, f"{path}.{name}", value, known=type(module).__module__.startswith("torch."))
            else:
                walk.visit(f"{path}.{name}", value)
    if type(module).get_extra_state is not nn.Module.get_extra_state:
        walk.visit(f"{path}.get_extra_state()", module.get_extra_state())


def _parameter_component(path: str) -> str:
    named = component_from_name(path)
    return named if named in ("ema", "optimizer.master_params") else "model.params"


def _attribute(walk: Walk, path: str, value: Any, *, known: bool) -> None:
    """Show a number or tensor that a module holds as a plain attribute, such as a dropout rate: forward reads it."""
    if isinstance(value, torch.Tensor):
        _add(walk, path, value, "state", "model.buffers")
    else:
        walk.leaf(path, value, "model.hyperparameters", "state" if known else "scalar")


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
                _add(walk, name, parameter, "state", component)
                walk.names[id(parameter)] = name
                if parameter.grad is not None:
                    _add(walk, f"{name}.grad", parameter.grad, "gradient", "gradients")
            names[id(parameter)] = name
            order.append(name)
        walk.leaf(f"{where}.params", order, "optimizer.param_order")
        for key, value in group.items():
            if key == "params":
                continue
            role: Role = "scalar" if key in _NO_EFFECT else "state"
            component = "schedule.lr" if key == "lr" else "optimizer.hyperparameters"
            _hyperparameter(walk, f"{where}.{key}", value, component, role)
    walk.is_new(f"{path}.param_groups", optimizer.param_groups, "optimizer.param_groups")
    for parameter, slots in optimizer.state.items():
        name = names.get(id(parameter)) or walk.names.get(id(parameter)) or "parameter in no group"
        for slot, value in slots.items() if isinstance(slots, dict) else ():
            where = f"{path}.state[{name}].{slot}"
            if isinstance(value, torch.Tensor):
                _add(walk, where, value, "state", slot_component(slot))
            elif isinstance(value, bool | int | float | None):
                walk.leaf(where, value, slot_component(slot))
            else:
                walk.visit(where, value)
    for name, value in vars(optimizer).items():
        if name not in _OPTIMIZER_INTERNALS and not name.startswith(("_optimizer_", "_patch", "_step_", "_hook")):
            walk.visit(f"{path}.{name}", value)


def _hyperparameter(walk: Walk, path: str, value: Any, component: str, role: Role) -> None:
    if isinstance(value, torch.Tensor):
        _add(walk, path, value, role, component)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            _hyperparameter(walk, f"{path}[{at}]", item, component, role)
    else:
        walk.leaf(path, value, component, role)


def _scheduler(walk: Walk, path: str, scheduler: Any) -> None:
    if not walk.is_new(path, scheduler, "schedule.identity"):
        return
    for name, value in vars(scheduler).items():
        where = f"{path}.{name}"
        if name.startswith("_") and name not in ("_schedulers", "_milestones"):
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
    if not scaler.is_enabled():
        return
    for name, value in scaler.state_dict().items():
        component = {"_growth_tracker": "scaler.growth_tracker", "scale": "scaler.scale"}
        walk.leaf(f"{path}.{name}", value, component.get(name, "scaler.hyperparameters"))


def _stream(walk: Walk, path: str, generator: torch.Generator) -> None:
    if walk.is_new(path, generator, f"rng.{path}"):
        _generator_leaf(walk, path, generator, f"rng.{path}")


def _generator_leaf(walk: Walk, path: str, generator: torch.Generator, component: str) -> None:
    walk.data(path, generator.get_state().numpy().data, f"torch.Generator@{generator.device}", component, "stream")


def _shared(walk: Walk) -> None:
    """Show PyTorch's state of the process: default generators, and the settings that change results."""
    walk.is_new("torch.default_generator", torch.default_generator, "rng.torch")
    _generator_leaf(walk, "torch.default_generator", torch.default_generator, "rng.torch")
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for device in range(torch.cuda.device_count()):
            state = torch.cuda.get_rng_state(device)
            walk.data(
                f"torch.cuda.default_generators[{device}]",
                state.numpy().data,
                "torch.Generator",
                "rng.cuda",
                "stream",
            )
    settings = {
        "torch.get_default_dtype()": str(torch.get_default_dtype()),
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "torch.backends.cudnn.benchmark": torch.backends.cudnn.benchmark,
        "torch.backends.cudnn.deterministic": torch.backends.cudnn.deterministic,
        "torch.backends.cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "torch.is_autocast_enabled()": torch.is_autocast_enabled(),
        "torch.is_autocast_enabled('cpu')": torch.is_autocast_enabled("cpu"),
        "torch.get_num_threads()": torch.get_num_threads(),
    }
    for name, value in settings.items():
        walk.leaf(name, value, "settings", "flag")


def _constant(walk: Walk, path: str, value: Any) -> None:
    walk.leaf(path, str(value), component_from_name(path), "scalar")


def _metric(walk: Walk, path: str, metric: Any) -> None:
    """Show what a metric has counted since its reset: a figure for people."""
    for name in getattr(metric, "_defaults", ()):
        value = getattr(metric, name)
        if isinstance(value, torch.Tensor):
            _add(walk, f"{path}.{name}", value, "scalar", "metric")


def install() -> None:
    """Register the kinds; again is no harm."""
    register(torch.Tensor, _tensor)
    register(nn.Module, _module, order=0)
    register(torch.optim.Optimizer, _optimizer, order=1)
    register(torch.optim.lr_scheduler.LRScheduler, _scheduler)
    register("torch.optim.lr_scheduler.ReduceLROnPlateau", _scheduler)
    register(torch.amp.GradScaler, _scaler)
    register(torch.Generator, _stream)
    register("torchmetrics.metric.Metric", _metric)
    for constant in (torch.device, torch.dtype, torch.Size, torch.memory_format, torch.layout):
        register(constant, _constant)
    register_loaders()
    register_trainers()
    ambient(_shared)

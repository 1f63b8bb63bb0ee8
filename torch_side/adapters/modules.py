"""Kinds of modules: parameters by their names, buffers, training mode, numbers that forward reads; metrics."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from parity.capture import Walk, component_from_name, register, role_of_array
from torch_side.adapters.arrays import add_tensor, show_attributes, show_hooks

__all__ = ["register_modules"]

_MODULE_INTERNALS = frozenset(vars(nn.Module()))
_HOOKS = (
    "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks", "_state_dict_hooks",
    "_load_state_dict_post_hooks",
)  # fmt: skip
_SIZES = frozenset(
    ("num_features", "in_features", "out_features", "in_channels", "out_channels", "num_channels", "num_embeddings",
     "embedding_dim")
)  # fmt: skip
"""Attributes of PyTorch's layers that say the shapes of parameters once more: no forward pass reads them. A lazy
layer that was loaded keeps 0 there, where one that was built by its first batch has the size."""
_WIRING = ("_forward", "_backward", "_state_dict", "_load_state", "__composable_api_", "_fsdp", "_is_fsdp")
"""Beginnings of the names of attributes of modules that are hooks, or how parameters are spread over processes."""


def _module(walk: Walk, path: str, module: nn.Module) -> None:
    inner = getattr(module, "_orig_mod", None)
    if isinstance(inner, nn.Module):  # torch.compile's wrapper has no name in the user's words
        walk.inside(path, inner)
        return
    averaged = component_from_name(path) == "ema" or type(module).__name__ == "AveragedModel"
    if not walk.is_new(path, module, "model.ties"):
        return
    walk.leaf(f"{path}.training", module.training, "model.mode")
    for name, parameter in module._parameters.items():
        if parameter is None:
            continue
        where = f"{path}.{name}"
        walk.names.setdefault(id(parameter), where)
        if parameter.dtype.itemsize < 4:
            walk.noted.setdefault("narrow", set()).add(parameter.shape)
        add_tensor(
            walk, where, parameter, "state", "ema" if averaged else _parameter_component(where), tie="model.ties"
        )
        walk.leaf(f"{where}.requires_grad", parameter.requires_grad, "model.requires_grad")
        show_attributes(walk, where, parameter)
        if parameter.grad is not None:
            add_tensor(walk, f"{where}.grad", parameter.grad, "gradient", "gradients")
    for name, buffer in module._buffers.items():
        if buffer is not None:
            add_tensor(walk, f"{path}.{name}", buffer, "state", "ema" if averaged else "model.buffers")
    for name, child in module._modules.items():
        if child is not None:
            walk.inside(f"{path}.{name}", child)
    # what DistributedDataParallel keeps beside its module is how it sends gradients: no state, and not seen
    replicated = type(module).__module__ == "torch.nn.parallel.distributed"
    if replicated:
        _replicas(walk, module)
    attributes = {} if replicated else vars(module)
    for name, value in attributes.items():
        if name not in _MODULE_INTERNALS and not name.startswith(_WIRING):
            if isinstance(value, torch.Tensor) or (_is_plain(value) and not name.startswith("_")):
                _attribute(walk, f"{path}.{name}", value, known=type(module).__module__.startswith("torch."))
            else:
                walk.visit(f"{path}.{name}", value)
    if type(module).get_extra_state is not nn.Module.get_extra_state:
        _extra_state(walk, f"{path}.get_extra_state()", module.get_extra_state())
    for name in _HOOKS:
        show_hooks(walk, f"{path}.{name}", getattr(module, name, None))


def _replicas(walk: Walk, module: Any) -> None:
    """Say that processes hold copies of the parameters inside a DistributedDataParallel.

    It sends those of process 0 to all when it is made, and gives all the same gradients; it sends buffers where a
    forward pass begins, and lets them differ from there to the next (torch 2.13).
    """
    group = frozenset(torch.distributed.get_process_group_ranks(module.process_group))
    for name, parameter in module.module.named_parameters():
        path = walk.names.get(id(parameter))
        if path is not None and parameter.requires_grad and name not in module.parameters_to_ignore:
            walk.copied(path, f"replicas of processes {sorted(group)}")
            walk.noted.setdefault("copied", {})[id(parameter)] = group


def _is_plain(value: Any) -> bool:
    """Return whether a value is a plain number or text."""
    return isinstance(value, bool | int | float | str)


def _parameter_component(path: str) -> str:
    named = component_from_name(path)
    return named if named in ("ema", "optimizer.master_params") else "model.params"


def _attribute(walk: Walk, path: str, value: Any, *, known: bool) -> None:
    """Show a number or tensor that a module holds as a plain attribute, such as a dropout rate: forward reads it.

    No `state_dict` has such a tensor, and many are kept for people, as an attention map: what follows from it counts.
    """
    if isinstance(value, torch.Tensor):
        add_tensor(walk, path, value, role_of_array(value.ndim), "model.buffers")
    else:
        reads = known and path.rpartition(".")[2] not in _SIZES
        walk.leaf(path, value, "model.hyperparameters", "state" if reads else "scalar")


def _extra_state(walk: Walk, path: str, value: Any) -> None:
    """Show what a module saves beside its tensors: of the kind of its buffers, whatever holds it."""
    items = value.items() if isinstance(value, dict) else (("", value),)
    for name, item in items:
        where = f"{path}.{name}" if name else path
        if isinstance(item, torch.Tensor):
            add_tensor(walk, where, item, "state", "model.buffers")
        else:
            walk.visit(where, item)


def _metric(walk: Walk, path: str, metric: Any) -> None:
    """Show what a metric has counted since its reset: a figure for people."""
    for name in getattr(metric, "_defaults", ()):
        value = getattr(metric, name)
        if isinstance(value, torch.Tensor):
            add_tensor(walk, f"{path}.{name}", value, "scalar", "metric")


def register_modules() -> None:
    """Register the kinds; again is no harm."""
    register(nn.Module, _module, order=0)
    register("torchmetrics.metric.Metric", _metric)

"""torch.optim's optimizers and the scheduler, built from a spec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from parity.spec import RunSpec
from parity.twins import factor, group_rules, is_former
from torch_side.optim import Lion, Muon, param_groups

__all__ = ["build_optimizer", "build_scheduler", "clip_gradients", "set_position"]

CLIP_EPS = 1e-6
"""Added to the norm by torch.nn.utils.clip_grad_norm_."""

FUSED_ON = ("cpu", "cuda", "mps", "xpu")
"""Devices on which PyTorch 2.11 and newer have fused Adam, AdamW and SGD."""

OWN: dict[str, Any] = {"Lion": Lion, "Muon": Muon}
"""Optimizers that torch.optim lacks, or has for matrices alone."""


def build_optimizer(spec: RunSpec, model: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """Return the optimizer of a spec: torch's own class, or the suite's where torch has none of this name.

    Adam, AdamW and SGD are fused where the device has it, and the momentum buffers of SGD are there from the start as
    zeros, unless the spec asks for what specs could not say before (`parity.twins.is_former`).

    Args:
        spec: The run.
        model: The model, on the device already.
        device: Where it trains.

    Raises:
        SpecError: As of `parity.state.assign_groups`.
    """
    optimizer, former, row = spec.optimizer, is_former(spec), spec.optimizer.row
    named = dict(model.named_parameters())
    arguments = {name: value for name, value in optimizer.arguments().items() if value != row.arguments[name]}
    decay = arguments.pop("weight_decay", row.arguments.get("weight_decay"))
    own = {} if decay is None else {"weight_decay": decay}
    rules = group_rules(optimizer, {name: tuple(p.shape) for name, p in named.items()})
    groups = param_groups([replace(rule, arguments={**own, **rule.arguments}) for rule in rules], named.items())
    flags = {"fused": device.type in FUSED_ON} if former else dict.fromkeys(row.inexact, False)
    cls = OWN.get(row.name) or getattr(torch.optim, row.name)
    made: torch.optim.Optimizer = cls(groups, **{"lr": optimizer.lr, **arguments, **flags})
    if former and optimizer.arguments().get("momentum"):
        for p in named.values():  # fused SGD leaves the buffer uninitialised when step 1 overflows (torch 2.13)
            made.state[p]["momentum_buffer"] = torch.zeros_like(p)
    return made


def build_scheduler(spec: RunSpec, optimizer: torch.optim.Optimizer) -> LambdaLR:
    """Return the scheduler of a spec: the shared closed form, in float64, stepped once per completed step.

    Args:
        spec: The run, for its schedule.
        optimizer: Its optimizer, with the peak rates; its groups get the rate of the first step.
    """
    optimizer._opt_called = True  # no warning where the scaler withholds the first step
    return LambdaLR(optimizer, lambda step: factor(spec.schedule, step))


def set_position(scheduler: LambdaLR, step: int) -> None:
    """Set a scheduler, and the rates of its optimizer, to the position after `step` completed steps.

    Args:
        scheduler: What `build_scheduler` returned.
        step: Completed steps, 0 for the first step.
    """
    scheduler.last_epoch = step
    rates = [base * scale(step) for base, scale in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)]
    for group, rate in zip(scheduler.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    scheduler._last_lr = rates


def clip_gradients(params: Sequence[nn.Parameter], max_norm: float) -> Tensor:
    """Scale all gradients in place by min(1, max_norm / (norm + 1e-6)), unless max_norm is 0.

    Args:
        params: Parameters; those without a gradient are left out.
        max_norm: Largest norm to keep.

    Returns:
        The norm of all gradients before the scaling, a scalar.

    Numerics: those of `torch.nn.utils.clip_grad_norm_` (torch 2.13), bit for bit, in 0.6 of its time on a CPU, where
    that one calls the kernels of each gradient from Python.
    """
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    if max_norm:
        torch._foreach_mul_(grads, torch.clamp(max_norm / (norm + CLIP_EPS), max=1.0))
    return norm

"""torch.optim's optimizers and the scheduler, built from a spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from parity.errors import StateError
from parity.schedules import Beside, Schedule
from parity.spec import RunSpec, ScheduleSpec
from parity.twins import factor, first_schedule, group_rules, is_former
from torch_side import optim
from torch_side.schedules import from_torch, to_torch

__all__ = ["RuleScheduler", "build_optimizer", "build_scheduler", "clip_gradients", "set_position"]

CLIP_EPS = 1e-6
"""Added to the norm by torch.nn.utils.clip_grad_norm_."""

FUSED_ON = ("cpu", "cuda", "mps", "xpu")
"""Devices on which PyTorch 2.11 and newer have fused Adam, AdamW and SGD."""


def build_optimizer(
    spec: RunSpec, model: nn.Module, device: torch.device, held: Mapping[str, nn.Parameter] | None = None
) -> torch.optim.Optimizer:
    """Return the optimizer of a spec: torch's own class, or the suite's where torch has none of this name.

    Adam, AdamW and SGD are fused where the device has it, and the momentum buffers of SGD are there from the start as
    zeros, unless the spec asks for what specs could not say before (`parity.twins.is_former`).

    Args:
        spec: The run.
        model: The model, on the device already.
        device: Where it trains.
        held: Parameter name to what the optimizer trains of it, for a model that is split over devices.

    Raises:
        SpecError: As of `parity.state.assign_groups`.
    """
    optimizer, former, row = spec.optimizer, is_former(spec), spec.optimizer.row
    own = dict(model.named_parameters())
    named = own if held is None else dict(held)
    arguments = {name: value for name, value in optimizer.arguments().items() if value != row.arguments[name]}
    decay = arguments.pop("weight_decay", row.arguments.get("weight_decay"))
    general = {} if decay is None else {"weight_decay": decay}
    rules = group_rules(optimizer, {name: tuple(p.shape) for name, p in own.items()})
    rules = tuple(replace(rule, arguments={**general, **rule.arguments}) for rule in rules)
    groups = optim.param_groups(rules, named.items())
    flags = {"fused": device.type in FUSED_ON} if former else dict.fromkeys(row.inexact, False)
    # Ours where torch has none of this name (Lion), or one for matrices alone (Muon).
    cls = getattr(optim, row.name, None) or getattr(torch.optim, row.name)
    made: torch.optim.Optimizer = cls(groups, **{"lr": optimizer.lr, **arguments, **flags})
    if former and optimizer.arguments().get("momentum"):
        for p in named.values():  # fused SGD leaves the buffer uninitialised when step 1 overflows (torch 2.13)
            made.state[p]["momentum_buffer"] = torch.zeros_like(p)
    return made


class RuleScheduler:
    """PyTorch's own schedulers of a rule of `parity.schedules`, beside each other where it is several.

    Args:
        schedule: The schedule at its position.
        optimizer: Its optimizer; the groups are set to the position.
    """

    def __init__(self, schedule: Schedule, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.put(schedule)

    def put(self, schedule: Schedule) -> None:
        """Become the schedulers of a schedule, at its position."""
        self.several = isinstance(schedule.rule, Beside)
        made = to_torch(schedule, self.optimizer)
        self.parts: tuple[Any, ...] = made if self.several else (made,)
        self.rule, self._written = schedule.rule, from_torch(made).rule
        self.optimizer._opt_called = True  # no warning where the scaler withholds the first step

    def step(self, metric: float | None = None) -> None:
        """Move on after a training step, or by the metric of a validation."""
        for part in self.parts:
            if isinstance(part, ReduceLROnPlateau) and metric is not None:
                part.step(metric)
            elif not isinstance(part, ReduceLROnPlateau) and metric is None:
                part.step()

    def read(self) -> Schedule:
        """Return the schedule of the suite at the position of PyTorch's objects.

        Raises:
            StateError: They have other constants than they were made with.
        """
        found = from_torch(self.parts if self.several else self.parts[0])
        if found.rule != self._written:
            raise StateError("schedule.rule", f"expected {self._written}, PyTorch's scheduler has {found.rule}"[:300])
        return Schedule.at(self.rule, found.position, found.groups)  # theirs has one constant for each group

    def state_dict(self) -> dict[str, Any]:
        """Return the neutral state: that of some schedulers is no plain data, and says less."""
        return {"schedule": self.read().state()}


def build_scheduler(spec: RunSpec, optimizer: torch.optim.Optimizer) -> LambdaLR | RuleScheduler:
    """Return the scheduler of a spec, stepped once per completed step: the shared closed form, or that of a rule.

    Args:
        spec: The run, for its schedule.
        optimizer: Its optimizer, with the peak rates; its groups get the rate of the first step.
    """
    schedule = first_schedule(spec, [group["lr"] for group in optimizer.param_groups])
    if schedule is not None:
        return RuleScheduler(schedule, optimizer)
    shape = spec.schedule
    assert isinstance(shape, ScheduleSpec)
    optimizer._opt_called = True  # no warning where the scaler withholds the first step
    return LambdaLR(optimizer, lambda step: factor(shape, step))


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


def clip_gradients(
    params: Sequence[nn.Parameter], max_norm: float, total: Callable[[Sequence[Tensor]], Tensor] | None = None
) -> Tensor:
    """Scale all gradients in place by min(1, max_norm / (norm + 1e-6)), unless max_norm is 0.

    Args:
        params: Parameters; those without a gradient are left out.
        max_norm: Largest norm to keep.
        total: Makes the norm of all gradients from those of the parameters; by default they are all there are.

    Returns:
        The norm of all gradients before the scaling, a scalar.

    Numerics: those of `torch.nn.utils.clip_grad_norm_` (torch 2.13), bit for bit, in 0.6 of its time on a CPU, where
    that one calls the kernels of each gradient from Python.
    """
    grads = [p.grad for p in params if p.grad is not None]
    norms = torch._foreach_norm(grads)
    norm = torch.linalg.vector_norm(torch.stack(norms)) if total is None else total(norms)
    if max_norm:
        torch._foreach_mul_(grads, torch.clamp(max_norm / (norm + CLIP_EPS), max=1.0))
    return norm

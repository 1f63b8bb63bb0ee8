"""The writer of PyTorch's schedulers: a schedule of the suite becomes a scheduler object at the same position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import torch
from torch.optim import lr_scheduler as lr

from parity import schedules
from parity.errors import ScheduleError
from parity.schedules import AnyRule, Groups, Schedule, spread
from torch_side.schedules.read import KNOWN, cycle_names

__all__ = ["to_torch"]

CLASSES = {rule: cls for cls, rule in KNOWN.items()}
"""Rule to the class of its scheduler."""


def to_torch(schedule: Schedule, optimizer: torch.optim.Optimizer) -> Any:
    """Return PyTorch's scheduler at the position of a schedule, and set the groups of its optimizer to it.

    Args:
        schedule: The schedule; it is not changed.
        optimizer: An optimizer with as many parameter groups. Rates, and momenta if the schedule moves them, are set.

    Returns:
        A scheduler, or a tuple of them where the schedule is several beside each other.

    Raises:
        ScheduleError: The optimizer has another number of groups or no momentum, or PyTorch cannot hold the rules: it
            keeps the constants of a `OneCycleLR` in the groups, so that two of them share those of the last one.

    Example:
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
        >>> scheduler = to_torch(Schedule(schedules.Step(step_size=10), [0.25]), optimizer)
        >>> type(scheduler).__name__, scheduler.get_last_lr()
        ('StepLR', [0.25])
    """
    rule, groups = schedule.rule, optimizer.param_groups
    if len(groups) != len(schedule.rates):
        problem = f"has {len(groups)} parameter groups, and the schedule is for {len(schedule.rates)}"
        raise ScheduleError(type(optimizer).__name__, f"{problem}; build it with the same groups")
    if rule.momentum and not {"momentum", "betas"} & set(optimizer.defaults):
        raise ScheduleError(type(optimizer).__name__, "has neither momentum nor betas, which the schedule moves")
    if isinstance(rule, schedules.Beside):
        pairs = zip(rule.rules, schedule.position.children, strict=True)
        made: Any = tuple(_write(child, place, optimizer) for child, place in pairs)
    else:
        made = _write(rule, schedule.position, optimizer)
    _set_groups(schedule.groups, optimizer)
    _require_unshared(rule, optimizer)
    return made


def _write(rule: AnyRule, position: Any, optimizer: torch.optim.Optimizer) -> Any:
    """Return the scheduler of a rule at a position; it changes the groups, which are set afterwards."""
    scheduler = _make(rule, optimizer)
    _place(scheduler, rule, position)
    return scheduler


def _make(rule: AnyRule, optimizer: torch.optim.Optimizer) -> Any:
    """Return a new scheduler with the constants of a rule, at its first step."""
    cls, count = CLASSES[type(rule)], len(optimizer.param_groups)
    if isinstance(rule, schedules.Sequential):
        children = [_make(child, optimizer) for child in rule.rules]
        return cls(optimizer, children, list(rule.milestones))
    if isinstance(rule, schedules.Chained):
        return cls([_make(child, optimizer) for child in rule.rules], optimizer)
    if isinstance(rule, schedules.Lambda | schedules.Multiplicative):
        tables = rule.tables if len(rule.tables) == count else rule.tables * count
        return cls(optimizer, [_function(table) for table in tables])
    if isinstance(rule, schedules.Cyclic):
        return _cyclic(rule, optimizer)
    if isinstance(rule, schedules.OneCycle):
        return _one_cycle(rule, optimizer)
    given = {field.name: getattr(rule, field.name) for field in fields(rule)}
    return cls(optimizer, **given)


def _function(table: tuple[float, ...], first: int = 0) -> Callable[[Any], float]:
    """Return the function of a table, which keeps the table, so that it can be read back."""

    def factor(step: Any) -> float:
        if not first <= step < len(table) + first:
            raise ScheduleError(
                "table", f"has the factors of {first} to {len(table) + first - 1}, and {step} is asked"
            )
        return table[step - first]

    vars(factor)["parity_table"] = table
    return factor


def _cyclic(rule: schedules.Cyclic, optimizer: torch.optim.Optimizer) -> Any:
    count, momentum = len(optimizer.param_groups), {}
    if rule.cycle_momentum:
        names = ("base_momentum", "max_momentum")
        momentum = {name: list(spread(getattr(rule, name), count)) for name in names}
    scheduler: Any = lr.CyclicLR(
        optimizer,
        list(spread(rule.base_lr, count)),
        list(spread(rule.max_lr, count)),
        mode="triangular" if rule.table else rule.mode,
        gamma=rule.gamma,
        scale_fn=_function(rule.table, int(rule.scale_mode == "cycle")) if rule.table else None,
        scale_mode=rule.scale_mode,
        cycle_momentum=rule.cycle_momentum,
        **momentum,
    )
    scheduler.total_size, scheduler.step_ratio = rule.total_size, rule.step_ratio
    return scheduler


def _one_cycle(rule: schedules.OneCycle, optimizer: torch.optim.Optimizer) -> Any:
    count = len(optimizer.param_groups)
    scheduler: Any = lr.OneCycleLR(
        optimizer,
        list(spread(rule.max_lr, count)),
        total_steps=100,  # any that can be built: it and the phases are set below
        anneal_strategy=rule.anneal_strategy,
        cycle_momentum=rule.cycle_momentum,
        three_phase=len(rule.ends) == 3,
    )
    scheduler.total_steps = rule.total_steps
    for phase, end in zip(scheduler._schedule_phases, rule.ends, strict=True):
        phase["end_step"] = end
    for name in cycle_names(rule):
        for group, value in zip(optimizer.param_groups, spread(getattr(rule, name), count), strict=True):
            group[name] = value
    return scheduler


def _place(scheduler: Any, rule: AnyRule, position: Any) -> None:
    """Put a new scheduler at a position."""
    scheduler._last_lr = list(position.last)
    if isinstance(rule, schedules.Sequential | schedules.Chained):
        for part, child, place in zip(scheduler._schedulers, rule.rules, position.children, strict=True):
            _place(part, child, place)
        if isinstance(rule, schedules.Sequential):
            scheduler.last_epoch = position.epoch
        return
    scheduler.last_epoch = position.epoch
    if isinstance(position, schedules.PlateauPosition):
        for name in ("best", "num_bad_epochs", "cooldown_counter"):
            setattr(scheduler, name, getattr(position, name))
        return
    scheduler._step_count, scheduler.base_lrs = position.calls, list(position.bases)
    if isinstance(position, schedules.RestartPosition):
        scheduler.T_cur, scheduler.T_i = position.T_cur, position.T_i


def _require_unshared(rule: AnyRule, optimizer: torch.optim.Optimizer) -> None:
    """Refuse one-cycle rules whose constants in the groups were replaced by those of another cycle."""
    for one in _one_cycles(rule):
        for name in cycle_names(one):
            kept = tuple(group[name] for group in optimizer.param_groups)
            if kept != spread(getattr(one, name), len(kept)):
                problem = f"PyTorch keeps it in the parameter groups, where another rule wrote {kept}"
                raise ScheduleError(f"one_cycle.{name}", problem)


def _one_cycles(rule: AnyRule) -> Iterator[schedules.OneCycle]:
    if isinstance(rule, schedules.OneCycle):
        yield rule
    for child in getattr(rule, "rules", ()):
        yield from _one_cycles(child)


def _set_groups(groups: Groups, optimizer: torch.optim.Optimizer) -> None:
    for number, group in enumerate(optimizer.param_groups):
        group["lr"] = groups.rates[number]
        if groups.initial is not None:
            group["initial_lr"] = groups.initial[number]
        if groups.momenta is not None and "betas" in optimizer.defaults:
            group["betas"] = (groups.momenta[number], *group["betas"][1:])
        elif groups.momenta is not None:
            group["momentum"] = groups.momenta[number]

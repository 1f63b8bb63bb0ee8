"""The reader of PyTorch's schedulers: class, constants and position become a schedule of the suite.

Every attribute of a scheduler has its place in the rule, in the position or in the values of the groups; one that has
none stops the conversion.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch.optim import lr_scheduler as lr

from parity import schedules
from parity.errors import ScheduleError, UnknownNameError
from parity.schedules import AnyRule, Groups, Schedule

__all__ = ["KNOWN", "cycle_names", "from_torch"]

PLAIN: dict[type, type[AnyRule]] = {
    lr.ConstantLR: schedules.Constant,
    lr.LinearLR: schedules.Linear,
    lr.PolynomialLR: schedules.Polynomial,
    lr.ExponentialLR: schedules.Exponential,
    lr.StepLR: schedules.Step,
    lr.CosineAnnealingLR: schedules.Cosine,
    lr.CosineAnnealingWarmRestarts: schedules.CosineRestarts,
}
"""Scheduler to the rule whose constants are attributes of the same name."""

COMMON = {"optimizer", "base_lrs", "last_epoch", "_step_count", "_last_lr"}
PASSING = {"_is_initial", "_get_lr_called_within_step", "verbose"}
"""Flags within a call; `verbose` comes with states that older versions saved."""

CYCLE_RATES = ("initial_lr", "max_lr", "min_lr")
"""Rates of OneCycleLR, which PyTorch keeps in the parameter groups."""


def from_torch(scheduler: lr.LRScheduler | Sequence[lr.LRScheduler], *, horizon: int | None = None) -> Schedule:
    """Return the schedule of a scheduler at its position.

    Args:
        scheduler: A scheduler of `torch.optim.lr_scheduler`, or several of one optimizer, in the order in which they
            are stepped; it is not changed.
        horizon: Last step for which functions (`lr_lambda`, `scale_fn`) are evaluated, into tables of their values;
            needed where there is one.

    Raises:
        UnknownNameError: It is no scheduler that is known.
        ScheduleError: It is of a subclass, has an attribute that has no place, computes with tensors, a function has
            no table, or `step(epoch)` put it where its rule has no step: beyond all numbers, or between two factors.

    Example:
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
        >>> from_torch(lr.CosineAnnealingLR(optimizer, T_max=100)).rates
        (0.5,)
    """
    several = isinstance(scheduler, list | tuple)
    parts: tuple[Any, ...] = tuple(scheduler) if several else (scheduler,)
    if not parts:
        raise ScheduleError("from_torch", "there is no scheduler")
    objects = [id(one) for part in parts for one in _whole(part)]
    if len(set(objects)) < len(objects):
        raise ScheduleError("from_torch", "a scheduler occurs twice and would be stepped twice; build one for each")
    read = [_read(part, horizon) for part in parts]
    optimizer = parts[0].optimizer
    if any(part.optimizer is not optimizer for part in parts):
        raise ScheduleError("from_torch", "the schedulers belong to several optimizers; convert those of each")
    rule, position = read[0]
    if several:
        rule = schedules.Beside(rules=tuple(rule for rule, _ in read))
        rates = _rates(optimizer, "lr")
        position = schedules.TreePosition(rates, tuple(position for _, position in read))
    return Schedule.at(rule, position, _groups(optimizer, momentum=rule.momentum))


def _whole(scheduler: Any) -> Iterator[Any]:
    """Yield a scheduler and those that it is made of."""
    yield scheduler
    for part in getattr(scheduler, "_schedulers", ()):
        yield from _whole(part)


def _read(scheduler: Any, horizon: int | None) -> tuple[AnyRule, Any]:
    """Return rule and position of a scheduler."""
    cls, name = type(scheduler), type(scheduler).__name__
    if cls not in KNOWN:
        bases = [base.__name__ for base in KNOWN if isinstance(scheduler, base)]
        if bases:
            problem = f"is a subclass of {bases[0]} and may compute other rates; convert a {bases[0]} itself"
            raise ScheduleError(name, f"{problem}, or write its rates as a table: parity.schedules.Lambda")
        raise UnknownNameError("scheduler", name, (known.__name__ for known in KNOWN))
    own = {field.name for field in fields(PLAIN[cls])} if cls in PLAIN else OWN[cls][1]
    own = own | {"T_cur", "T_i"} if cls is lr.CosineAnnealingWarmRestarts else own
    if rest := sorted(set(vars(scheduler)) - own - COMMON - PASSING):
        raise ScheduleError(name, f"has attributes that no schedule of PyTorch 2.13 has: {', '.join(rest)}")
    if cls in PLAIN:
        given = {field.name: _plain(getattr(scheduler, field.name), name) for field in fields(PLAIN[cls])}
        rule: AnyRule = PLAIN[cls](**given)
    elif (read := OWN[cls][2]) is not None:
        rule = read(scheduler, horizon)
    else:
        return _tree(scheduler, horizon)
    return rule, _position(scheduler, rule)


def _tree(scheduler: Any, horizon: int | None) -> tuple[AnyRule, Any]:
    """Return rule and position of a scheduler that is made of others."""
    name = type(scheduler).__name__
    rules, children = zip(*(_read(child, horizon) for child in scheduler._schedulers), strict=True)
    last = tuple(_float(rate, name) for rate in scheduler._last_lr)
    if isinstance(scheduler, lr.ChainedScheduler):
        return schedules.Chained(rules=rules), schedules.TreePosition(last, children)
    milestones = tuple(_plain(step, name) for step in scheduler._milestones)
    rule = schedules.Sequential(rules=rules, milestones=milestones)
    return rule, schedules.TreePosition(last, children, scheduler.last_epoch)


def _position(scheduler: Any, rule: AnyRule) -> Any:
    name, epoch = type(scheduler).__name__, _plain(scheduler.last_epoch, type(scheduler).__name__)
    if not math.isfinite(epoch):
        raise ScheduleError(name, f"was put to the step {epoch} by step(epoch); there is no next one")
    by_step = isinstance(rule, schedules.Lambda | schedules.Multiplicative)
    if isinstance(rule, schedules.Cyclic):
        by_step = bool(rule.table) and rule.scale_mode == "iterations"
    if by_step and epoch != int(epoch):
        problem = f"was put to the step {epoch} by step(epoch), between two factors of its table"
        raise ScheduleError(name, f"{problem}; step it without an epoch")
    last = tuple(_float(rate, name) for rate in scheduler._last_lr)
    if isinstance(rule, schedules.Plateau):
        best, bad = _float(scheduler.best, name), int(scheduler.num_bad_epochs)
        return schedules.PlateauPosition(last, epoch, best, bad, _plain(scheduler.cooldown_counter, name))
    bases = tuple(_float(rate, name) for rate in scheduler.base_lrs)
    _same_count(scheduler, len(bases))
    if isinstance(rule, schedules.CosineRestarts):
        within, length = _plain(scheduler.T_cur, name), _plain(scheduler.T_i, name)
        return schedules.RestartPosition(last, epoch, scheduler._step_count, bases, within, length)
    return schedules.Position(last, epoch, scheduler._step_count, bases)


def _same_count(scheduler: Any, count: int) -> None:
    groups = len(scheduler.optimizer.param_groups)
    if groups != count:
        problem = f"was built for {count} parameter groups, and its optimizer has {groups}"
        raise ScheduleError(type(scheduler).__name__, f"{problem}; add groups before the scheduler is built")


def _multi_step(scheduler: Any, horizon: int | None) -> AnyRule:
    milestones = tuple(_plain(step, "MultiStepLR") for step in sorted(scheduler.milestones.elements()))
    return schedules.MultiStep(milestones=milestones, gamma=_plain(scheduler.gamma, "MultiStepLR"))


def _lambda(scheduler: Any, horizon: int | None) -> AnyRule:
    rule = schedules.Lambda if type(scheduler) is lr.LambdaLR else schedules.Multiplicative
    arguments = None if horizon is None else range(horizon + 1)
    tables = [_table(function, scheduler, arguments) for function in scheduler.lr_lambdas]
    same = all(table == tables[0] for table in tables)
    return rule(tables=tuple(tables[:1] if same else tables))


def _table(function: Any, scheduler: Any, arguments: range | None) -> tuple[float, ...]:
    """Return the values of a function of a scheduler: the table it was made from, or those of its arguments."""
    if isinstance(function, types.FunctionType) and hasattr(function, "parity_table"):
        return tuple(function.parity_table)
    name, values = type(scheduler).__name__, []
    if arguments is None:
        problem = "computes its factors by a Python function, of which no state can hold more than a table of values"
        raise ScheduleError(name, f"{problem}: from_torch(scheduler, horizon=LAST_STEP) makes it")
    for argument in arguments:
        try:
            value = function(argument)
        except Exception as error:  # whatever code of the user raises
            problem = f"its function has no value at {argument}: {type(error).__name__}: {error}"
            raise ScheduleError(name, f"{problem}; give it one there, or a smaller horizon") from error
        values.append(int(value) if isinstance(value, bool) else _plain(value, name))
    return tuple(values)


def _cyclic(scheduler: Any, horizon: int | None) -> AnyRule:
    name, custom = "CyclicLR", scheduler._scale_fn_custom
    table: tuple[float, ...] = ()
    size = _float(scheduler.total_size, name)
    if custom is not None:
        steps = horizon or 0
        arguments = range(1, 2 + int(steps / size)) if scheduler.scale_mode == "cycle" else range(steps + 1)
        table = _table(custom, scheduler, None if horizon is None else arguments)
    momentum = {}
    if scheduler.cycle_momentum:
        lows, highs = scheduler.base_momentums, scheduler.max_momentums
        momentum = {"base_momentum": _each(lows, name), "max_momentum": _each(highs, name)}
    return schedules.Cyclic(
        base_lr=_each(scheduler.base_lrs, name),
        max_lr=_each(scheduler.max_lrs, name),
        total_size=size,
        step_ratio=_float(scheduler.step_ratio, name),
        mode="table" if table else scheduler.mode,
        gamma=_plain(scheduler.gamma, name),
        table=table,
        scale_mode=scheduler.scale_mode,
        cycle_momentum=bool(scheduler.cycle_momentum),
        **momentum,
    )


def _one_cycle(scheduler: Any, horizon: int | None) -> AnyRule:
    name, groups, keys = "OneCycleLR", scheduler.optimizer.param_groups, cycle_names(scheduler)
    lacking = {*keys} - set.intersection(*map(set, groups))
    if lacking:
        raise ScheduleError(name, f"a parameter group has no {', '.join(sorted(lacking))}")
    return schedules.OneCycle(
        total_steps=scheduler.total_steps,
        ends=tuple(_plain(phase["end_step"], name) for phase in scheduler._schedule_phases),
        anneal_strategy=scheduler._anneal_func_type,
        cycle_momentum=bool(scheduler.cycle_momentum),
        **{key: _each([group[key] for group in groups], name) for key in keys},
    )


def cycle_names(one: Any) -> tuple[str, ...]:
    """Return the constants of a one-cycle scheduler or rule that PyTorch keeps in the parameter groups."""
    return (*CYCLE_RATES, "base_momentum", "max_momentum") if one.cycle_momentum else CYCLE_RATES


def _plateau(scheduler: Any, horizon: int | None) -> AnyRule:
    name, lowest = "ReduceLROnPlateau", scheduler.min_lrs
    _same_count(scheduler, len(scheduler._last_lr))
    one = scheduler.default_min_lr
    given = ("mode", "threshold_mode")
    numbers = ("factor", "patience", "threshold", "cooldown", "eps")
    return schedules.Plateau(
        min_lr=tuple(_plain(value, name) for value in lowest) if one is None else _plain(one, name),
        **{key: getattr(scheduler, key) for key in given},
        **{key: _plain(getattr(scheduler, key), name) for key in numbers},
    )


OWN: dict[type, tuple[type[AnyRule], set[str], Callable[[Any, int | None], AnyRule] | None]] = {
    lr.MultiStepLR: (schedules.MultiStep, {"milestones", "gamma"}, _multi_step),
    lr.LambdaLR: (schedules.Lambda, {"lr_lambdas"}, _lambda),
    lr.MultiplicativeLR: (schedules.Multiplicative, {"lr_lambdas"}, _lambda),
    lr.CyclicLR: (
        schedules.Cyclic,
        {"max_lrs", "total_size", "step_ratio", "mode", "gamma", "_scale_fn_ref", "_scale_fn_custom", "scale_mode"}
        | {"cycle_momentum", "use_beta1", "base_momentums", "max_momentums"},
        _cyclic,
    ),
    lr.OneCycleLR: (
        schedules.OneCycle,
        {"total_steps", "_schedule_phases", "_anneal_func_type", "cycle_momentum", "use_beta1"},
        _one_cycle,
    ),
    lr.ReduceLROnPlateau: (
        schedules.Plateau,
        {"factor", "patience", "threshold", "threshold_mode", "cooldown", "eps", "mode", "min_lrs"}
        | {"default_min_lr", "mode_worse", "best", "num_bad_epochs", "cooldown_counter"},
        _plateau,
    ),
    lr.SequentialLR: (schedules.Sequential, {"_schedulers", "_milestones"}, None),
    lr.ChainedScheduler: (schedules.Chained, {"_schedulers"}, None),
}
"""Scheduler to its rule, to the attributes that its constants and position are in, and to what reads its constants;
None for one that is made of others."""

KNOWN = {**{cls: rule for cls, (rule, _, _) in OWN.items()}, **PLAIN}
"""Scheduler to its rule."""


def _plain(value: Any, name: str) -> Any:
    """Return a constant as a Python number; float32 and tensors compute other bits."""
    if isinstance(value, np.float64 | np.integer):
        return value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = f"{value.dtype} tensor" if isinstance(value, torch.Tensor) else type(value).__name__
        raise ScheduleError(name, f"computes with a {kind}; a schedule computes with Python's numbers (float64)")
    return value


def _float(value: Any, name: str) -> float:
    return float(_plain(value, name))


def _each(values: Sequence[Any], name: str) -> Any:
    return tuple(_plain(value, name) for value in values)


def _rates(optimizer: torch.optim.Optimizer, key: str) -> tuple[float, ...]:
    return tuple(_float(group[key], type(optimizer).__name__) for group in optimizer.param_groups)


def _groups(optimizer: torch.optim.Optimizer, *, momentum: bool) -> Groups:
    """Return what a schedule moves of an optimizer's groups."""
    name, initial, momenta = type(optimizer).__name__, None, None
    if all("initial_lr" in group for group in optimizer.param_groups):
        initial = _rates(optimizer, "initial_lr")
    if momentum:
        betas = "betas" in optimizer.defaults
        momenta = tuple(
            _float(group["betas"][0] if betas else group["momentum"], name) for group in optimizer.param_groups
        )
    return Groups(_rates(optimizer, "lr"), initial, momenta)

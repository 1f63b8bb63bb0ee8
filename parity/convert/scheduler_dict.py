"""The `state_dict` of a `torch.optim.lr_scheduler` as a schedule of the suite, and moved on, without PyTorch.

The dict does not name its class. The names of its constants do, each set being of one class alone; a dict with any
other name is of no class that is known. Functions (`LambdaLR`) are not in it, so that nobody can move those on; nor
does the dict of a `CyclicLR` say whether it had one, so that it is of no class here either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from parity.errors import ScheduleError
from parity.schedules import (
    AnyRule,
    Chained,
    Constant,
    Cosine,
    CosineRestarts,
    Exponential,
    Groups,
    Linear,
    MultiStep,
    OneCycle,
    Plateau,
    PlateauPosition,
    Polynomial,
    Position,
    RestartPosition,
    Schedule,
    Sequential,
    Step,
    TreePosition,
)

__all__ = ["read_scheduler", "write_groups", "write_scheduler"]

COMMON = {"base_lrs", "last_epoch", "_step_count", "_last_lr"}
PASSING = {"_is_initial", "_get_lr_called_within_step", "verbose"}
"""Flags within a call, and what older versions of PyTorch saved."""

PLAIN: dict[frozenset[str], type[AnyRule]] = {
    frozenset({"factor", "total_iters"}): Constant,
    frozenset({"start_factor", "end_factor", "total_iters"}): Linear,
    frozenset({"total_iters", "power"}): Polynomial,
    frozenset({"gamma"}): Exponential,
    frozenset({"step_size", "gamma"}): Step,
    frozenset({"T_max", "eta_min"}): Cosine,
    frozenset({"T_0", "T_mult", "eta_min"}): CosineRestarts,
}
"""Names of the constants to the rule."""

ONE_CYCLE = {"total_steps", "_schedule_phases", "_anneal_func_type", "cycle_momentum", "use_beta1"}
OF_GROUPS = ("initial_lr", "max_lr", "min_lr")
MOMENTA = ("base_momentum", "max_momentum")
PLATEAU = {"factor", "patience", "threshold", "threshold_mode", "cooldown", "eps", "mode"}
SEEN = {"best", "num_bad_epochs", "cooldown_counter"}

Dict = Mapping[str, Any]


def read_scheduler(state: Dict, groups: Sequence[Dict]) -> Schedule | None:
    """Return the schedule of a scheduler at its position; None where the dict is of no class that is known.

    Args:
        state: What `scheduler.state_dict()` returned.
        groups: `param_groups` of its optimizer's `state_dict`.
    """
    try:
        rule, position = _read(state, groups)
        momenta = tuple(_momentum(group) for group in groups) if rule.momentum else None
        initial = _each(groups, "initial_lr") if all("initial_lr" in group for group in groups) else None
        return Schedule.at(rule, position, Groups(_each(groups, "lr"), initial, momenta))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, ScheduleError):
        return None


def write_scheduler(state: Dict, position: Any) -> dict[str, Any]:
    """Return a `state_dict` with the same constants at another position of its rule.

    Args:
        state: What `scheduler.state_dict()` returned; it is not changed.
        position: The position, of the rule that `read_scheduler` finds in the state.
    """
    made = dict(state)
    made["_last_lr"] = list(position.last)
    if isinstance(position, TreePosition):
        pairs = zip(state["_schedulers"], position.children, strict=True)
        made["_schedulers"] = [write_scheduler(one, child) for one, child in pairs]
        if "_milestones" in state:
            made["last_epoch"] = position.epoch
        return made
    made["last_epoch"] = position.epoch
    if isinstance(position, PlateauPosition):
        return {**made, **{name: getattr(position, name) for name in SEEN}}
    made["_step_count"] = position.calls
    if isinstance(position, RestartPosition):
        made["T_cur"], made["T_i"] = position.T_cur, position.T_i
    return made


def write_groups(groups: Sequence[Dict], values: Groups) -> list[dict[str, Any]]:
    """Return parameter groups with the rates, and the momenta where a rule moves them, of a schedule.

    Args:
        groups: `param_groups` of an optimizer's `state_dict`; they are not changed.
        values: One rate, and one momentum, for each of them. A group with `betas` takes the momentum as its first
            beta, another one as `momentum`.

    Example:
        >>> write_groups([{"lr": 0.1, "betas": (0.9, 0.99)}], Groups(rates=(0.05,), momenta=(0.8,)))
        [{'lr': 0.05, 'betas': (0.8, 0.99)}]
    """
    made = []
    for number, group in enumerate(groups):
        one = {**group, "lr": values.rates[number]}
        if values.momenta is not None and "betas" in group:
            one["betas"] = type(group["betas"])((values.momenta[number], *group["betas"][1:]))
        elif values.momenta is not None:
            one["momentum"] = values.momenta[number]
        made.append(one)
    return made


def _read(state: Dict, groups: Sequence[Dict]) -> tuple[AnyRule, Any]:
    last = tuple(map(_number, state["_last_lr"]))
    own = set(state) - COMMON - PASSING
    if "_schedulers" in state:
        rules, children = zip(*(_read(child, groups) for child in state["_schedulers"]), strict=True)
        if own == {"_schedulers"}:
            return Chained(rules=rules), TreePosition(last, children)
        _require(own == {"_schedulers", "_milestones"})
        rule: AnyRule = Sequential(rules=rules, milestones=tuple(map(_number, state["_milestones"])))
        return rule, TreePosition(last, children, _count(state, "last_epoch"))
    epoch = _number(state["last_epoch"])  # a fraction after step(epoch)
    _require(math.isfinite(epoch))
    if own >= SEEN:
        _require(own == PLATEAU | SEEN | {"default_min_lr", "min_lrs", "mode_worse"})
        one = state["default_min_lr"]
        lowest = tuple(map(_number, state["min_lrs"])) if one is None else _number(one)
        rule = Plateau(min_lr=lowest, **{name: state[name] for name in PLATEAU})
        best, bad = float(_number(state["best"])), _count(state, "num_bad_epochs")
        return rule, PlateauPosition(last, epoch, best, bad, _number(state["cooldown_counter"]))
    bases = tuple(map(_number, state["base_lrs"]))
    _require(len(bases) == len(last) == len(groups))
    if {"T_cur", "T_i"} <= own:
        rule = _plain(state, own - {"T_cur", "T_i"})
        _require(isinstance(rule, CosineRestarts))
        place = (last, epoch, _count(state, "_step_count"), bases)
        return rule, RestartPosition(*place, _number(state["T_cur"]), _number(state["T_i"]))
    if own == {"milestones", "gamma"}:
        counts = state["milestones"]
        milestones = tuple(step for step in sorted(counts) for _ in range(_count(counts, step)))
        rule = MultiStep(milestones=milestones, gamma=_number(state["gamma"]))
    elif own | {"use_beta1"} == ONE_CYCLE and ("use_beta1" in own or not state["cycle_momentum"]):
        rule = _one_cycle(state, groups)
    else:
        rule = _plain(state, own)
        _require(not isinstance(rule, CosineRestarts))
    return rule, Position(last, epoch, _count(state, "_step_count"), bases)


def _plain(state: Dict, own: set[str]) -> AnyRule:
    return PLAIN[frozenset(own)](**{name: _number(state[name]) for name in own})


def _one_cycle(state: Dict, groups: Sequence[Dict]) -> AnyRule:
    names = (*OF_GROUPS, *(MOMENTA if state["cycle_momentum"] else ()))
    return OneCycle(
        total_steps=state["total_steps"],
        ends=tuple(_number(phase["end_step"]) for phase in state["_schedule_phases"]),
        anneal_strategy=state["_anneal_func_type"],
        cycle_momentum=state["cycle_momentum"],
        **{name: _each(groups, name) for name in names},
    )


def _require(fits: bool) -> None:
    if not fits:
        raise ValueError("of no class that is known")


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{type(value).__name__} is no number")
    return value


def _count(state: Mapping[Any, Any], name: Any) -> int:
    if type(state[name]) is not int:
        raise TypeError(f"{name} is no count")
    return int(state[name])


def _each(groups: Sequence[Dict], name: str) -> tuple[float, ...]:
    return tuple(float(_number(group[name])) for group in groups)


def _momentum(group: Dict) -> float:
    return float(_number(group["betas"][0] if "betas" in group else group["momentum"]))

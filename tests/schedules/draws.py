"""Schedules drawn at random, each built twice: by the classes of PyTorch and as rules of the suite."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch.optim import lr_scheduler as lr

from parity import schedules as ours

__all__ = ["DRAWS", "SINGLE", "Draw", "Pair", "draw", "driven", "optimizer_of", "ours_driven", "pair", "run", "seen"]

Build = Callable[[torch.optim.Optimizer], Any]


@dataclass(frozen=True)
class Draw:
    """One schedule: how PyTorch builds it, and the rule that must be equal to it."""

    build: Build
    rule: ours.AnyRule


@dataclass
class Pair:
    """One schedule on both sides, at one step."""

    draw: Draw
    rates: list[float]
    scheduler: Any
    optimizer: torch.optim.Optimizer
    schedule: ours.Schedule
    metrics: list[float]

    def run(self, first: int = 0, last: int | None = None) -> int | None:
        """Step both, and return the first step at which they differ."""
        return run(self.scheduler, self.optimizer, self.schedule, self.metrics[:last], first)

    def fresh(self) -> torch.optim.Optimizer:
        """Return an optimizer of the same class and groups, with other rates."""
        return optimizer_of([0.123] * len(self.rates), type(self.optimizer))


def odd(random: Random, low: float, high: float) -> float:
    """Return a number of a range, sometimes one of its ends or a round one."""
    return random.choice([low, high, round(random.uniform(low, high), 2), *[random.uniform(low, high)] * 3])


def length(random: Random, steps: int) -> int:
    """Return a number of steps within a run, often a short one."""
    return random.choice([1, 2, random.randrange(1, 40), *[random.randrange(1, steps)] * 3])


def plain(cls: Any, rule: Any, **constants: Any) -> Draw:
    """Return a schedule whose constants have the same names on both sides."""
    return Draw(lambda optimizer: cls(optimizer, **constants), rule(**constants))


def constant(random: Random, groups: int, steps: int) -> Draw:
    return plain(lr.ConstantLR, ours.Constant, factor=odd(random, 0.001, 1.0), total_iters=length(random, steps))


def linear(random: Random, groups: int, steps: int) -> Draw:
    start, end = max(1e-3, odd(random, 1e-3, 1.0)), odd(random, 0.0, 1.0)
    total = random.choice([length(random, steps), random.uniform(1, steps)])
    return plain(lr.LinearLR, ours.Linear, start_factor=start, end_factor=end, total_iters=total)


def polynomial(random: Random, groups: int, steps: int) -> Draw:
    total, power = random.choice([length(random, steps), steps / 3 + 0.5]), odd(random, 0.0, 3.0)
    return plain(lr.PolynomialLR, ours.Polynomial, total_iters=total, power=power)


def exponential(random: Random, groups: int, steps: int) -> Draw:
    return plain(lr.ExponentialLR, ours.Exponential, gamma=odd(random, 1 - 5 / steps, 1 + 1 / steps))


def step(random: Random, groups: int, steps: int) -> Draw:
    return plain(lr.StepLR, ours.Step, step_size=length(random, steps), gamma=odd(random, 0.5, 1.5))


def multi_step(random: Random, groups: int, steps: int) -> Draw:
    at = random.choices(range(steps), k=random.randrange(0, 5))
    at = tuple(sorted(at + random.choices(at or [0], k=random.randrange(0, 3))))
    return plain(lr.MultiStepLR, ours.MultiStep, milestones=at, gamma=odd(random, 0.1, 2.0))


def cosine(random: Random, groups: int, steps: int) -> Draw:
    span = random.choice([length(random, steps), random.uniform(1, steps)])
    return plain(lr.CosineAnnealingLR, ours.Cosine, T_max=span, eta_min=odd(random, 0.0, 0.3))


def cosine_restarts(random: Random, groups: int, steps: int) -> Draw:
    names = {"T_0": length(random, steps), "T_mult": random.randrange(1, 4), "eta_min": odd(random, 0.0, 0.3)}
    return plain(lr.CosineAnnealingWarmRestarts, ours.CosineRestarts, **names)


def each(random: Random, groups: int, low: float, high: float) -> Any:
    """Return one number for all groups, or one for each."""
    values = [odd(random, low, high) for _ in range(groups)]
    return random.choice([values[0], values])


def given(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def cyclic(random: Random, groups: int, steps: int) -> Draw:
    names: dict[str, Any] = {
        "base_lr": each(random, groups, 0.0, 0.1),
        "max_lr": each(random, groups, 0.1, 1.0),
        "step_size_up": steps // 900 + length(random, steps),  # at most 1,023 cycles: 2.0**1024 is too large
        "step_size_down": random.choice([None, length(random, steps)]),
        "mode": random.choice(["triangular", "triangular2", "exp_range"]),
        "gamma": odd(random, 0.99, 1.0),
        "cycle_momentum": random.random() < 0.7,
        "base_momentum": each(random, groups, 0.1, 0.8),
        "max_momentum": each(random, groups, 0.8, 0.99),
    }
    if random.random() < 0.3:
        mode = random.choice(["cycle", "iterations"])
        function = lambda x: 1 / (1 + x / 3)  # noqa: E731
        values = [function(x) for x in range(0 if mode == "iterations" else 1, steps + 2)]
        build = lambda optimizer: lr.CyclicLR(optimizer, **names, scale_fn=function, scale_mode=mode)  # noqa: E731
        rule = ours.Cyclic.of(**{k: given(v) for k, v in names.items()} | {"table": values, "scale_mode": mode})
        return Draw(build, rule)
    rule = ours.Cyclic.of(**{name: given(value) for name, value in names.items()})
    return Draw(lambda optimizer: lr.CyclicLR(optimizer, **names), rule)


def one_cycle(random: Random, groups: int, steps: int) -> Draw:
    names: dict[str, Any] = {
        "max_lr": each(random, groups, 0.1, 3.0),
        "total_steps": steps,
        "pct_start": random.uniform(0.05, 0.45),
        "anneal_strategy": random.choice(["cos", "linear"]),
        "cycle_momentum": random.random() < 0.7,
        "base_momentum": each(random, groups, 0.1, 0.8),
        "max_momentum": each(random, groups, 0.8, 0.99),
        "div_factor": odd(random, 1.5, 30.0),
        "final_div_factor": odd(random, 2.0, 1e4),
        "three_phase": random.random() < 0.5,
    }
    rule = ours.OneCycle.of(**{name: given(value) for name, value in names.items()})
    return Draw(lambda optimizer: lr.OneCycleLR(optimizer, **names), rule)


def tables(cls: Any, rule: Any) -> Callable[[Random, int, int], Draw]:
    def make(random: Random, groups: int, steps: int) -> Draw:
        a = [random.uniform(0.9, 1.1) for _ in range(groups)]
        one = random.random() < 0.5
        functions = [lambda t, a=a[g]: a ** (t % 7 - 3) for g in range(1 if one else groups)]
        values = tuple(tuple(f(t) for t in range(steps + 1)) for f in functions)
        return Draw(lambda optimizer: cls(optimizer, functions[0] if one else functions), rule(tables=values))

    return make


def plateau(random: Random, groups: int, steps: int) -> Draw:
    names: dict[str, Any] = {
        "mode": random.choice(["min", "max"]),
        "factor": odd(random, 0.5, 0.99),
        "patience": random.randrange(0, 9),
        "threshold": odd(random, 0.0, 0.05),
        "threshold_mode": random.choice(["rel", "abs"]),
        "cooldown": random.randrange(0, 4),
        "min_lr": each(random, groups, 0.0, 1e-3),
        "eps": random.choice([0.0, 1e-8, 1e-3]),
    }
    rule = ours.Plateau(**{name: given(value) for name, value in names.items()})
    return Draw(lambda optimizer: lr.ReduceLROnPlateau(optimizer, **names), rule)


SINGLE = {
    "constant": constant,
    "linear": linear,
    "polynomial": polynomial,
    "exponential": exponential,
    "step": step,
    "multi_step": multi_step,
    "cosine": cosine,
    "cosine_restarts": cosine_restarts,
    "cyclic": cyclic,
    "one_cycle": one_cycle,
    "lambda": tables(lr.LambdaLR, ours.Lambda),
    "multiplicative": tables(lr.MultiplicativeLR, ours.Multiplicative),
}


def _parts(random: Random, groups: int, steps: int, *, trees: bool) -> list[Draw]:
    """Return the parts of a tree: one cycle at most, whose constants PyTorch keeps in the groups."""
    others = [name for name in SINGLE if name not in ("cyclic", "one_cycle")]
    names = random.choices(others, k=random.randrange(1, 4))
    if random.random() < 0.4:
        names[random.randrange(len(names))] = random.choice(["cyclic", "one_cycle"])
    parts = [SINGLE[name](random, groups, steps) for name in names]
    if trees and random.random() < 0.4 and not {"cyclic", "one_cycle"} & set(names):
        parts[0] = random.choice([chained, sequential])(random, groups, steps, trees=False)
    return parts


def sequential(random: Random, groups: int, steps: int, *, trees: bool = True) -> Draw:
    parts = _parts(random, groups, steps, trees=trees)
    at = sorted(random.sample(range(1, steps), len(parts) - 1))
    rule = ours.Sequential(rules=tuple(part.rule for part in parts), milestones=tuple(at))
    return Draw(lambda o: lr.SequentialLR(o, [part.build(o) for part in parts], list(at)), rule)


def chained(random: Random, groups: int, steps: int, *, trees: bool = True) -> Draw:
    parts = _parts(random, groups, steps, trees=trees)
    rule = ours.Chained(rules=tuple(part.rule for part in parts))
    return Draw(lambda o: lr.ChainedScheduler([part.build(o) for part in parts], o), rule)


def beside(random: Random, groups: int, steps: int) -> Draw:
    parts = [random.choice([linear, cosine, step, sequential])(random, groups, steps), plateau(random, groups, steps)]
    rule = ours.Beside(rules=tuple(part.rule for part in parts))
    return Draw(lambda o: tuple(part.build(o) for part in parts), rule)


DRAWS: dict[str, Callable[[Random, int, int], Draw]] = {
    **SINGLE,
    "plateau": plateau,
    "sequential": sequential,
    "chained": chained,
    "beside": beside,
}


def draw(kind: str, seed: int, steps: int) -> tuple[Draw, list[float], Random]:
    """Return a schedule of a kind for a run, the rates of one to three groups, and the generator for more."""
    random = Random(f"{kind}-{seed}")
    groups = random.randrange(1, 4)
    rates = [odd(random, 1e-4, 1.0) for _ in range(groups)]
    return DRAWS[kind](random, groups, steps), rates, random


def optimizer_of(rates: list[float], cls: type[torch.optim.Optimizer] = torch.optim.SGD) -> torch.optim.Optimizer:
    """Return an optimizer with a group for each rate."""
    params = [{"params": [torch.zeros(1)], "lr": rate} for rate in rates]
    more = {"momentum": 0.9} if cls is torch.optim.SGD else {}
    optimizer = cls(params, lr=0.1, **more)
    optimizer._opt_called = True  # an optimizer that has taken its step: no warning about the order
    return optimizer


def metrics(random: Random, steps: int) -> list[float]:
    """Return metrics that improve and then do not, with repeated and infinite ones."""
    values, level, better = [], random.uniform(2.0, 4.0), random.choice([-1, 1])
    for _ in range(steps):
        level += random.choice([0.0, better * random.uniform(0, 4 / steps), random.uniform(-0.05, 0.05)])
        infinite = random.random() < 1 / steps
        values.append(random.choice([float("inf"), float("-inf")]) if infinite else level)
    return values


def driven(scheduler: Any, step: int, metric: float) -> None:
    """Step PyTorch's schedulers: those that take a metric at every third step."""
    for one in scheduler if isinstance(scheduler, tuple) else (scheduler,):
        if not isinstance(one, lr.ReduceLROnPlateau):
            one.step()
        elif not isinstance(scheduler, tuple) or step % 3 == 2:
            one.step(metric)


def ours_driven(schedule: ours.Schedule, step: int, metric: float) -> None:
    """Step a schedule as `driven` steps PyTorch's."""
    if schedule.rule.kind != "plateau":
        schedule.step()
    if schedule.rule.kind == "plateau" or (schedule.rule.metric and step % 3 == 2):
        schedule.step(metric)


def seen(optimizer: torch.optim.Optimizer, *, momentum: bool) -> bytes:
    """Return the bits of the rates, and of the momenta if a schedule moves them, that an optimizer has now."""
    betas, values = "betas" in optimizer.defaults, [group["lr"] for group in optimizer.param_groups]
    if momentum:
        values += [group["betas"][0] if betas else group["momentum"] for group in optimizer.param_groups]
    return array("d", values).tobytes()


def shown(schedule: ours.Schedule) -> bytes:
    """Return the bits of what a schedule gives now, as `seen` does."""
    return array("d", [*schedule.rates, *(schedule.momenta or ())]).tobytes()


def run(
    scheduler: Any, optimizer: torch.optim.Optimizer, schedule: ours.Schedule, values: list[float], first: int = 0
) -> int | None:
    """Step both through all metrics from a step on, and return the first step at which they differ."""
    momentum = schedule.rule.momentum
    for number in range(first, len(values)):
        if seen(optimizer, momentum=momentum) != shown(schedule):
            return number
        driven(scheduler, number, values[number])
        ours_driven(schedule, number, values[number])
    return None if seen(optimizer, momentum=momentum) == shown(schedule) else len(values)


def pair(kind: str, seed: int, steps: int) -> Pair:
    """Return a schedule built on both sides, at its start."""
    one, rates, random = draw(kind, seed, steps)
    optimizer = optimizer_of(rates, random.choice([torch.optim.SGD, torch.optim.AdamW]))
    scheduler = one.build(optimizer)
    return Pair(one, rates, scheduler, optimizer, ours.Schedule(one.rule, rates), metrics(random, steps))

"""Faults planted into rules, into their state and into the conversions: the comparison with PyTorch finds each."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from parity import schedules as ours
from parity.schedules.rule import Single
from tests.schedules.draws import pair, run
from tests.schedules.test_rates import STEPS, copied
from torch_side.schedules import from_torch, read, write

Wrap = Callable[[Any], Any]


def changed(**changes: Any) -> Wrap:
    """Return a method that works with other constants: values, or functions of the rule."""

    def wrap(method: Any) -> Any:
        def planted(self: Any, *args: Any, **more: Any) -> Any:
            values = {name: value(self) if callable(value) else value for name, value in changes.items()}
            return method(replace(self, **values), *args, **more)

        return planted

    return wrap


def shifted(by: int) -> Wrap:
    """Return a method that is asked for another step."""
    return lambda method: lambda self, epoch, *args, **more: method(self, max(0, epoch + by), *args, **more)


def closed(curve: Callable[[Any, int, float], float]) -> Wrap:
    """Return a method that computes the rates from the step alone, by a form that is equal on paper."""

    def wrap(method: Any) -> Any:
        return lambda self, epoch, groups, bases, *, first: tuple(curve(self, epoch, base) for base in bases)

    return wrap


def first_ignored(method: Any) -> Any:
    return lambda self, epoch, groups, bases, *, first: method(self, epoch, groups, bases, first=False)


def late(method: Any) -> Any:
    """Let sequences come to each rule one step late."""
    return changed(milestones=lambda self: tuple(step + 1 for step in self.milestones))(method)


def went_on(method: Any) -> Any:
    """Start a rule of a sequence from the rate before, not from its own."""
    return lambda self, position, groups: self.step(replace(position, epoch=-1), groups, None)


def not_reset(method: Any) -> Any:
    def build(self: Any, groups: Any) -> Any:
        position, after = method(self, groups)
        return position, after._replace(rates=tuple(rate * (1 + 2**-52) for rate in after.rates))

    return build


def reversed_rules(method: Any) -> Any:
    def step(self: Any, position: Any, groups: Any, metric: Any) -> Any:
        back = replace(self, rules=self.rules[::-1])
        after, groups = method(back, replace(position, children=position.children[::-1]), groups, metric)
        return replace(after, children=after.children[::-1]), groups

    return step


def without_cooldown(method: Any) -> Any:
    return lambda self, position, *args: method(self, replace(position, cooldown_counter=0), *args)


def never_cooled(method: Any) -> Any:
    """Count the cooldown down once too often."""

    def step(self: Any, position: Any, *args: Any) -> Any:
        after, groups = method(self, position, *args)
        return replace(after, cooldown_counter=max(0, after.cooldown_counter - 1)), groups

    return step


def always_best(method: Any) -> Any:
    """Keep the last metric for the best one."""

    def step(self: Any, position: Any, groups: Any, metric: float) -> Any:
        after, groups = method(self, position, groups, metric)
        return replace(after, best=metric), groups

    return step


def upside_down(method: Any) -> Any:
    return changed(base_momentum=lambda rule: rule.max_momentum, max_momentum=lambda rule: rule.base_momentum)(method)


def _line(self: Any, epoch: int, base: float) -> float:
    rise = self.end_factor - self.start_factor
    return base * (self.start_factor + rise * min(self.total_iters, epoch) / self.total_iters)


def _power(self: Any, epoch: int, base: float) -> float:
    return base * (1.0 - min(self.total_iters, epoch) / self.total_iters) ** self.power


def _wave(self: Any, epoch: int, base: float) -> float:
    return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2


RULES: dict[str, tuple[str, type, str, Wrap]] = {
    "constant: whole again one step late": (
        "constant", ours.Constant, "next_rates", changed(total_iters=lambda rule: rule.total_iters + 1)),
    "linear: off by one": ("linear", ours.Linear, "next_rates", shifted(1)),
    "linear: the closed form": ("linear", ours.Linear, "next_rates", closed(_line)),
    "linear: the end factor is lost": ("linear", ours.Linear, "next_rates", changed(end_factor=1.0)),
    "polynomial: the closed form": ("polynomial", ours.Polynomial, "next_rates", closed(_power)),
    "polynomial: the power is lost": ("polynomial", ours.Polynomial, "next_rates", changed(power=1.0)),
    "exponential: decays at the first step": ("exponential", ours.Exponential, "next_rates", first_ignored),
    "exponential: the closed form": (
        "exponential", ours.Exponential, "next_rates", closed(lambda self, epoch, base: base * self.gamma**epoch)),
    "step: off by one": ("step", ours.Step, "next_rates", shifted(1)),
    "step: the closed form": (
        "step", ours.Step, "next_rates",
        closed(lambda self, epoch, base: base * self.gamma ** (epoch // self.step_size))),
    "multi-step: off by one": ("multi_step", ours.MultiStep, "next_rates", shifted(-1)),
    "multi-step: a milestone listed twice counts once": (
        "multi_step", ours.MultiStep, "next_rates", changed(milestones=lambda r: tuple(dict.fromkeys(r.milestones)))),
    "cosine: eta_min is lost": ("cosine", ours.Cosine, "next_rates", changed(eta_min=0.0)),
    "cosine: the closed form": ("cosine", ours.Cosine, "next_rates", closed(_wave)),
    "cosine: off by one": ("cosine", ours.Cosine, "next_rates", shifted(1)),
    "restarts: waves do not grow": ("cosine_restarts", ours.CosineRestarts, "step", changed(T_mult=1)),
    "restarts: eta_min is lost": ("cosine_restarts", ours.CosineRestarts, "_at", changed(eta_min=0.0)),
    "restarts: one step late": (
        "cosine_restarts", ours.CosineRestarts, "step",
        lambda step: lambda self, p, *args: step(self, replace(p, T_i=p.T_i + (p.T_cur + 1 == p.T_i)), *args)),
    "cyclic: off by one": ("cyclic", ours.Cyclic, "_height", shifted(1)),
    "cyclic: the scaling of the cycle before": (
        "cyclic", ours.Cyclic, "_scale", lambda scale: lambda self, n, epoch: scale(self, max(1, n - 1), epoch)),
    "cyclic: as long down as up": ("cyclic", ours.Cyclic, "_height", changed(step_ratio=0.5)),
    "cyclic: momentum in the direction of the rate": ("cyclic", ours.Cyclic, "next_momenta", upside_down),
    "one-cycle: lines for cosines": ("one_cycle", ours.OneCycle, "_anneal", changed(anneal_strategy="linear")),
    "one-cycle: phases end one step late": (
        "one_cycle", ours.OneCycle, "_phase", changed(ends=lambda rule: tuple(end + 1 for end in rule.ends))),
    "one-cycle: ends where it began": (
        "one_cycle", ours.OneCycle, "next_rates", changed(min_lr=lambda rule: rule.initial_lr)),
    "one-cycle: momentum in the direction of the rate": ("one_cycle", ours.OneCycle, "next_momenta", upside_down),
    "one-cycle: momentum stands still": ("one_cycle", ours.OneCycle, "next_momenta", changed(cycle_momentum=False)),
    "lambda: off by one": ("lambda", ours.Lambda, "next_rates", shifted(-1)),
    "lambda: multiplies the rate before": (
        "lambda", ours.Lambda, "next_rates",
        lambda method: lambda self, epoch, groups, bases, *, first: method(
            self, epoch, groups, groups.rates, first=first)),
    "multiplicative: multiplies at the first step": (
        "multiplicative", ours.Multiplicative, "next_rates", first_ignored),
    "plateau: the other threshold mode": (
        "plateau", ours.Plateau, "_better",
        changed(threshold_mode=lambda rule: "abs" if rule.threshold_mode == "rel" else "rel")),
    "plateau: the other direction": (
        "plateau", ours.Plateau, "_better", changed(mode=lambda rule: "max" if rule.mode == "min" else "min")),
    "plateau: no threshold": ("plateau", ours.Plateau, "_better", changed(threshold=0.0)),
    "plateau: one metric less of patience": (
        "plateau", ours.Plateau, "step", changed(patience=lambda rule: rule.patience - 1)),
    "plateau: no cooldown": ("plateau", ours.Plateau, "step", changed(cooldown=0)),
    "plateau: the cooldown ends early": ("plateau", ours.Plateau, "step", never_cooled),
    "plateau: the last metric for the best": ("plateau", ours.Plateau, "step", always_best),
    "plateau: below the lowest rate": ("plateau", ours.Plateau, "_lowered", changed(min_lr=0.0)),
    "plateau: eps is ignored": ("plateau", ours.Plateau, "_lowered", changed(eps=0.0)),
    "sequential: the warm-up ends one step late": ("sequential", ours.Sequential, "step", late),
    "sequential: a rule goes on from the rate before": ("sequential", Single, "restart", went_on),
    "sequential: starts one unit in the last place off": ("sequential", ours.Sequential, "build", not_reset),
    "chained: the other order": ("chained", ours.Chained, "step", reversed_rules),
    "beside: a metric moves nothing": (
        "beside", ours.Plateau, "step", lambda step: lambda self, position, groups, metric: (position, groups)),
}  # fmt: skip
"""Fault to the kind of schedule that shows it, and the method that it replaces."""


@pytest.mark.parametrize("fault", RULES)
def test_a_fault_of_a_rule_is_found(fault: str) -> None:
    kind, owner, name, wrap = RULES[fault]
    with patch.object(owner, name, wrap(getattr(owner, name))):
        assert any(pair(kind, seed, STEPS).run() is not None for seed in range(12))


def lost(group: str, name: str, value: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], None]:
    """Return an edit of a state that puts something else in the place of a value."""

    def edit(state: dict[str, Any]) -> None:
        state[group][name] = value(state)

    return edit


def rounded(state: dict[str, Any]) -> None:
    state["groups"]["rates"] = [float(f"{rate:.15g}") for rate in state["groups"]["rates"]]


STATES: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "the position is one step on": ("cosine", lost("position", "epoch", lambda s: s["position"]["epoch"] + 1)),
    "the position is the start": ("step", lost("position", "epoch", lambda s: 0)),
    "the rate has fifteen digits": ("exponential", rounded),
    "the rate is the first one": ("linear", lost("groups", "rates", lambda s: s["groups"]["initial"])),
    "the rates to start from are those now": (
        "cosine_restarts", lost("position", "bases", lambda s: s["groups"]["rates"])),
    "the wave begins again": ("cosine_restarts", lost("position", "T_cur", lambda s: 0)),
    "the length of the wave is the first one": (
        "cosine_restarts", lost("position", "T_i", lambda s: s["rule"]["T_0"])),
    "the best metric is lost": (
        "plateau", lost("position", "best", lambda s: "inf" if s["rule"]["mode"] == "min" else "-inf")),
    "the bad metrics are forgotten": ("plateau", lost("position", "num_bad_epochs", lambda s: 0)),
    "the cooldown is forgotten": ("plateau", lost("position", "cooldown_counter", lambda s: 0)),
    "a sequence begins again": ("sequential", lost("position", "epoch", lambda s: 0)),
    "the momentum is that of the start": ("one_cycle", lost("groups", "momenta", lambda s: [0.95] * 9)),
}  # fmt: skip
"""Fault of a resume to the kind of schedule that shows it, and what it does to the state."""


@pytest.mark.parametrize("fault", STATES)
def test_a_fault_of_a_resume_is_found(fault: str) -> None:
    kind, edit = STATES[fault]
    found = []
    for seed in range(12):
        one = pair(kind, seed, STEPS)
        middle = 1 + 61 * seed % (STEPS - 1)
        one.run(last=middle)
        state = one.schedule.state()
        edit(state)
        if state["groups"]["momenta"] is not None:
            state["groups"]["momenta"] = state["groups"]["momenta"][: len(one.rates)]
        elif fault == "the momentum is that of the start":
            continue
        found.append(run(one.scheduler, one.optimizer, ours.Schedule.restore(state), one.metrics, middle))
    assert any(step is not None for step in found)


READS: dict[str, tuple[str, Any, str, Wrap]] = {
    "one step on": (
        "cosine", read, "_position", lambda f: lambda *a: replace(p := f(*a), epoch=p.epoch + 1)),
    "the rates of the groups for those of the start": (
        "cosine_restarts", read, "_position", lambda f: lambda s, r: replace(f(s, r), bases=tuple(s._last_lr))),
    "initial rates for the rates now": (
        "exponential", read, "_groups", lambda f: lambda o, **k: f(o, **k)._replace(
            rates=tuple(group["initial_lr"] for group in o.param_groups))),
    "a sequence at its start": (
        "sequential", read, "_tree", lambda f: lambda *a: (lambda rule, p: (rule, replace(p, epoch=0)))(*f(*a))),
    "the counter of bad metrics": (
        "plateau", read, "_position", lambda f: lambda *a: replace(f(*a), num_bad_epochs=0)),
    "the other table": (
        "lambda", read, "_table", lambda f: lambda *a: (lambda t: (*t[1:], t[-1]))(f(*a))),
}  # fmt: skip


@pytest.mark.parametrize("fault", READS)
def test_a_fault_of_the_reader_is_found(fault: str) -> None:
    kind, owner, name, wrap = READS[fault]
    found = []
    for seed in range(12):
        one = pair(kind, seed, STEPS)
        middle = 1 + 61 * seed % (STEPS - 1)
        one.run(last=middle)
        with patch.object(owner, name, wrap(getattr(owner, name))):
            schedule = from_torch(one.scheduler, horizon=STEPS)
        found.append(run(one.scheduler, one.optimizer, schedule, one.metrics, middle))
    assert any(step is not None for step in found)


WRITES: dict[str, tuple[str, str, Wrap]] = {
    "the groups keep their rates": ("exponential", "_set_groups", lambda f: lambda *a: None),
    "the scheduler stays at its start": ("step", "_place", lambda f: lambda *a: None),
    "the parts of a sequence stay at their start": (
        "sequential", "_place", lambda f: lambda s, rule, p: setattr(s, "last_epoch", getattr(p, "epoch", 0))),
    "another momentum": ("one_cycle", "_set_groups", lambda f: lambda g, o: f(g._replace(momenta=None), o)),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRITES)
def test_a_fault_of_the_writer_is_found(fault: str) -> None:
    kind, name, wrap = WRITES[fault]
    found = []
    for seed in range(12):
        one = pair(kind, seed, STEPS)
        middle = 1 + 61 * seed % (STEPS - 1)
        one.run(last=middle)
        optimizer = one.fresh()
        with patch.object(write, name, wrap(getattr(write, name))):
            written = write.to_torch(one.schedule, optimizer)
        found.append(run(written, optimizer, copied(one.schedule), one.metrics, middle))
    assert any(step is not None for step in found)

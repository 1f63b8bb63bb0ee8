"""What cannot be a schedule is refused in one sentence that names the value and what to do."""

import json
import math
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler as lr

from parity import schedules as ours
from parity.errors import ScheduleError, StateError, UnknownNameError
from parity.schedules import Schedule
from tests.schedules.draws import DRAWS, optimizer_of, ours_driven, pair
from torch_side.schedules import from_torch, to_torch

pytestmark = pytest.mark.breaks_first

WAVE = ours.Cosine(T_max=10)

CONSTANTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: ours.Constant(factor=1.5), r"constant\.factor: must be in \[0, 1\], got 1\.5"),
    (lambda: ours.Linear(start_factor=0.0), r"linear\.start_factor: must be in \(0, 1\], got 0\.0"),
    (lambda: ours.Linear(end_factor=-0.1), r"linear\.end_factor: must be in \[0, 1\], got -0\.1"),
    (lambda: ours.Exponential(gamma=math.nan), r"exponential\.gamma: must be a finite number, got nan"),
    (lambda: ours.Exponential(gamma="0.9"), r"exponential\.gamma: must be a finite number, got '0\.9'"),  # type: ignore[arg-type]
    (lambda: ours.Step(step_size=0), r"step\.step_size: must not be 0"),
    (lambda: ours.MultiStep(milestones=[1]), r"multi_step\.milestones: must be "),  # type: ignore[arg-type]
    (lambda: ours.Cosine(T_max=0), r"cosine\.T_max: must not be 0"),
    (lambda: ours.Cosine(T_max=True), r"cosine\.T_max: must be a finite number, got True"),
    (lambda: ours.CosineRestarts(T_0=2.5), r"cosine_restarts\.T_0: must be an integer of at least 1, got 2\.5"),  # type: ignore[arg-type]
    (lambda: ours.Cyclic.of(0.1, 1.0, 0), r"cyclic\.step_size_up: a cycle must have steps, got 0 and 0"),
    (lambda: ours.Cyclic.of(0.1, 1.0, mode="sine"), r"cyclic\.mode: must be one of triangular, .*, got 'sine'"),
    (lambda: ours.OneCycle.of(1.0, 100, pct_start=1.5), r"one_cycle\.pct_start: must be in \[0, 1\], got 1\.5"),
    (lambda: ours.OneCycle.of(1.0, 0), r"one_cycle\.total_steps: must be an integer of at least 1, got 0"),
    (lambda: ours.OneCycle.of(1.0, 9, anneal_strategy="sin"), r"one_cycle\.anneal_strategy: must be one of cos, lin"),
    (lambda: ours.OneCycle.of(1.0, 9, div_factor=0), r"one_cycle\.div_factor: divides the rate and must not be 0"),
    (lambda: ours.Plateau(factor=1.0), r"plateau\.factor: must be below 1, got 1\.0"),
    (lambda: ours.Plateau(mode="low"), r"plateau\.mode: must be one of min, max, got 'low'"),
    (lambda: ours.Lambda(tables=()), r"lambda\.tables: must be a tuple of tables, got \(\)"),
    (lambda: ours.Lambda(tables=((1.0, math.nan),)), r"lambda\.tables: the factor of step 1 must be a finite number"),
    (lambda: ours.Sequential(rules=(), milestones=()), r"sequential\.rules: must be a tuple of at least one rule"),
    (
        lambda: ours.Sequential(rules=(WAVE, WAVE), milestones=()),
        r"sequential\.milestones: must be 1 steps, got \(\)",
    ),
    (
        lambda: ours.Sequential(rules=(WAVE, ours.Plateau()), milestones=(5,)),
        r"sequential\.rules\[1\]: plateau moves by a metric, which only `Beside` can give it",
    ),
    (
        lambda: ours.Sequential(rules=(WAVE, ours.Chained(rules=(WAVE,))), milestones=(5,)),
        r"chained: has no closed form, so a sequence cannot come to it later",
    ),
    (
        lambda: ours.Chained(rules=(ours.Beside(rules=(WAVE,)),)),
        r"chained\.rules\[0\]: beside others are whole schedules",
    ),
    (lambda: Schedule(WAVE, []), r"schedule\.rates: there is no parameter group"),
    (lambda: Schedule(WAVE, [math.inf]), r"schedule\.rates: must be finite numbers, got inf"),
    (lambda: Schedule("cosine", [0.1]), r"schedule: needs a rule such as Cosine\(T_max=100\), got str"),  # type: ignore[arg-type]
    (
        lambda: Schedule(ours.Plateau(min_lr=(0.1, 0.2)), [0.5]),
        r"plateau\.min_lr: has 2 values for 1 parameter groups; give one for each",
    ),
    (
        lambda: Schedule(ours.OneCycle.of(1.0, 10, pct_start=0.1), [0.5]),
        r"one_cycle: has no next rate with these constants, nor has PyTorch's: float division by zero",
    ),
]


@pytest.mark.parametrize(("make", "message"), CONSTANTS)
def test_constants_that_cannot_be(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=f"^{message}"):
        make()


STEPS: list[tuple[ours.AnyRule, int, float | None, str]] = [
    (ours.Plateau(), 0, None, r"plateau: needs the metric of this validation: step\(metric\)"),
    (ours.Plateau(), 0, math.nan, r"plateau\.metric: is not a number \(NaN\)"),
    (ours.Plateau(), 0, "low", r"plateau\.metric: must be a number, got 'low'"),  # type: ignore[list-item]
    (ours.Beside(rules=(ours.Plateau(),)), 0, None, r"beside: needs the metric"),
    (WAVE, 0, 0.5, r"cosine: takes no metric: call step\(\) after each training step"),
    (ours.OneCycle.of(1.0, 10), 10, None, r"one_cycle\.total_steps: is 10: there is no rate for step 11"),
    (ours.Lambda(tables=((1.0, 0.5),)), 1, None, r"lambda\.tables: end at step 1, and step 2 needs a factor"),
    (ours.Constant(factor=0, total_iters=3), 2, None, r"constant: has no next rate .*: float division by zero"),
    (ours.Cyclic.of(0.1, 1.0, 1, mode="triangular2"), 2047, None, r"cyclic: has no next rate .*Numerical result out"),
]


@pytest.mark.parametrize(("rule", "before", "metric", "message"), STEPS)
def test_a_step_that_cannot_be_leaves_the_schedule_as_it_was(
    rule: ours.AnyRule, before: int, metric: float | None, message: str
) -> None:
    schedule = Schedule(rule, [0.5, 0.25])
    for _ in range(before):
        schedule.step()
    state = schedule.state()
    with pytest.raises(ScheduleError, match=f"^{message}"):
        schedule.step(metric)
    assert schedule.state() == state


class Halved(lr.ExponentialLR):
    """A scheduler of a team."""


class Stranger(lr.LRScheduler):
    """A scheduler that derives from no other."""

    def get_lr(self) -> Any:
        return [group["lr"] for group in self.optimizer.param_groups]


def with_extra(optimizer: Any) -> Any:
    scheduler: Any = lr.StepLR(optimizer, 5)
    scheduler.offset = 3
    return scheduler


def with_more_groups(optimizer: Any) -> Any:
    scheduler = lr.StepLR(optimizer, 5)
    optimizer.add_param_group({"params": [torch.zeros(1)], "initial_lr": 0.1})
    return scheduler


def with_a_tensor(optimizer: Any) -> Any:
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(0.5)
    return lr.StepLR(optimizer, 5)


def without(key: str) -> Callable[[Any], Any]:
    """Return what makes a one-cycle scheduler one of whose groups has lost a constant."""

    def make(optimizer: Any) -> Any:
        scheduler = lr.OneCycleLR(optimizer, 1.0, 20)
        del optimizer.param_groups[1][key]
        return scheduler

    return make


def twice(optimizer: Any) -> Any:
    scheduler = lr.StepLR(optimizer, 5)
    return lr.ChainedScheduler([scheduler, scheduler], optimizer)


def undefined(step: int) -> float:
    return 1 / (7 - step)


SCHEDULERS: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (
        lambda o: Halved(o, 0.5),
        ScheduleError,
        r"Halved: is a subclass of ExponentialLR and may compute other rates; convert",
    ),
    (Stranger, UnknownNameError, r"unknown scheduler 'Stranger'; "),
    (lambda o: "cosine", UnknownNameError, r"unknown scheduler 'str'; "),
    (lambda o: (), ScheduleError, r"from_torch: there is no scheduler"),
    (twice, ScheduleError, r"from_torch: a scheduler occurs twice and would be stepped twice; build one for each"),
    (
        lambda o: lr.LambdaLR(o, lambda step: 0.5),
        ScheduleError,
        r"LambdaLR: computes its factors by a Python function, of which .* horizon=LAST_STEP\) makes it",
    ),
    (
        lambda o: lr.CyclicLR(o, 0.1, 1.0, scale_fn=lambda x: 1.0),
        ScheduleError,
        r"CyclicLR: computes its factors by a Python function",
    ),
    (with_extra, ScheduleError, r"StepLR: has attributes that no schedule of PyTorch 2\.13 has: offset"),
    (
        with_more_groups,
        ScheduleError,
        r"StepLR: was built for 2 parameter groups, and its optimizer has 3; add groups",
    ),
    *(
        (without(key), ScheduleError, f"OneCycleLR: a parameter group has no {key}")
        for key in ("max_lr", "min_lr", "base_momentum", "max_momentum")
    ),
    (
        with_a_tensor,
        ScheduleError,
        r"StepLR: computes with a torch\.float32 tensor; a schedule computes with Python's",
    ),
    (
        lambda o: lr.StepLR(o, 5, gamma=np.float32(0.5)),  # type: ignore[arg-type]
        ScheduleError,
        r"StepLR: computes with a float32; a schedule computes with Python's numbers",
    ),
    (
        lambda o: (lr.StepLR(o, 5), lr.StepLR(optimizer_of([0.1]), 5)),
        ScheduleError,
        r"from_torch: the schedulers belong to several optimizers; convert those of each",
    ),
]


@pytest.mark.parametrize(("make", "error", "message"), SCHEDULERS)
def test_schedulers_that_cannot_be_read(make: Callable[[Any], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        from_torch(make(optimizer_of([0.5, 0.25])))


def test_a_function_without_a_value_names_the_step() -> None:
    scheduler = lr.LambdaLR(optimizer_of([0.5]), undefined)
    with pytest.raises(ScheduleError, match=r"LambdaLR: its function has no value at 7: ZeroDivisionError"):
        from_torch(scheduler, horizon=10)
    assert from_torch(scheduler, horizon=6).rates == (0.5 / 7,)


def test_an_unknown_scheduler_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as caught:
        from_torch(object())  # type: ignore[arg-type]
    assert set(caught.value.known) == {name for name in lr.__all__ if name != "LRScheduler"}, "every one of PyTorch's"


WRITTEN: list[tuple[ours.AnyRule, Any, str]] = [
    (WAVE, optimizer_of([0.1]), r"SGD: has 1 parameter groups, and the schedule is for 2; build it with the same"),
    (
        ours.OneCycle.of(1.0, 10),
        torch.optim.Adagrad([{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)]}]),
        r"Adagrad: has neither momentum nor betas, which the schedule moves",
    ),
    (
        ours.Sequential(rules=(ours.OneCycle.of(1.0, 10), ours.OneCycle.of(2.0, 10)), milestones=(8,)),
        optimizer_of([0.1, 0.2]),
        r"one_cycle\.initial_lr: PyTorch keeps it in the parameter groups, where another rule wrote \(0\.08, 0\.08\)",
    ),
]


@pytest.mark.parametrize(("rule", "optimizer", "message"), WRITTEN)
def test_schedules_that_torch_cannot_hold(rule: ours.AnyRule, optimizer: Any, message: str) -> None:
    with pytest.raises(ScheduleError, match=f"^{message}"):
        to_torch(Schedule(rule, [0.5, 0.25]), optimizer)


def edited(*path: Any) -> Callable[[Any], dict[str, Any]]:
    """Return a function that gives a state with one value replaced; the last of the path is the value."""

    def edit(state: Any) -> dict[str, Any]:
        state = json.loads(json.dumps(state))
        place = state
        for name in path[:-2]:
            place = place[name]
        place[path[-2]] = path[-1]
        return dict(state)

    return edit


STATES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda state: [], r"schedule: expected an object with groups, position, rule, schema; got list"),
    (lambda state: {**state, "more": 1}, r"schedule: expected an object with .*; got .*more"),
    (edited("schema", 2), r"schedule\.schema: expected 1, got 2"),
    (edited("rule", None), r"schedule\.rule: expected an object with the kind of a rule"),
    (edited("rule", "kind", "cosinus"), r"unknown rule 'cosinus'"),
    (edited("rule", "rules", 0, "T_max", 3), r"schedule\.rule\.rules\[0\]: expected an object with .*; got .*T_max"),
    (edited("rule", "rules", 1, "T_max", "3"), r"schedule\.rule\.rules\[1\]: cosine\.T_max: must be a finite number"),
    (edited("rule", "rules", 3), r"schedule\.rule: sequential\.rules: must be a tuple of at least one rule"),
    (edited("position", "epoch", 1.5), r"schedule\.position\.epoch: expected an integer of 64 bits, got 1\.5"),
    (edited("position", "children", []), r"schedule\.position\.children: expected the positions of 2 rules"),
    (
        edited("position", "children", 0, "bases", [0.5]),
        r"schedule\.position\.children\[0\]\.bases: expected one number for each of 2 parameter groups",
    ),
    (
        edited("position", "children", 0, "last", [0.5, "0.25"]),
        r"schedule\.position\.children\[0\]\.last\[1\]: expected a number, got '0\.25'",
    ),
    (edited("groups", "rates", []), r"schedule\.groups\.rates: expected the rate of at least one parameter group"),
    (edited("groups", "rates", [True, 0.5]), r"schedule\.groups\.rates\[0\]: expected a number, got True"),
    (edited("groups", {"rates": [0.5, 0.5]}), r"schedule\.groups: expected an object with initial, momenta, rates"),
]


@pytest.mark.parametrize(("edit", "message"), STATES)
def test_a_state_that_is_not_one_names_the_value(edit: Callable[[Any], Any], message: str) -> None:
    rule = ours.Sequential(rules=(ours.Linear(), WAVE), milestones=(5,))
    with pytest.raises((StateError, UnknownNameError), match=f"^{message}"):
        Schedule.restore(edit(Schedule(rule, [0.5, 0.25]).state()))


def test_rules_inside_of_each_other_have_a_bound() -> None:
    rule: dict[str, Any] = {"kind": "linear"}
    for _ in range(2000):
        rule = {"kind": "chained", "rules": [rule]}
    state = Schedule(WAVE, [0.5]).state()
    with pytest.raises(StateError, match="rules are at most 16 deep inside of each other"):
        Schedule.restore({**state, "rule": rule})


def test_a_momentum_that_is_missing_is_named() -> None:
    state = Schedule(ours.OneCycle.of(1.0, 10), [0.5]).state()
    state["groups"]["momenta"] = None
    with pytest.raises(StateError, match=r"schedule\.groups\.momenta: a rule of kind one_cycle moves the momentum"):
        Schedule.restore(state)


def test_rates_beyond_float64_survive_as_valid_json() -> None:
    schedule = Schedule(ours.Exponential(gamma=1e300), [0.5])
    for _ in range(3):
        schedule.step()
    assert schedule.rates == (math.inf,)
    assert Schedule.restore(json.loads(json.dumps(schedule.state(), allow_nan=False))).rates == (math.inf,)


VALUES: tuple[Any, ...] = (
    *(None, True, "", "inf", "nan", "cosine", [], {}, [1], [[]], {"kind": "step"}),
    *(0, 1, -1, 2, 10**400, -(10**30), 0.0, -0.5, 1e308, -1e308, 5e-324),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside of another one."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, one in items for found in [(*path, key), *places(one, (*path, key))]]


@pytest.mark.parametrize("kind", DRAWS)
def test_no_state_ends_in_another_error(kind: str) -> None:
    """Anything in the place of a value is refused, or gives a schedule that moves or says why not."""
    one = pair(kind, 1, 60)
    one.run(last=20)
    state, random, outcomes = one.schedule.state(), Random(kind), Counter[str]()
    for path in random.choices(places(state), k=150):
        broken = edited(*path, random.choice(VALUES))(state)
        try:
            schedule = Schedule.restore(broken)
            for step in range(3):
                ours_driven(schedule, step, 0.5)
            json.dumps(schedule.state(), allow_nan=False)
            outcomes["moves"] += 1
        except (StateError, UnknownNameError, ScheduleError) as error:
            outcomes["refused"] += 1
            outcomes["long"] += len(str(error)) > 1000
    assert outcomes["refused"] > 40
    assert not outcomes["long"]

"""Schedules that are built or moved in ways that are rare: equal milestones, a last epoch, epochs by hand, edited
rates."""

import doctest
import functools
import json
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler as lr

from jax_side import schedules as jax_schedules
from parity import schedules as ours
from parity.errors import ScheduleError
from parity.schedules import Schedule
from tests.schedules.draws import SINGLE, driven, optimizer_of, run
from torch_side.schedules import from_torch, read, to_torch, write

STEPS = 150
AFTER = [0.0] * STEPS


def test_sequences_with_milestones_at_zero_equal_and_below() -> None:
    others = [kind for kind in SINGLE if kind not in ("cyclic", "one_cycle")]
    for seed in range(40):
        random = Random(seed)
        parts = [SINGLE[random.choice(others)](random, 2, STEPS) for _ in range(random.randrange(2, 5))]
        at = sorted(random.choice([0, 0, 5, 5, -3, 20, random.randrange(STEPS)]) for _ in parts[1:])
        optimizer = optimizer_of([0.5, 0.3])
        scheduler = lr.SequentialLR(optimizer, [part.build(optimizer) for part in parts], at)
        rule = ours.Sequential(rules=tuple(part.rule for part in parts), milestones=tuple(at))
        assert run(scheduler, optimizer, Schedule(rule, [0.5, 0.3]), AFTER) is None, (seed, at)


BUILT: dict[str, Callable[[Any, int], Any]] = {
    "ConstantLR": lambda o, last: lr.ConstantLR(o, 0.3, 33, last_epoch=last),
    "LinearLR": lambda o, last: lr.LinearLR(o, total_iters=40, last_epoch=last),
    "PolynomialLR": lambda o, last: lr.PolynomialLR(o, 50, 2.0, last_epoch=last),
    "ExponentialLR": lambda o, last: lr.ExponentialLR(o, 0.9, last_epoch=last),
    "StepLR": lambda o, last: lr.StepLR(o, 7, last_epoch=last),
    "MultiStepLR": lambda o, last: lr.MultiStepLR(o, [4, 9, 33], last_epoch=last),
    "CosineAnnealingLR": lambda o, last: lr.CosineAnnealingLR(o, 20, last_epoch=last),
    "CosineAnnealingWarmRestarts": lambda o, last: lr.CosineAnnealingWarmRestarts(o, 9, 2, last_epoch=last),
    "LambdaLR": lambda o, last: lr.LambdaLR(o, lambda step: 1 / (step + 1), last_epoch=last),
}


@pytest.mark.parametrize("name", BUILT)
def test_a_scheduler_that_was_built_with_a_last_epoch(name: str) -> None:
    """As a run is resumed that kept the rates of its optimizer and no scheduler."""
    for last in (0, 8, 19, 20, 29):
        optimizer = optimizer_of([0.5, 0.3])
        for group in optimizer.param_groups:
            group["initial_lr"] = 2 * group["lr"]
        scheduler = BUILT[name](optimizer, last)
        schedule = from_torch(scheduler, horizon=2 * STEPS)
        assert run(scheduler, optimizer, schedule, AFTER) is None, last


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
@pytest.mark.parametrize("name", BUILT)
def test_a_scheduler_that_was_put_to_an_epoch_and_whose_rates_were_edited(name: str) -> None:
    for epoch in (3, 7.5 if name == "CosineAnnealingWarmRestarts" else 20, 33):
        optimizer = optimizer_of([0.5, 0.3])
        scheduler = BUILT[name](optimizer, -1)
        scheduler.step()
        scheduler.step(epoch)
        optimizer.param_groups[0]["lr"] *= 0.77
        schedule = from_torch(scheduler, horizon=2 * STEPS)
        assert Schedule.restore(schedule.state()).state() == schedule.state()
        fresh = optimizer_of([0.1, 0.1])
        assert run(to_torch(schedule, fresh), fresh, from_torch(scheduler, horizon=2 * STEPS), AFTER) is None
        assert run(scheduler, optimizer, schedule, AFTER) is None, epoch


FRACTIONS: dict[str, Callable[[Any], Any]] = {
    **{name: functools.partial(lambda build, o: build(o, -1), build) for name, build in BUILT.items()},
    "CyclicLR": lambda o: lr.CyclicLR(o, 0.01, 0.1, 12, mode="exp_range", gamma=0.99, cycle_momentum=False),
    "CyclicLR, scaled by cycle": lambda o: lr.CyclicLR(o, 0.01, 0.1, 9, mode="triangular2", cycle_momentum=False),
    "CyclicLR, a function of the cycle": lambda o: lr.CyclicLR(
        o, 0.01, 0.1, 9, scale_fn=lambda cycle: 1 / cycle, cycle_momentum=False
    ),
    "OneCycleLR": lambda o: lr.OneCycleLR(o, 0.5, 200, cycle_momentum=False),
    "ReduceLROnPlateau": lambda o: lr.ReduceLROnPlateau(o, patience=3),
    "SequentialLR": lambda o: lr.SequentialLR(o, [lr.LinearLR(o, 0.1, total_iters=20), lr.StepLR(o, 7)], [20]),
    "ChainedScheduler": lambda o: lr.ChainedScheduler(
        [lr.LinearLR(o, 0.1, total_iters=40), lr.ExponentialLR(o, 0.9)]
    ),
}
NOT_BETWEEN = {"LambdaLR"}
"""What has no value between two steps once its function is a table."""


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
@pytest.mark.parametrize("name", [name for name in FRACTIONS if name not in NOT_BETWEEN])
@pytest.mark.parametrize("epoch", [0.5, 7.5, 12.25, 33.0, np.float64(19.75)])
def test_a_scheduler_that_was_put_to_a_fraction_of_an_epoch(name: str, epoch: float) -> None:
    """Each goes on from there with PyTorch's rates, to the bit; of one that is made of others, the first part."""
    optimizer = optimizer_of([0.5, 0.3])
    scheduler = FRACTIONS[name](optimizer)
    for _ in range(2):
        driven(scheduler, 0, 1.0)
    parts = getattr(scheduler, "_schedulers", [scheduler])
    parts[0].step(*([1.0] if name == "ReduceLROnPlateau" else []), epoch)
    schedule = from_torch(scheduler, horizon=2 * STEPS)
    assert name == "CosineAnnealingWarmRestarts" or schedule.whole == (epoch == 33.0)
    again = Schedule.restore(json.loads(json.dumps(schedule.state())))
    assert again.state() == schedule.state()
    fresh = optimizer_of([0.1, 0.1])
    written = to_torch(schedule, fresh)
    mine, theirs = ({k: v for k, v in one.state_dict().items() if k[0] != "_"} for one in (written, scheduler))
    assert mine == theirs
    assert run(written, fresh, from_torch(scheduler, horizon=2 * STEPS), AFTER) is None
    assert run(scheduler, optimizer, again, AFTER) is None


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
@pytest.mark.parametrize(
    ("build", "epoch", "message"),
    [
        (BUILT["LambdaLR"], 7.5, "LambdaLR: was put to the step 7.5 by .*, between two factors of its table"),
        (lambda o, _: lr.MultiplicativeLR(o, lambda step: 0.9), 0.5, "MultiplicativeLR: was put to the step 0.5"),
        (
            lambda o, _: lr.CyclicLR(
                o, 0.1, 1, 9, scale_fn=lambda t: 0.9, scale_mode="iterations", cycle_momentum=False
            ),
            2.5,
            "CyclicLR: was put to the step 2.5",
        ),
        (lambda o, _: lr.ExponentialLR(o, 0.9), float("inf"), "ExponentialLR: was put to the step inf"),
        (
            lambda o, _: lr.ExponentialLR(o, 0.9),
            torch.tensor(7.5),
            "ExponentialLR: computes with a torch.float32 tensor",
        ),
    ],
)
def test_a_step_that_no_rule_has_is_refused(build: Any, epoch: float, message: str) -> None:
    scheduler = build(optimizer_of([0.5]), -1)
    scheduler.step(epoch)
    with pytest.raises(ScheduleError, match=message):
        from_torch(scheduler, horizon=STEPS)


def test_a_scheduler_of_numpy_constants_is_one_of_plain_numbers() -> None:
    """As when they come from a sweep: float64 and integers of NumPy compute the same bits."""
    optimizer = optimizer_of([0.5])
    scheduler = lr.CosineAnnealingLR(optimizer, np.int64(37), np.float64(0.01))
    schedule = from_torch(scheduler)
    assert [type(value) for value in (schedule.rule.T_max, schedule.rule.eta_min)] == [int, float]  # type: ignore[attr-defined]
    assert run(scheduler, optimizer, schedule, AFTER) is None


def test_betas_are_moved_and_their_second_stays() -> None:
    optimizer = torch.optim.AdamW([torch.zeros(1)], lr=0.1, betas=(0.5, 0.77))
    schedule = Schedule(ours.OneCycle.of(1.0, 50), [0.1])
    for _ in range(7):
        schedule.step()
    to_torch(schedule, optimizer)
    assert schedule.momenta is not None
    assert optimizer.param_groups[0]["betas"] == (schedule.momenta[0], 0.77)


def test_take_gives_what_single_steps_give_and_leaves_what_a_metric_moves() -> None:
    rules = (ours.OneCycle.of((0.5, 0.2), 100), ours.Plateau(), ours.Beside(rules=(ours.Linear(), ours.Plateau())))
    for rule in rules:
        chunk, single = Schedule(rule, [0.1, 0.2]), Schedule(rule, [0.1, 0.2])
        moves = chunk.take(30)
        for number in range(30):
            assert tuple(moves.rates[number].tolist()) == single.rates
            assert single.momenta is None or tuple(moves.momenta[number].tolist()) == single.momenta  # type: ignore[index]
            if rule.kind != "plateau":
                single.step()
        assert chunk.state() == single.state()
        assert chunk.take(0).rates.shape == (0, 2)


@pytest.mark.parametrize("kind", SINGLE)
def test_a_warm_up_before_each(kind: str) -> None:
    for seed in range(4):
        part = SINGLE[kind](Random(seed), 2, 3 * STEPS)
        for steps in (1, 20):
            optimizer = optimizer_of([0.5, 0.3])
            warm = lr.LinearLR(optimizer, 0.1, total_iters=steps)
            scheduler = lr.SequentialLR(optimizer, [warm, part.build(optimizer)], [steps])
            rules = (ours.Linear(start_factor=0.1, total_iters=steps), part.rule)
            schedule = Schedule(ours.Sequential(rules=rules, milestones=(steps,)), [0.5, 0.3])
            assert run(scheduler, optimizer, schedule, AFTER) is None


@pytest.mark.parametrize("module", [read, write, jax_schedules])
def test_the_examples_of_the_sides_are_true(module: Any) -> None:
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted >= 2

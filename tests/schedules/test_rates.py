"""Rates and momenta are those of PyTorch's own schedulers to the last bit, also resumed in the middle of a run."""

import json
from collections import Counter
from typing import Any

import pytest
import torch

from parity.schedules import Schedule
from tests.schedules.draws import DRAWS, Pair, optimizer_of, pair, run, seen
from torch_side.schedules import from_torch, to_torch

STEPS, SEEDS = 400, 12
each_kind = pytest.mark.parametrize("kind", DRAWS)


@pytest.mark.breaks_first
@each_kind
def test_rates_and_momenta_are_those_of_torch(kind: str) -> None:
    """With odd constants, one to three groups, and metrics that are infinite at times."""
    assert {seed: pair(kind, seed, STEPS).run() for seed in range(SEEDS)} == dict.fromkeys(range(SEEDS))


def middles(kind: str) -> list[tuple[Pair, int]]:
    """Return schedules in the middle of their runs."""
    found = []
    for seed in range(100, 100 + SEEDS // 2):
        one = pair(kind, seed, STEPS)
        middle = 1 + 61 * seed % (STEPS - 1)
        assert one.run(last=middle) is None
        found.append((one, middle))
    return found


def copied(schedule: Schedule) -> Schedule:
    return Schedule.restore(json.loads(json.dumps(schedule.state(), allow_nan=False)))


@each_kind
def test_a_schedule_resumes_from_its_json(kind: str) -> None:
    for one, middle in middles(kind):
        again = copied(one.schedule)
        assert again.state() == one.schedule.state()
        assert run(one.scheduler, one.optimizer, again, one.metrics, middle) is None


@each_kind
def test_a_scheduler_of_torch_goes_on_as_a_schedule(kind: str) -> None:
    """Also one that was restored from a state_dict, as a resumed PyTorch run is."""
    for one, middle in middles(kind):
        optimizer = optimizer_of(one.rates, type(one.optimizer))
        scheduler = one.draw.build(optimizer)
        optimizer.load_state_dict(one.optimizer.state_dict())
        pairs = (
            ((scheduler, one.scheduler),)
            if not isinstance(scheduler, tuple)
            else zip(scheduler, one.scheduler, strict=True)
        )
        for mine, theirs in pairs:
            mine.load_state_dict(theirs.state_dict())
        read = copied(from_torch(scheduler, horizon=STEPS))
        assert read.state() == from_torch(one.scheduler, horizon=STEPS).state()
        assert run(one.scheduler, one.optimizer, read, one.metrics, middle) is None


@each_kind
def test_a_schedule_goes_on_as_a_scheduler_of_torch(kind: str) -> None:
    for one, middle in middles(kind):
        for source in (one.schedule, from_torch(one.scheduler, horizon=STEPS)):
            optimizer = one.fresh()
            written = to_torch(source, optimizer)
            assert states(written) == states(one.scheduler)
            assert groups(optimizer) == groups(one.optimizer)
            assert from_torch(written).state()["position"] == source.state()["position"]
            assert run(written, optimizer, copied(source), one.metrics, middle) is None
        momentum = one.schedule.rule.momentum
        assert one.run(middle) is None
        assert seen(optimizer, momentum=momentum) == seen(one.optimizer, momentum=momentum)


def states(scheduler: Any) -> Any:
    """Return the states that PyTorch would save, without the unused mode of a custom scaling."""
    if isinstance(scheduler, tuple):
        return [states(one) for one in scheduler]
    return plain(scheduler.state_dict(), getattr(scheduler, "_scale_fn_custom", None) is not None)


def plain(value: Any, custom: bool = False) -> Any:
    if isinstance(value, dict) and not isinstance(value, Counter):
        left = {"mode"} if custom else {"_scale_fn_ref"}
        return {key: plain(one) for key, one in value.items() if key not in left}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [{key: one for key, one in group.items() if key != "params"} for group in optimizer.param_groups]


@pytest.mark.soak
@each_kind
def test_a_hundred_thousand_steps_are_those_of_torch(kind: str) -> None:
    """Resumed twice on the way, through JSON and through PyTorch."""
    steps = 100_000
    for seed in range(200, 204):
        one = pair(kind, seed, steps)
        assert one.run(last=33_333) is None
        one.schedule = copied(one.schedule)
        assert one.run(33_333, 66_666) is None
        one.schedule = copied(from_torch(one.scheduler, horizon=steps))
        assert one.run(66_666) is None

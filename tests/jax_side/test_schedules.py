"""The traced schedule: the rates of the host, rounded once, driving Optax's own transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_side.schedules import traced
from parity.errors import ScheduleError
from parity.schedules import Cosine, OneCycle, Plateau, Schedule
from tests.schedules.draws import SINGLE, pair


@pytest.mark.parametrize("kind", SINGLE)
def test_rates_are_those_of_the_host_to_the_bit_in_float64_and_rounded_once_in_float32(kind: str) -> None:
    schedule = pair(kind, 0, 300).schedule
    before = schedule.state()
    table = traced(schedule, 300)
    assert schedule.state() == before
    expected = schedule.take(300).rates[:, 0]
    np.testing.assert_array_equal(np.asarray(table(jnp.arange(300))), expected.astype(np.float32))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(np.asarray(table(jnp.arange(300))), expected)


def test_it_drives_an_optimizer_of_optax_in_a_compiled_loop() -> None:
    """The update of plain SGD by a gradient of one is the rate."""
    schedule = Schedule(OneCycle.of(0.5, 40), [0.1])
    optimizer = optax.sgd(traced(schedule, 40))
    state = optimizer.init(jnp.zeros(()))
    _, updates = jax.lax.scan(lambda s, g: optimizer.update(g, s)[::-1], state, jnp.ones(60))
    rates = schedule.take(40).rates[:, 0].astype(np.float32)
    np.testing.assert_array_equal(np.asarray(-updates), np.concatenate([rates, np.full(20, rates[-1])]))


def test_the_momentum_of_a_cycle_is_there_too() -> None:
    schedule = Schedule(OneCycle.of((0.5, 0.25), 40, max_momentum=(0.9, 0.8)), [0.1, 0.1])
    momenta = np.asarray(traced(schedule, 40, group=1, momentum=True)(jnp.arange(40)))
    moves = schedule.take(40).momenta
    assert moves is not None
    np.testing.assert_array_equal(momenta, moves[:, 1].astype(np.float32))


def test_what_a_count_cannot_give_is_refused() -> None:
    wave = Schedule(Cosine(T_max=10), [0.5])
    for make, message in (
        (lambda: traced(Schedule(Plateau(), [0.5]), 10), "plateau: moves by a metric, which a count does not give"),
        (lambda: traced(wave, 10, group=1), "traced: there is no group 1; the schedule has 1"),
        (lambda: traced(wave, 0), "traced: steps must be at least 1, got 0"),
        (lambda: traced(wave, 10, momentum=True), "cosine: moves no momentum"),
        (lambda: traced(Schedule(OneCycle.of(1.0, 10), [0.5]), 20), "one_cycle.total_steps: is 10"),
    ):
        with pytest.raises(ScheduleError, match=message):
            make()

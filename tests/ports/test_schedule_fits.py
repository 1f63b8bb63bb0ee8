"""Schedules by their families: what is told of the rates of a few updates, and what is not."""

import numpy as np
import pytest

from parity.checks.proving.nadam_forms import nadam_cause, nadam_kind, nadam_parts
from parity.checks.proving.schedule_fits import fitted_schedule, unlike_schedules
from parity.checks.proving.update_causes import update_cause
from tests.ports.optimizer_rules import made
from tests.ports.small_walks import walk_of
from tests.ports.update_faults import cosine, each, poly, restarts, stepped, warm, warm_cosine


def rooted(shift):  # type: ignore[no-untyped-def]
    return lambda at: 0.004 * min(at / 5, (5 / max(at - shift, 1)) ** 0.5)


def triangle(up, down):  # type: ignore[no-untyped-def]
    def rate(at):  # type: ignore[no-untyped-def]
        n = (at - 1) % (up + down)
        return 0.001 + 0.006 * (n / up if n <= up else 1 - (n - up) / down)

    return rate


def held(rise, stays, falls):  # type: ignore[no-untyped-def]
    """Return a rise, a constant rate and a fall along a cosine."""
    return lambda at: (
        0.01 * min(at / rise, 1.0) * (1 + np.cos(np.pi * np.clip((at - rise - stays) / falls, 0, 1))) / 2
    )


def curved(rise):  # type: ignore[no-untyped-def]
    return lambda at: (0.001 + 0.0045 * (1 - np.cos(np.pi * (at - 1) / rise)) if at - 1 <= rise else
                       cosine(9)(at - rise))  # fmt: skip


def rates(function, count=12):  # type: ignore[no-untyped-def]
    return [function(at) for at in range(1, count + 1)]


@pytest.mark.parametrize(("one", "two", "said"), [
    (cosine(10), cosine(12), "a cosine: over 10 updates here; over 12 updates there"),
    (cosine(10), cosine(10, 0.001), "a cosine: no floor here; a floor of 0.001 there"),
    (cosine(10), cosine(10, shift=1), "a cosine: over 10 updates here; over 10 updates, counted from 1 there"),
    (restarts(3, 2), restarts(3, 1), "a cosine with restarts: restarts after 3 updates, 2 times as long each here; "
                                     "restarts every 3 updates there"),
    (stepped(3, 0.1), stepped(4, 0.1), "steps: at update 4, 7, 10 here; at update 5, 9 there"),
    (each(0.9), each(0.95), "an exponential: times 0.9 each here; times 0.95 each there"),
    (warm(4), warm(4, 0), "a constant rate: a linear warm-up of 3 updates from 0.0025, +0.0025 each here; "
                          "a linear warm-up of 4 updates from 0, +0.0025 each there"),
    (rooted(0), rooted(1), "one over a root: a linear warm-up of 4 updates from 0.0008, +0.0008 each, of the update "
                           "+0 here; a linear warm-up of 5 updates from 0.0008, +0.0008 each, of the update -1"),
    (poly(1.0), poly(2.0, 16), "a line, from 0.01, -0.001 at each update here; a power of 2, from 0.01, over 16 up"),
    (warm_cosine(16), warm_cosine(12), "a cosine: over 13 updates here; over 9 updates there"),
    (triangle(3, 5), triangle(3, 3), "straight pieces: +0.002 each up to update 4, -0.0012 each up to update 9, then "
                                     "+0.002 each here; +0.002 each up to update 4, -0.002 each up to update 7, "),
    (lambda at: 0.01 * min(at / 3, 1, max(0, (13 - at) / 6)), lambda at: 0.01 * min(at / 3, 1, max(0, (14 - at) / 6)),
     "straight pieces: +0.00333333 each up to update 3, the same up to update 7, then -0.00166667 each here; "
     "+0.00333333 each up to update 3, the same up to update 8, then -0.00166667 each there"),
    (held(3, 3, 12), held(3, 2, 12), "a cosine: 0.01 for 4 updates here; 0.01 for 3 updates there"),
    (curved(4), curved(3), "a cosine: a rise by a cosine over 4 updates from 0.001 here; a rise by a cosine"),
    (cosine(10), cosine(10, top=0.02), ""),
    (cosine(200), cosine(199), "a cosine: over 200 updates here; over 199 updates there"),
    (cosine(250, 0.001), cosine(249, 0.001), "a cosine: over 250 updates here; over 249 updates there"),
    (cosine(1000), cosine(1000, shift=1), "a cosine: over 1000 updates here; over 1000 updates, counted from 1"),
    (warm_cosine(300), warm_cosine(299), "a cosine: over 297 updates here; over 296 updates there"),
    (poly(2.0, 200), poly(2.0, 199), "a power of 2: over 200 updates here; over 199 updates there"),
    (cosine(1000), cosine(1000, top=0.02), ""),
])  # fmt: skip
def test_two_schedules_differ_in_what_their_numbers_say(one, two, said):
    found = unlike_schedules(rates(one), rates(two))
    assert found.startswith(said) if said else not found


def test_rates_of_no_family_are_told_by_none():
    drawn = np.random.default_rng(3).random(12)
    assert fitted_schedule(list(drawn)) is None
    assert unlike_schedules(list(drawn), rates(cosine(10))) == ""


@pytest.mark.parametrize("function", [
    lambda at: 0.01 * (0.5 if at in (5, 6) else 1.0 - 0.01 * at), lambda at: 0.001 * (at % 2 + 1) + 1e-4 * at,
    lambda at: 0.01 * max(1 - at / 4.5, 0.2),
])  # fmt: skip
def test_two_bends_side_by_side_or_many_are_no_straight_pieces(function):
    assert fitted_schedule(rates(function)) is None


@pytest.mark.parametrize("curve", [
    lambda n: 1 - (n / 900) ** 1.7, lambda n: np.exp(-n / 300) + 0.1, lambda n: 1 / np.cosh(n / 300),
    lambda n: 1 + np.cos(n / 300.7),
])  # fmt: skip
def test_exact_rates_of_another_curve_are_no_long_schedule(curve):
    assert fitted_schedule([0.01 * curve(n) for n in range(12)]) is None


def test_a_few_rates_or_a_long_schedule_show_no_length():
    assert fitted_schedule(rates(cosine(10), 4)) is None
    assert fitted_schedule(rates(cosine(5000))) is None
    rounded = np.float32(rates(cosine(2000))).astype(np.float64)
    assert fitted_schedule(list(rounded)) is None


@pytest.mark.parametrize(("kind", "settings"), [
    ("nadam", {}), ("lion", {"decay": 0.1, "clip": ("norm", 0.2)}), ("rmsprop", {"eps": 1e-4}),
    ("adam", {"decay": 0.1, "clip": ("norm", 0.2)}), ("momentum", {"nesterov": True}),
    ("sgd", {"ema": 0.5, "every": 3, "sets": True}),
])  # fmt: skip
def test_a_schedule_is_told_whatever_the_optimizer_is(kind, settings):
    sides = [made(kind, **settings, rate=cosine(length)) for length in (16, 12)]
    walk = walk_of(sides[0][0], sides[1][0], (sides[0][1], sides[1][1]), 12)
    assert update_cause(walk).endswith("a cosine: over 16 updates here; over 12 updates there")


def test_a_long_schedule_is_told_by_the_rates_that_runs_show():
    sides = [made("adam", rate=cosine(length)) for length in (400, 399)]
    walk = walk_of(sides[0][0], sides[1][0], (sides[0][1], sides[1][1]), 12)
    said = update_cause(walk)
    assert said.startswith("schedule: the rates part at update 2: 0.00999984501427 there, 0.00999984578")
    assert said.endswith("a cosine: over 400 updates here; over 399 updates there")


def test_a_schedule_that_parts_where_both_are_set_from_an_average_is_told():
    sides = [made("adam", rate=rooted(shift), ema=0.5, every=3, sets=True) for shift in (0, 1)]
    walk = walk_of(sides[0][0], sides[1][0], (sides[0][1], sides[1][1]), 12)
    said = update_cause(walk)
    assert said.startswith("schedule: the rates part at update 6")
    assert "of the update +0 here" in said
    assert "of the update -1 there" in said


@pytest.mark.parametrize("kind", ["constant", "present", "powers", "same product", "whole count", "late count"])
def test_momenta_of_nadam_are_told_by_the_share_of_the_gradient(kind):
    def ratios(name):  # type: ignore[no-untyped-def]
        made = {at: nadam_parts(name, 0.9, at) for at in range(1, 6)}
        return {at: one[1] / one[0] for at, one in made.items()}

    assert nadam_kind(0.9, ratios(kind)) == kind
    assert nadam_cause(0.9, ratios("scheduled"), ratios(kind)).startswith("Nesterov (NAdam): the momenta of this")
    assert nadam_cause(0.9, ratios(kind), ratios(kind)) == ""
    assert nadam_cause(0.9, {2: 1.2, 3: 1.3}, ratios(kind)) == ""

"""A sum of squares that begins at a number in one trainer, where the other makes it at its first update."""

import numpy as np
import pytest

from parity.checks.proving.update_causes import update_cause
from tests.ports.small_walks import MODEL, walk_of


def rms(start, slot="sq", kept=0.9, new=0.1):
    """Return a rule that divides by the root of squares, which are not there before the first update."""

    def rule(state, grads, at):
        for leaf, g in grads.items():
            held = state.setdefault(slot, {}).get(leaf, np.full_like(MODEL[leaf], start))
            state[slot][leaf] = kept * held + new * g * g
            state["params"][leaf] = state["params"][leaf] - 0.01 * g / (np.sqrt(state[slot][leaf]) + 1e-3)

    return rule


def begun(start):
    return lambda params: {"nu": {leaf: np.full_like(value, start) for leaf, value in params.items()}}


@pytest.mark.parametrize("start", [1.0, 0.1])
@pytest.mark.parametrize("who", [0, 1])
def test_where_it_begins_is_said(start, who):
    rules, slots = [rms(0.0), rms(start, "nu")], [lambda params: {}, begun(start)]
    order = 1 if who else -1
    said = update_cause(walk_of(*rules[::order], tuple(slots[::order])))
    side, other = ("there", "here") if who else ("here", "there")
    name = "port" if who else "trainer"
    assert said == f"state: nu of the {name} begins at {start:g} {side}, sq at 0 {other}", said


def test_squares_that_both_begin_at_zero_are_no_cause():
    said = update_cause(walk_of(rms(0.0), rms(0.0, "nu", new=0.2), (lambda params: {}, begun(0.0))))
    assert "begins at" not in said, said

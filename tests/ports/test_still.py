"""A trainer that moves nothing at its first update has a rate of 0 there: nothing is frozen."""

import pytest

from parity.checks.proving.update_causes import update_cause
from tests.ports.small_walks import MODEL, walk_of


def descent(rate, held=()):
    def rule(state, grads, at):
        for leaf, grad in grads.items():
            if leaf not in held:
                state["params"][leaf] = state["params"][leaf] - rate(at) * grad

    return rule


def none(params):
    return {}


def test_a_rate_of_zero_at_first_is_no_frozen_leaf():
    walk = walk_of(descent(lambda at: 0.01 * (at - 1)), descent(lambda at: 0.01 * at), (none, none))
    assert update_cause(walk) == (
        "schedule: the trainer moves nothing at update 1, the port does: its learning rate is 0 until update 2 "
        "(a warm-up from 0)"
    )


def test_one_that_never_moves_makes_no_update():
    said = update_cause(walk_of(descent(lambda at: 0.0), descent(lambda at: 0.01), (none, none)))
    assert said.startswith(
        "update: the trainer moves nothing at update 1, the port does, and nothing at those after it"
    )
    said = update_cause(walk_of(descent(lambda at: 0.01), descent(lambda at: 0.0), (none, none)))
    assert "the port's update is 0 times the trainer's" in said


@pytest.mark.parametrize("leaf", sorted(MODEL))
def test_leaves_that_alone_stay_are_frozen(leaf):
    said = update_cause(walk_of(descent(lambda at: 0.01), descent(lambda at: 0.01, held=(leaf,)), (none, none)))
    assert said.startswith("frozen: the port does not move") or leaf in said, said
    assert "learning rate is 0 until" not in said

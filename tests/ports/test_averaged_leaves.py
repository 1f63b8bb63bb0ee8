"""Averages that part on some leaves alone are told with these leaves, and others as before."""

import numpy as np
import pytest

from parity.checks.proving.lockstep import gaps_of
from parity.checks.proving.update_causes import update_cause
from tests.ports.small_walks import walk_of


def averaged(decay, slot="avg"):
    """Return plain SGD with an average whose decay is that of each leaf."""

    def rule(state, grads, at):
        for leaf, grad in grads.items():
            new = state["params"][leaf] = state["params"][leaf] - 0.05 * grad
            share = 1 - decay(leaf)
            state[slot][leaf] = state[slot][leaf] + share * (new - state[slot][leaf])

    return rule, lambda params: {slot: {leaf: np.array(one) for leaf, one in params.items()}}


@pytest.mark.parametrize("names", [("avg", "avg"), ("a0", "decay")])
@pytest.mark.parametrize(
    ("decay", "said"),
    [
        (0.0, "EMA: of w alone its decay is 0.9 here, 0 (a copy of the parameters) there at update 1"),
        (0.5, "EMA: of w alone its decay is 0.9 here, 0.5 there at update 1"),
        (1.0, "EMA: of w alone its decay is 0.9 here, 1 (it stays) there at update 1"),
    ],
)
def test_a_leaf_that_is_averaged_otherwise_is_told(decay, said, names):
    (one, here), (two, there) = (
        averaged(lambda _: 0.9, names[0]),
        averaged(lambda leaf: decay if leaf == "w" else 0.9, names[1]),
    )
    assert update_cause(walk_of(one, two, (here, there))) == said


def test_averages_that_differ_on_all_leaves_are_told_as_a_whole():
    (one, here), (two, there) = averaged(lambda _: 0.9), averaged(lambda _: 0.5)
    assert update_cause(walk_of(one, two, (here, there))) == "EMA: decay 0.9 here, 0.5 there"


def with_statistics(copied):
    """Return an average that holds a running statistic beside what is averaged, and what it begins as."""
    rule, begin = averaged(lambda _: 0.9)

    def moved(state, grads, at):
        rule(state, {leaf: grad for leaf, grad in grads.items() if leaf != "r"}, at)
        state["params"]["r"] = state["params"]["r"] + 0.1
        state["avg"]["r"] = np.array(state["params"]["r"] if copied else state["avg"]["r"])

    return moved, begin


def late(rule, begin):
    """Return the same average, taken before the update."""

    def moved(state, grads, at):
        before = {leaf: np.array(one) for leaf, one in state["params"].items()}
        held = {leaf: np.array(one) for leaf, one in state["avg"].items()}
        rule(state, grads, at)
        for leaf in grads:
            state["avg"][leaf] = held[leaf] + 0.1 * (before[leaf] - held[leaf])
        state["avg"]["r"] = np.array(state["params"]["r"])

    return moved, begin


def test_copies_of_running_statistics_do_not_hide_an_average_that_is_taken_before_the_update():
    one, here = with_statistics(copied=True)
    two, there = late(*with_statistics(copied=True))
    walk = walk_of(one, two, (here, there), statistics=("r",))
    assert update_cause(walk) == "EMA: taken after the update here, before it there"


def without(rule, begin):
    """Return the same average, which leaves the running statistic out."""

    def moved(state, grads, at):
        state["avg"]["r"] = state["params"]["r"]
        rule(state, grads, at)
        del state["avg"]["r"]

    def started(params):
        held = begin(params)
        return {slot: {leaf: one for leaf, one in leaves.items() if leaf != "r"} for slot, leaves in held.items()}

    return moved, started


@pytest.mark.parametrize("copied", [True, False])
def test_an_average_without_copies_of_running_statistics_is_the_same(copied):
    one, here = with_statistics(copied)
    two, there = without(*with_statistics(copied))
    walk = walk_of(one, two, (here, there), statistics=("r",))
    assert ("avg" in walk.suspects) == (not copied)


def test_a_model_that_does_not_keep_its_running_statistics_is_not_the_same():
    one, here = with_statistics(copied=True)
    two, there = with_statistics(copied=True)
    walk = walk_of(one, two, (here, there), statistics=("r",))
    assert not walk.what
    lanes = walk.lanes
    del lanes[1].moments[1].slots["the model"]["r"]
    assert gaps_of(walk.pairing, lanes, 1, "the model", "the model", {}).leaves == ("r",)
    del lanes[1].moments[1].slots["avg"]["r"]
    assert gaps_of(walk.pairing, lanes, 1, "avg", "avg", {}) is None

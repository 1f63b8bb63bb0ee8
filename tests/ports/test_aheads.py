"""A momentum that is kept and not used is no Nesterov's; what is clipped, and an average, are told from moves."""

import numpy as np
import pytest

from parity.checks.proving.moves import move_cause
from parity.checks.proving.rectified import rectified_cause
from parity.checks.proving.update_causes import update_cause
from tests.ports.small_walks import adam, still_zero, walk_of

UNUSED = "momentum: the trainer moves by it, the port keeps it in {} and moves by what enters it alone"


def slots(*names):
    return lambda params: {name: still_zero(params) for name in names}


def rms(way="momentum", *, kept=0.9, decay=0.0, name="m"):
    """Return an RMSprop that moves by its momentum, by what enters it alone, or ahead of it."""

    def rule(state, grads, at):
        for leaf, grad in grads.items():
            p = state["params"]
            g = grad + decay * p[leaf]
            square = state["sq"][leaf] = 0.95 * state["sq"][leaf] + 0.05 * g * g
            enters = g / (np.sqrt(square) + 1e-3)
            m = state[name][leaf] = kept * state[name][leaf] + enters
            p[leaf] = p[leaf] - 0.01 * {"momentum": m, "alone": enters, "ahead": enters + kept * m}[way]

    return rule


@pytest.mark.parametrize(
    ("kept", "decay", "name"), [(0.9, 0.0, "m"), (0.4, 0.0, "m"), (0.9, 1e-2, "m"), (0.9, 0.0, "nesterov")]
)
def test_a_momentum_that_is_kept_and_not_used_is_no_nesterov(kept, decay, name):
    given = {"kept": kept, "decay": decay, "name": name}
    found = update_cause(walk_of(rms(**given), rms("alone", **given), slots(name, "sq")))
    assert found == f"{UNUSED.format(name)}, which is {name} less {kept} of the one before"


@pytest.mark.parametrize(("kept", "decay"), [(0.9, 0.0), (0.4, 0.0), (0.9, 1e-2)])
def test_a_move_ahead_of_a_momentum_is_one(kept, decay):
    given = {"kept": kept, "decay": decay}
    found = update_cause(walk_of(rms(**given), rms("ahead", **given), slots("m", "sq")))
    assert found.startswith("Nesterov: the port moves ahead of its momentum"), found


def nesterov(rate=0.1, *, top=0.5, decay=0.01, ahead=0.9):
    """Return SGD clipped by its norm, with decay of matrices and a momentum that it moves ahead of."""

    def rule(state, grads, at):
        norm = np.sqrt(sum((one**2).sum() for one in grads.values()))
        for leaf, grad in grads.items():
            p = state["params"]
            g = grad * min(1.0, top / norm) + (decay * p[leaf] if p[leaf].ndim > 1 else 0.0)
            m = state["m"][leaf] = 0.9 * state["m"][leaf] + g
            p[leaf] = p[leaf] - rate * (g + ahead * m)

    return rule


@pytest.mark.parametrize("decay", [0.01, 0.0])
def test_another_rate_is_no_other_nesterov_where_gradients_are_clipped(decay):
    found = update_cause(walk_of(nesterov(decay=decay), nesterov(0.101, decay=decay), slots("m")))
    assert found.startswith("learning rate of the first update (schedule): the port's update is 1.01 times"), found


def test_another_share_of_the_momentum_is_told_where_gradients_are_clipped():
    found = update_cause(walk_of(nesterov(), nesterov(ahead=0.8), slots("m")))
    assert not found.startswith("learning rate"), found


def with_average(rule, *, copied=True, zero=False):
    """Return a rule with an average of the parameters, and its slots; at the first update it may be a copy."""

    def run(state, grads, at):
        rule(state, grads, at)
        for leaf, one in state["params"].items():
            state["a0"][leaf] = one.copy() if at == 1 and copied else 0.95 * state["a0"][leaf] + 0.05 * one

    def made(params):
        begins = {leaf: one * (0.0 if zero else 1.0) for leaf, one in params.items()}
        return {"a0": begins, "m": still_zero(params), "sq": still_zero(params)}

    return run, made


def averaged_walk(there, **given):
    (one, here), (two, other) = with_average(adam(decay=0.02), **given), with_average(there, **given)
    return walk_of(one, two, (here, other))


AVERAGES = [{"copied": True}, {"copied": False}, {"copied": False, "zero": True}]


@pytest.mark.parametrize("given", AVERAGES)
def test_no_move_is_made_of_an_average_of_what_was_moved(given):
    walk = averaged_walk(adam(lambda leaf: 0.1 if leaf == "w" else 0.01, decay=0.02), **given)
    assert rectified_cause(walk) == ""
    assert move_cause(walk).startswith("learning rate of the first update, of groups: the port moves w by 10 times")
    found = update_cause(walk)
    assert found.startswith("learning rate of the first update, of groups: the port moves w by 10 times"), found


@pytest.mark.parametrize("given", AVERAGES)
def test_a_root_that_one_does_not_divide_by_is_told_beside_an_average(given):
    walk = averaged_walk(adam(divides=False, decay=0.02), **given)
    assert rectified_cause(walk).startswith("second moment: at update 1 the trainer divides by its root")
    assert update_cause(walk).startswith("second moment: at update 1 the trainer divides by its root")


def test_of_an_average_no_gradient_with_decay_is_made():
    found = update_cause(averaged_walk(adam(divides=False)))
    assert not found.startswith("decay: the port adds"), found

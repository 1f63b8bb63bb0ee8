"""Running statistics that are taken with the parameters after an update are told, and others are not called so."""

import pytest

from parity.checks.proving.later_statistics import later_statistics_cause
from parity.checks.proving.moves import move_cause
from tests.ports.small_walks import batch, gradients, walk_of


def rule(*, later=False, times=1.0, keeps=True):
    """Return plain steps; the leaf b is a statistic, which moves by what a batch gives for it."""

    def step(state, grads, at):
        p = state["params"]
        for leaf in "wvsr":
            p[leaf] = p[leaf] - 0.05 * grads[leaf]
        taken = gradients(p, batch(at - 1))[1] if later else grads
        p["b"] = 0.9 * p["b"] + 0.1 * times * (taken["b"] + 3.0) if keeps else p["b"]

    return step


@pytest.mark.parametrize("at", [0, 1])
def test_the_side_that_takes_them_later_is_said(at):
    rules = [rule(), rule(later=True)]
    walk = walk_of(*rules[:: 1 if at else -1], statistics=("b",))
    said = move_cause(walk)
    who, other = ("the port", "the trainer") if at else ("the trainer", "the port")
    assert said == (
        f"running statistics: {who} takes those of the batch with the parameters after the update, {other} with "
        "those before it, on b"
    )


def test_statistics_of_other_values_are_not_called_later_ones():
    walk = walk_of(rule(), rule(times=1.7), statistics=("b",))
    assert later_statistics_cause(walk, ["b"]) == ""
    assert "after the update" not in move_cause(walk)


def test_statistics_that_are_not_kept_are_no_evaluation_mode():
    said = move_cause(walk_of(rule(), rule(keeps=False), statistics=("b",)))
    assert said.startswith("running statistics: the port does not move b, the trainer does; losses and "), said

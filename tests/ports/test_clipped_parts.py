"""Norms of some leaves, whole updates that are clipped in place of gradients, and decay behind a clipping."""

import numpy as np
import pytest

from parity.checks.proving.clipped_parts import counted_leaves
from parity.checks.proving.update_causes import update_cause
from tests.ports.small_walks import MODEL, adam, gradients, still_zero, walk_of


def by_norm_of(leaves, top=0.1, decay=0.0, params=None):
    def change(grads):
        size = np.sqrt(sum(float((grads[leaf] ** 2).sum()) for leaf in leaves))
        return {leaf: one * min(1.0, top / (size + 1e-6)) for leaf, one in grads.items()}

    return change


def moments(params):
    return {"m": still_zero(params), "sq": still_zero(params)}


@pytest.mark.parametrize("at", [0, 1])
def test_the_leaves_of_which_the_norm_is_are_told(at):
    rules = [adam(change=by_norm_of(MODEL)), adam(change=by_norm_of("wv"))]
    said = update_cause(walk_of(*rules[:: 1 if at else -1], moments))
    who, other = ("the port", "the trainer") if at else ("the trainer", "the port")
    assert said.startswith(f"clipping: {who} clips all gradients by the norm of matrices and kernels (2 of 5"), said
    assert f"{other} by the norm of all; both to 0.1" in said, said


def test_another_limit_is_not_called_a_norm_of_some_leaves():
    said = update_cause(walk_of(adam(change=by_norm_of(MODEL)), adam(change=by_norm_of(MODEL, 0.13)), moments))
    assert said.startswith("clipping: largest norm of the gradients 0.1"), said
    assert "0.13" in said, said


def test_one_update_tells_no_leaves():
    grads = gradients(MODEL, {"x": np.ones((2, 5)), "y": np.zeros((2, 3))})[1]
    size = float(np.sqrt((grads["w"] ** 2).sum()))
    assert counted_leaves([(grads, 0.1 / size), (grads, 0.1 / size)], 0.1) == ""
    more = {leaf: one * (2.0 if leaf == "w" else 1.0) for leaf, one in grads.items()}
    assert counted_leaves([(grads, 0.1 / size), (more, 0.05 / size)], 0.1).startswith("the leaves w (1 of 5")


def whole_update(top, decay):
    """Return an Adam whose update is clipped by its norm before decay is added to it, its rate warming up."""

    def rule(state, grads, at):
        made = {}
        for leaf, g in grads.items():
            m = state["m"][leaf] = 0.9 * state["m"][leaf] + 0.1 * g
            v = state["other"][leaf] = 0.999 * state["other"][leaf] + 0.001 * g * g
            made[leaf] = m / (1 - 0.9**at) / (np.sqrt(v / (1 - 0.999**at)) + 1e-8)
        size = np.sqrt(sum(float((one**2).sum()) for one in made.values()))
        for leaf, one in made.items():
            p = state["params"]
            p[leaf] = p[leaf] - 0.001 * at * (one * min(1.0, top / size) + decay * p[leaf])

    return rule


def warm(change, decay):
    def rule(state, grads, at):
        adam(lambda leaf: 0.001 * at, change, decay)(state, grads, at)

    return rule


def test_a_whole_update_that_is_clipped_in_place_of_gradients_is_told():
    slots = moments, lambda params: {"m": still_zero(params), "other": still_zero(params)}
    said = update_cause(walk_of(warm(by_norm_of(MODEL), 0.1), whole_update(0.5, 0.1), slots))
    assert said.startswith("clipping: the trainer clips the norm of the gradients"), said
    assert "the port the norm of its whole update, after the optimizer made it, to 0.5 (before its rate" in said, said
    said = update_cause(walk_of(warm(by_norm_of(MODEL), 0.1), whole_update(1e9, 0.1), slots))
    assert said.endswith("the port does not clip it"), said


def added(top, share, *, before=False):
    """Return an Adam with decay that is added to the gradient, after it is clipped or before."""

    def rule(state, grads, at):
        p = state["params"]
        more = {leaf: share * p[leaf] for leaf in grads}
        if before:
            grads = {leaf: one + more[leaf] for leaf, one in grads.items()}
        grads = by_norm_of(MODEL, top)(grads)
        if not before:
            grads = {leaf: one + more[leaf] for leaf, one in grads.items()}
        adam()(state, grads, at)

    return rule


@pytest.mark.parametrize(("top", "words"), [(0.1, ", which was scaled before (clipped by its norm)"), (1e9, "")])
def test_decay_behind_a_clipping_is_told_as_it_was_written(top, words):
    said = update_cause(walk_of(added(top, 0.03), adam(change=by_norm_of(MODEL, top), decay=0.03), moments))
    assert said.startswith(f"decay: the trainer adds 0.03 of the parameters to the gradient (L2){words}, "), said

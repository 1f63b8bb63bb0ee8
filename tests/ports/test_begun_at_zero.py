"""A last layer that begins at zero keeps the gradient from all others: what moves them then is their decay."""

import numpy as np
import pytest

from parity.checks.proving.clip_causes import is_cut
from parity.checks.proving.update_causes import update_cause
from tests.ports.small_walks import MODEL, adam, still_zero, walk_of


def moments(params):
    return {"m": still_zero(params), "sq": still_zero(params)}


@pytest.mark.parametrize("at", [0, 1])
def test_a_decay_of_what_no_gradient_reaches_is_no_rate(at, monkeypatch):
    monkeypatch.setitem(MODEL, "v", np.zeros((4, 3)))
    said = update_cause(walk_of(*[adam(decay=0.1), adam()][:: 1 if at else -1], moments))
    assert said.startswith("weight decay: "), said
    assert f"the port's is {'weaker' if at else 'stronger'} than the trainer's by 0.001 of" in said, said


def by_value(limit):
    return lambda grads: {leaf: np.clip(one, -limit, limit) for leaf, one in grads.items()}


def with_equal_tops(grads):
    """Return other gradients, of which two elements are largest, and equal, as those of symmetric data may be."""
    made = {leaf: one * (1.0 + 0.3 * np.sin(np.arange(one.size))).reshape(one.shape) for leaf, one in grads.items()}
    top = max(float(np.abs(one).max()) for one in made.values())
    made["v"] = made["v"].copy()
    made["v"].flat[:2] = top
    return made


def test_two_equal_elements_are_no_clipping_by_value():
    for limit in (0.02, 1e-9):  # the lower one cuts all of them
        said = update_cause(walk_of(adam(change=by_value(limit)), adam(), moments))
        assert "clips every element of the gradient" in said, said
    said = update_cause(walk_of(adam(change=with_equal_tops), adam(), moments))
    assert "gradient" in said, said
    assert "clips every element" not in said, said


def test_elements_that_are_cut_are_told_from_those_that_are_equal():
    drawn = np.random.default_rng(4).normal(size=40)
    twice = np.concatenate([drawn, [5.0, 5.0]])
    top = np.sort(np.abs(drawn))[-4]
    assert is_cut(0.3 * np.clip(drawn, -top, top), [drawn])
    assert is_cut(np.clip(drawn, -top, top) ** 2, [drawn, drawn**2])
    assert not is_cut(0.3 * twice, [twice])  # its largest are equal, and nothing of them is cut
    assert not is_cut(np.clip(drawn, -top, top) + 1e-3, [drawn])
    assert not is_cut(np.tanh(drawn), [drawn])


@pytest.mark.parametrize("clips", [0, 1])
def test_a_clipping_by_value_of_another_gradient_than_that_of_the_loss_is_named(clips):
    """As where parts of a batch count alike, and not their examples: no moment is a share of what the loss gives."""

    def of_parts(grads):
        return {leaf: one * (1 + 0.1 * np.cos(np.arange(one.size))).reshape(one.shape) for leaf, one in grads.items()}

    def scaled(grads):
        return {leaf: 0.7 * one for leaf, one in of_parts(grads).items()}

    sides = [adam(change=lambda grads: by_value(0.02)(of_parts(grads))), adam(change=scaled)]
    said = update_cause(walk_of(*sides[:: 1 if clips == 0 else -1], moments))
    who = ("the trainer", "the port")[clips]
    assert said.startswith(f"clipping: {who} clips every element of the gradient by itself (by value)"), said

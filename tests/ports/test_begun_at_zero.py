"""A last layer that begins at zero keeps the gradient from all others: what moves them then is their decay."""

import numpy as np
import pytest

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

"""Projections after a step: limits, norms, masks and means of one run are told, and hide nothing that both have."""

import numpy as np
import pytest

from parity.checks.proving.update_causes import update_cause
from tests.ports.optimizer_rules import made
from tests.ports.small_walks import walk_of


def of_leaves(names, change):
    return lambda leaf, one, old: change(one, old) if leaf in names else one


def by_rows(limit, *, all_of_them=False):
    def change(one, old):
        share = limit / np.sqrt((one**2).sum(1, keepdims=True))
        return one * (share if all_of_them else np.minimum(share, 1.0))

    return of_leaves("w", change)


def clamped(limit, names="wv"):
    return of_leaves(names, lambda one, old: np.clip(one, -limit, limit))


def first_row_kept(one, old):
    return np.concatenate([old[:1], one[1:]])


def pruned(one, old):
    return one * (np.arange(one.size).reshape(one.shape) % 3 > 0)


MASKED = "w is set to 0 at 7 of 20 elements, such as [0, 0],"
PROJECTIONS = {
    "both sides": (clamped(0.8), "w, v is limited to 0.8 on both sides"),
    "one number": (of_leaves("r", lambda one, old: np.maximum(one, 0.68)), "r is limited to at least 0.68"),
    "positive": (of_leaves("v", lambda one, old: np.maximum(one, 0.0)), "v is limited to at least 0"),
    "rows": (by_rows(1.5), "w (the norm along its last axis) is limited to 1.5"),
    "unit rows": (by_rows(1.0, all_of_them=True), "w (the norm along its last axis) is set to 1"),
    "mask": (of_leaves("w", pruned), MASKED),
    "row": (of_leaves("w", first_row_kept), "w is kept as it was at 4 of 20 elements, such as [0, 0],"),
    "mean": (of_leaves("w", lambda one, old: one - one.mean(0)), "w is made to have no mean (along its first axis)"),
}
ADAM = ("adam", {"decay": 0.1, "rate": 0.05})


def said(kind, here, there, steps=6):
    (one, slots, _), (two, others, _) = made(kind, **here), made(kind, **there)
    walk = walk_of(one, two, (slots, others), steps)
    return update_cause(walk) if walk.what else None


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize("port", [True, False])
def test_a_projection_of_one_is_told(name, port):
    change, words = PROJECTIONS[name]
    kind, plain = ADAM
    sides = (plain, plain | {"project": change})
    who = ("the port", "the trainer")
    if not port:
        sides, who = sides[::-1], who[::-1]
    cause = said(kind, *sides)
    assert cause == f"projection: {words} by {who[0]} after the step, not by {who[1]}"


@pytest.mark.parametrize("limits", [(1.0, 0.8), (0.8, 1.0)])
def test_two_limits_are_both_told(limits):
    kind, plain = ADAM
    cause = said(kind, *(plain | {"project": clamped(limit)} for limit in limits))
    names = ("the trainer", "the port")
    narrow = limits.index(min(limits))
    words = "w, v is limited to 0.8 on both sides"
    assert cause == f"projection: {words} by {names[narrow]} after the step, by {names[1 - narrow]} to 1"


@pytest.mark.parametrize("project", [by_rows(1.5), clamped(1.0, "w")])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rate": 0.02}, "learning rate of the first update"),
        ({"decay": 0.3}, "weight decay: another strength on all"),
    ],
)
def test_a_projection_of_both_hides_nothing(project, change, words):
    kind, plain = ADAM
    both = plain | {"project": project}
    assert said(kind, both, both) is None
    assert said(kind, both, both | change).startswith(words)


@pytest.mark.parametrize(
    "change", [{"rate": 0.02}, {"decay": 0.3}, {"groups": lambda leaf: 2.0 if leaf in "sr" else 1.0}]
)
@pytest.mark.parametrize("kind", ["adam", "momentum", "sgd"])
def test_another_rule_of_the_update_is_no_projection(kind, change):
    cause = said(kind, {"rate": 0.05}, {"rate": 0.05} | change)
    assert "projection" not in cause


def test_a_rate_that_begins_at_zero_freezes_nothing():
    free = of_leaves("w", lambda one, old: np.clip(one, -1.0, 1.0))
    here = {"rate": 0.05, "project": free}
    cause = said("adam", here, here | {"rate": lambda at: 0.02 * (at - 1)})
    assert cause.startswith("learning rate of the first update: 0 for v, b, s and 1 more in its first update of the")
    assert "from update 2 on" in cause


def test_a_leaf_that_stays_at_all_updates_is_frozen():
    cause = said("adam", {}, {"trains": lambda leaf: leaf != "v"})
    assert cause == "frozen: the port does not move v, the trainer does"

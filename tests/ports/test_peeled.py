"""Gradients of some leaves alone that part: what each optimizer was given, in units that the other leaves tell."""

import numpy as np
import pytest

from parity.checks.proving.peeled import peeled_cause
from parity.checks.proving.update_causes import update_cause
from tests.ports.optimizer_rules import made
from tests.ports.small_walks import walk_of

TOP = 0.02


def by_norm(axis):  # type: ignore[no-untyped-def]
    return lambda g: g * np.minimum(1.0, TOP / (np.linalg.norm(g, axis=axis, keepdims=True) + 1e-6))


WAYS = {
    "rows": by_norm(1), "columns": by_norm(0), "whole": by_norm(None), "elements": lambda g: np.clip(g, -TOP, TOP),
    "none": lambda g: g, "half": lambda g: 0.5 * g,
}  # fmt: skip


def rule_of(kind, way, leaf="w", **settings):  # type: ignore[no-untyped-def]
    rule, slots, _ = made(kind, **settings)

    def changed(state, grads, at):  # type: ignore[no-untyped-def]
        rule(state, {**grads, leaf: WAYS[way](grads[leaf])}, at)

    return changed, slots


def walk(kind, here, there, leaf="w", **settings):  # type: ignore[no-untyped-def]
    (one, slots), (two, _) = (rule_of(kind, way, leaf, **settings) for way in (here, there))
    return walk_of(one, two, slots)


ROWS, COLUMNS = (
    f"is clipped by its norm for each place along axis {n} (of the port's layout) to 0.02" for n in (0, 1)
)
SAID = {"rows": ROWS, "columns": COLUMNS, "whole": "is clipped by its norm as a whole to 0.02", "none":
        "is that of the loss", "elements": "is clipped element by element to 0.02"}  # fmt: skip


@pytest.mark.parametrize(("kind", "settings"), [
    ("adadelta", {"decay": 1e-3, "decay_at": "l2", "eps": 1e-5}), ("adam", {"decay": 1e-2}), ("adagrad", {}),
    ("momentum", {"decay": 1e-3, "decay_at": "l2"}), ("rmsprop", {"decay": 1e-3, "decay_at": "l2"}),
])  # fmt: skip
@pytest.mark.parametrize(("here", "there"), [
    ("rows", "whole"), ("rows", "columns"), ("rows", "none"), ("none", "whole"), ("elements", "rows"),
])  # fmt: skip
def test_one_leaf_is_clipped_otherwise(kind, settings, here, there):
    said = update_cause(walk(kind, here, there, **settings))
    wanted = f"clipping: the gradient of w {SAID[here]} here, {SAID[there]} there; that of the other leaves agrees"
    assert said == wanted


def test_one_leaf_is_given_a_multiple_of_its_gradient():
    said = peeled_cause(walk("momentum", "none", "half", leaf="v"))
    assert said == (
        "gradient: the gradient of v is that of the loss here, is 0.5 times that of the loss there; that of the "
        "other leaves agrees"
    )


def test_where_all_leaves_part_there_are_none_that_tell_the_numbers():
    one, slots, _ = made("adam", clip=("norm", 0.1))
    two, *_ = made("adam", clip=("leaf", 0.1))
    assert peeled_cause(walk_of(one, two, slots)) == ""


def test_another_rate_of_one_leaf_is_no_matter_of_its_gradient():
    rules = [made("adam", groups=lambda leaf, by=by: by if leaf == "w" else 1.0) for by in (1.0, 0.5)]
    assert peeled_cause(walk_of(rules[0][0], rules[1][0], rules[0][1])) == ""

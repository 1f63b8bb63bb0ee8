"""Orders within an update: decay and clipping, parts of a batch, clippings that act later, thresholds, lookaheads."""

import numpy as np
import pytest

from parity.checks.proving.initial_singles import unlike_singles
from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.lookaheads import lookahead_cause
from parity.checks.proving.projected import projected_leaves
from parity.checks.proving.update_causes import update_cause
from tests.ports.optimizer_rules import by_parts, made
from tests.ports.small_walks import still_zero, walk_of
from tests.ports.update_faults import cosine

L2 = {"decay": 0.1, "decay_at": "l2"}
BEFORE = {"decay_at": "before clip"}


def walked(kind, settings, change, steps=8, port=None):  # type: ignore[no-untyped-def]
    (here, slots, first), (there, others, second) = made(kind, **settings), made(port or kind, **(settings | change))
    return walk_of(here, there, (slots, others), steps, loss=first, other=second)


@pytest.mark.parametrize(("kind", "settings", "said"), [
    ("momentum", {"clip": ("leaf", 0.1), "nesterov": True}, "decay: 0.1 of the parameters is added to the gradient"),
    ("adam", {"clip": ("leaf", 0.1)}, "decay: 0.1 of the parameters is added to the gradient"),
    ("sgd", {"clip": ("leaf", 0.1)}, "decay: 0.1 of the parameters is added to the gradient"),
    ("momentum", {"clip": ("value", 0.1)}, "decay: 0.1 of the parameters is added to the gradient"),
    ("sgd", {"clip": ("norm", 0.1)}, "decay: it is added to the gradients (L2) before all are scaled"),
    ("adam", {"clip": ("norm", 0.1)}, "decay: the port clips the gradient with its decay"),
])  # fmt: skip
def test_decay_before_a_clip_is_told_from_decay_after_it(kind, settings, said):
    assert update_cause(walked(kind, {"rate": 0.05} | L2 | settings, BEFORE)).startswith(said)


@pytest.mark.parametrize(("change", "said"), [
    ({"clip": ("norm", 0.1)}, "clipping"), ({"decay": 0.2}, "decay: 0.1 of"), ({"b1": 0.8}, "momentum"),
])  # fmt: skip
def test_what_is_clipped_with_its_decay_alike_has_other_causes(change, said):
    settings = {"rate": 0.05, "decay": 0.1, "clip": ("leaf", 0.1)} | BEFORE
    cause = update_cause(walked("momentum", settings, change))
    assert cause.startswith(said) or not cause
    assert "clipped alone" not in cause or "norm" in str(change)


LATE = {"clip_from": 2}


@pytest.mark.parametrize(("kind", "clips", "said"), [
    ("adam", (("value", 0.05), ("norm", 0.05)), "clipping: every element is clipped by itself (by value) to 0.05"),
    ("momentum", (("norm", 0.05), ("norm", 1e9)), "clipping: the trainer clips the norm"),
    ("adam", (("norm", 0.05), ("norm", 0.1)), "clipping: largest norm of the gradients 0.05 here, 0.1 there"),
    ("sgd", (("norm", 0.05), ("value", 0.05)), "clipping"),
])  # fmt: skip
def test_a_clipping_that_begins_to_act_later_is_told_there(kind, clips, said):
    cause = update_cause(walked(kind, {"rate": 0.01, "clip": clips[0]} | LATE, {"clip": clips[1]}))
    assert cause.startswith(said)
    assert cause.endswith("(from update 2 on, the first at which it shows)")


def by_elements(since, top=0.3, decay=0.01):
    """Return SGD with momentum that clips every element, from an update on with its decay in the gradient."""

    def rule(state, grads, at):
        for leaf, g in grads.items():
            p = state["params"][leaf]
            inner, outer = (decay * p, 0.0) if at >= since else (0.0, decay * p)
            m = state["m"][leaf] = 0.9 * state["m"][leaf] + np.clip(g + inner, -top, top) + outer
            state["params"][leaf] = p - 0.02 * m

    return rule


@pytest.mark.parametrize("start", [3, 5])
def test_an_order_of_decay_and_clipping_that_shows_later_is_told_there(start):
    walk = walk_of(by_elements(99), by_elements(start), lambda params: {"m": still_zero(params)})
    cause = update_cause(walk)
    assert cause.startswith("decay: 0.01 of the parameters is added to the gradient (L2) before it is clipped there")
    assert cause.endswith(f"(from update {start} on, the first at which it shows)")


def test_a_limit_of_elements_that_shows_later_is_no_order():
    settings = {"rate": 0.02, "clip": ("value", 0.1), "clip_from": 3}
    cause = update_cause(walked("momentum", settings | L2, {"clip": ("value", 0.05)}))
    assert not cause.startswith("decay"), cause


def test_a_moment_that_keeps_less_from_the_second_update_on_is_no_clipping():
    cause = update_cause(walked("momentum", {"rate": 0.05, "clip": ("norm", 0.05)}, {"b1": 0.8}))
    assert cause.startswith("momentum")


def test_a_threshold_of_a_second_moment_shows_beside_decay():
    cause = update_cause(walked("radam", {"b2": 0.9, "decay": 0.02, "clip": ("norm", 0.1)}, {"threshold": 4.0}))
    assert cause.startswith("second moment: at update 5 the port divides by its root")
    assert "4.581 long at this update" in cause


def test_a_lookahead_is_told_by_the_updates_at_which_it_sets():
    settings = {"rate": 0.05, "ema": 0.5, "every": 3, "sets": True}
    cause = update_cause(walked("sgd", settings, {"every": 4}))
    assert cause == "lookahead: the parameters are set from avg at update 3, 6 here, at update 4 there"


def test_an_average_that_nothing_is_set_from_is_no_lookahead():
    walk = walked("sgd", {"rate": 0.05, "ema": 0.0}, {"rate": 0.02, "ema": 0.5})
    assert lookahead_cause(walk) == ""


def test_signs_that_cancel_out_leave_no_limit():
    walk = walked("lion", {"rate": 2.5e-4}, {"decay": 0.1})
    assert not projected_leaves(walk, 0)


@pytest.mark.parametrize("since", [1, 4])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("nesterov", [True, False])
def test_a_clip_of_one_is_told_beside_decay_of_some_leaves(since, at, nesterov):
    """As of SGD with decay on matrices alone: no one share of the parameters is in all momenta."""
    plain = {"rate": 0.05, "nesterov": nesterov, "decay": 0.01, "decay_at": "l2", "mask": lambda leaf: leaf == "w"}
    clips = plain | {"clip": ("norm", 0.5), "clip_from": since}
    cause = update_cause(walked("momentum", clips if at == 0 else plain, {"clip_from": 100} if at == 0 else clips))
    assert cause.startswith(f"clipping: {('the trainer', 'the port')[at]} clips the norm of the gradients"), cause
    assert ("(from update 4 on" in cause) is (since == 4), cause


@pytest.mark.parametrize(("change", "said"), [
    ({"b1": 0.8}, "momentum"), ({"decay": 0.02}, "decay"), ({"mask": lambda leaf: True}, "decay"),
])  # fmt: skip
def test_beside_decay_of_some_leaves_other_causes_stay(change, said):
    plain = {"rate": 0.05, "decay": 0.01, "decay_at": "l2", "mask": lambda leaf: leaf == "w"}
    assert update_cause(walked("momentum", plain, change)).startswith(said)


def test_what_a_model_holds_before_its_first_step_alone_is_no_parameter():
    """Such as the count of a stream of dropout, by which the commonest causes of an update were an error."""
    cause = update_cause(walked("sgd", {"rate": 0.05}, {"decay": 0.1}))
    assert cause.startswith("weight decay: another strength on all leaves")
    counted = walked("sgd", {"rate": 0.05}, {"decay": 0.1})
    begun = counted.lanes[1].moments[0].slots
    begun[MODEL] = {"drop.count": np.zeros(()), **begun[MODEL]}
    assert not projected_leaves(counted, 1)
    assert update_cause(counted) == cause


@pytest.mark.parametrize(("one", "two", "said"), [
    ((0.3, 0.2), (0.0, 0.0), "drawn here"), ((0.0, 0.0), (0.3, 0.2), "drawn there"),
    ((0.5, 0.5), (1.0, 1.0), "0.5 here"), ((0.3173123, 0.2), (0.2121177, 0.2121177), ""),
    ((0.31731, 0.31731), (0.0, 0.0), ""), ((0.0, 0.0), (0.0, 0.0), ""),
])  # fmt: skip
def test_one_number_is_drawn_where_it_is_another_when_it_is_built_again(one, two, said):
    first, second = (tuple({"a": np.array([held[at]])} for held in (one, two)) for at in (0, 1))
    found = unlike_singles(first, lambda: second)
    assert [words for _, words in found] == [] if not said else said in found[0][1]


def test_a_sum_of_parts_beside_a_mean_is_told_through_a_clip():
    settings = {"loss": by_parts(2), "clip": ("norm", 0.1), "rate": cosine(16)}
    cause = update_cause(walked("radam", settings, {"loss": by_parts(2, sums=True)}))
    assert cause.startswith("accumulation: before")


@pytest.mark.parametrize(("kind", "settings", "change", "port"), [
    ("rmsprop", {"slots": ("m",)}, {"slots": ()}, "sgd"),
    ("momentum", {"rate": 0.05}, {}, "rmsprop"),
])  # fmt: skip
def test_what_enters_a_momentum_is_not_said_of_a_port_that_moves_by_something_else(kind, settings, change, port):
    """Of gradients divided by a root on one side, and of them as they are on the other, no momentum is all."""
    assert "by what enters it alone" not in update_cause(walked(kind, settings, change, port=port))

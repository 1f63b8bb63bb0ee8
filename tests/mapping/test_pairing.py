"""The pairing of the arrays of a trainer with those of its port."""

import numpy as np
import pytest

from parity.errors import SpecError
from parity.mapping import Pair, pair_leaves, pair_slots

DRAWS = np.random.default_rng(0)
Q, K, CONV = DRAWS.normal(size=(4, 6)), DRAWS.normal(size=(4, 6)), DRAWS.normal(size=(8, 3, 5, 5))
ONES, ZEROS = np.ones(6), np.zeros(6)


def test_values_pair_what_is_transposed_or_permuted() -> None:
    a = {"q.weight": Q, "k.weight": K, "conv.weight": CONV}
    b = {"conv.kernel": CONV.transpose(2, 3, 1, 0), "k.kernel": K.T, "q.kernel": Q.T}
    pairs, alone = pair_leaves(a, b, "model.params")
    assert alone == []
    assert {pair.a: (pair.b, pair.axes) for pair in pairs} == {
        "q.weight": ("q.kernel", (1, 0)),
        "k.weight": ("k.kernel", (1, 0)),
        "conv.weight": ("conv.kernel", (2, 3, 1, 0)),
    }
    for pair in pairs:
        assert np.array_equal(pair.carry(a[pair.a], b[pair.b].shape), b[pair.b])
        assert np.array_equal(pair.turned.carry(b[pair.b], a[pair.a].shape), a[pair.a])


def test_leaves_of_one_value_are_paired_by_their_module_or_by_what_training_made_of_them() -> None:
    a = {"q.weight": Q, "q.bias": ZEROS, "ln_1.weight": ONES, "ln_2.weight": ONES}
    b = {"a.kernel": Q.T, "a.bias": ZEROS, "norm2.scale": ONES, "norm1.scale": ONES}
    later = (
        {"ln_1.weight": ONES + 0.1, "ln_2.weight": ONES + 0.2},
        {
            "norm1.scale": ONES + 0.1000001,
            "norm2.scale": ONES + 0.2000001,
        },
    )
    pairs, alone = pair_leaves(a, b, "model.params", later=later)
    assert [(pair.a, pair.b) for pair in pairs] == [
        ("q.weight", "a.kernel"),
        ("q.bias", "a.bias"),
        ("ln_1.weight", "norm1.scale"),
        ("ln_2.weight", "norm2.scale"),
    ]
    assert alone == []


def test_what_cannot_be_told_apart_is_left_without_a_counterpart() -> None:
    a, b = {"ln_1.weight": ONES, "ln_2.weight": ONES}, {"x.scale": ONES, "y.scale": ONES}
    assert pair_leaves(a, b, "model.params") == ([], [*a, *b])


def test_rules_say_it_and_a_star_carries_over() -> None:
    a = {f"h.{n}.w": DRAWS.normal(size=(2, 3)) for n in range(3)}
    b = {f"layers[{n}].kernel": np.zeros((3, 2)) for n in range(3)}
    pairs, alone = pair_leaves(a, b, "model.params", [("h.*.w", "layers[*].kernel", "transpose")])
    assert [(pair.a, pair.b, pair.axes) for pair in pairs] == [
        (f"h.{n}.w", f"layers[{n}].kernel", (1, 0)) for n in range(3)
    ]
    assert alone == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (("h.0.w", "nowhere"), "which the port has not; it has layers"),
        (("h.0.w", "layers[0].kernel"), r"h.0.w \[2, 3\] does not fit layers\[0\].kernel \[3, 2\] by 'same'"),
        (("h.0.w", "layers[0].kernel", (0, 0)), "2 axes, the permutation is"),
        (("h.0.w", "layers[0].kernel", "turn"), "must be same, transpose, reshape or axes, got 'turn'"),
        (("nothing.*", "layers[*].kernel"), "'nothing.*' matches no array of the trainer"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused(rule: tuple[str, str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        pair_leaves({"h.0.w": np.zeros((2, 3))}, {"layers[0].kernel": np.zeros((3, 2))}, "model.params", [rule])


def test_two_rows_for_one_leaf_are_refused() -> None:
    a, b = {"w": ONES}, {"x": ONES, "y": ONES}
    with pytest.raises(SpecError, match="two rows for w"):
        pair_leaves(a, b, "model.params", [("w", "x"), ("w", "y")])


def test_slots_follow_their_parameter() -> None:
    params = [Pair("m.w", "net.first.kernel", "model.params", (1, 0))]
    a = {"opt.state[m.w].exp_avg": "optimizer.first_moment", "opt.state[m.w].exp_avg_sq": "optimizer.second_moment"}
    b = {"s[0].mu.first.kernel": "optimizer.first_moment", "s[0].nu.first.kernel": "optimizer.second_moment"}
    pairs = pair_slots(params, a, b)
    assert [(pair.a, pair.b, pair.axes) for pair in pairs] == [
        ("opt.state[m.w].exp_avg", "s[0].mu.first.kernel", (1, 0)),
        ("opt.state[m.w].exp_avg_sq", "s[0].nu.first.kernel", (1, 0)),
    ]

"""A running variance over n - 1 of another n is told with both numbers, where several leaves show them."""

import numpy as np
import pytest

from parity.checks.proving.running_counts import running_counts_cause, running_forms_cause

WEIGHTS = (0.1, 0.01)
DRAWN = np.random.default_rng(4)


def ends(here, there, *, weight=0.1, noise=0.0):
    """Return values before and after an update, of two leaves; `here` and `there` are numbers of values, or None."""
    before = {leaf: np.ones(4) for leaf in ("v", "u")}
    batch = {leaf: DRAWN.uniform(0.5, 2.0, 4) for leaf in before}
    after = []
    for counts in (here, there):
        scales = {leaf: 1.0 if n is None else n / (n - 1) for leaf, n in zip(before, counts, strict=True)}
        after.append({leaf: (1 - weight) * one + weight * scales[leaf] * batch[leaf] for leaf, one in before.items()})
    after[1]["u"] = after[1]["u"] + noise * DRAWN.normal(size=4)
    return before, after, ["v", "u"], WEIGHTS


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        ((216, 54), (6, 6), ": n / (n - 1) of n = 6 in the port, of n = 54, 216 in the trainer"),
        ((6, 6), (216, 54), ": n / (n - 1) of n = 6 in the trainer, of n = 54, 216 in the port"),
    ],
)
def test_both_numbers_are_told(here, there, said):
    found = running_counts_cause(*ends(here, there))
    assert found.startswith("running variance: of a batch the port takes ")
    assert "at weight 0.1" in found
    assert found.endswith(said), found


def test_of_one_ratio_no_number_is_told():
    found = running_counts_cause(*ends((54, 54), (6, 6)))
    assert "times what the trainer does" in found
    assert "n / (n - 1)" not in found


def test_statistics_of_another_batch_are_no_multiple():
    assert running_counts_cause(*ends((216, 54), (6, 6), noise=0.1)) == ""
    assert running_counts_cause(*ends((216, 54), (6, 6), weight=0.37)) == ""


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize(("form", "said"), [
    (np.sqrt, "the root of what the trainer does"), (np.square, "the square of"), (np.reciprocal, "one over"),
])  # fmt: skip
def test_a_function_of_the_other_statistic_is_told_with_any_factor(weight, form, said):
    before, after, leaves, weights = ends((None, None), (None, None), weight=weight)
    for leaf in leaves:
        batch = (after[0][leaf] - (1 - weight) * before[leaf]) / weight
        after[1][leaf] = (1 - weight) * before[leaf] + weight * 1.5 * form(batch)
    found = running_forms_cause(before, after, leaves, weights)
    assert found.startswith(f"running variance: of a batch the port takes {said}"), found
    assert found.endswith("on v, u")


def test_other_statistics_are_said_to_be_others():
    found = running_forms_cause(*ends((216, 54), (6, 6), noise=0.1))
    assert found.startswith("running statistics: of a batch the port takes other values than the trainer"), found

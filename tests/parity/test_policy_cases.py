"""The table of cases: the pure function holds it, and every wrong policy is found by the rule it breaks."""

import pytest

from parity.policy import GROUPS, PolicyInMemory, Resume, Rules, Save, Validated, cases, kept, read, replay
from tests.support.policy_plants import PLANTS

each_case = pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.group}: {case.name}")


@each_case
def test_the_pure_function_holds(case):
    assert replay(case, PolicyInMemory) == []


@pytest.mark.parametrize("plant", PLANTS)
def test_a_wrong_policy_is_found_by_the_rule_it_breaks(plant):
    make, groups = PLANTS[plant]
    found = {case.group for case in cases() if replay(case, make)}
    assert groups <= found


def test_every_group_finds_a_wrong_policy_and_has_two_cases():
    finders = {group for _, groups in PLANTS.values() for group in groups}
    assert finders == set(GROUPS)
    assert all(sum(case.group == group for case in cases()) >= 2 for group in GROUPS)


def test_the_table_is_in_the_order_of_the_rules_and_no_name_occurs_twice():
    order = [list(GROUPS).index(case.group) for case in cases()]
    assert order == sorted(order)
    names = [(case.group, case.name) for case in cases()]
    assert len(set(names)) == len(names) >= 30


@each_case
def test_a_case_saves_every_ten_steps_as_a_real_run_does(case):
    """Managers that train to save cannot skip a step."""
    step = 0
    for index, (event, _) in enumerate(case.rows):
        if isinstance(event, Save | Validated):
            assert event.step == step + 10
            step = event.step
        elif isinstance(event, Resume):
            step = case.rows[index][1].latest


@each_case
def test_what_a_case_expects_is_possible(case):
    """Nothing comes back that was removed; only saves, validations and resumes change the steps."""
    before = ()
    for event, expected in case.rows:
        there = set(before) | ({event.step} if isinstance(event, Save | Validated) else set())
        assert set(expected.steps) <= there
        assert expected.steps == tuple(sorted(expected.steps))
        assert isinstance(event, Save | Validated | Resume) or expected.steps == before
        assert expected.best is None or expected.best in expected.steps
        assert not expected.refused or expected.steps == before
        before = expected.steps


def test_a_difference_says_where_and_what():
    case = read("# ties | twice | max latest=1 best=1\nsave 10 0.9 | 10*\nsave 20 0.9 | 10* 20")[0]
    assert [str(difference) for difference in replay(case, PolicyInMemory)] == [
        "ties: twice: after `save 20 0.9`: lost 10",
        "ties: twice: after `save 20 0.9`: best is 20, not 10",
    ]


def test_an_event_that_should_be_refused_and_is_not_is_found_and_the_other_way_round():
    case = read("# late | wrong | max latest=1\nsave 10 - | 10\nmetric 10 0.5 | ! 10*\nmetric 20 0.5 | 10*")[0]
    assert [difference.what for difference in replay(case, PolicyInMemory)] == [
        "accepted",
        "refused: no checkpoint of step 20 (steps: 10)",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# tie | x | max\nsave 10 - | 10", "unknown group 'tie' in"),
        ("# ties | x | most\nsave 10 - | 10", "a mode is max or min, got 'most'"),
        ("# ties | x | max\nsaved 10 - | 10", "'saved 10 -' is no event"),
        ("# ties | x | max\nresume first | 10", "invalid literal"),
        ("# ties | x | max latest=0\nsave 10 - | 10", "keep_latest must be at least 1"),
    ],
)
def test_a_line_that_means_nothing_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read(text)


def test_the_table_is_read_as_written():
    """One case spelled out, so that a reader that drops something cannot make every case hold."""
    case = next(case for case in cases() if case.name == "one for every minute, the first included")
    assert case.rules == Rules(mode="max", keep_latest=1, keep_best=0, keep_seconds=60.0)
    event, expected = case.rows[5]
    assert event == Save(step=60, metric=None, at=120.0)
    assert (expected.steps, expected.best, expected.latest) == ((10, 30, 60), None, 60)
    assert kept([], case.rules) == set()

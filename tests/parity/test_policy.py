"""Best and latest never fight: what one rule keeps, the other never removes."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.policy import Mode, Rules, Saved, best, kept, latest, mode_of, reasons
from tests.support.small import quick

metrics = st.none() | st.sampled_from([0.0, -0.0, 0.5, 0.9, 1.0, math.nan, math.inf, -math.inf]) | st.floats()
runs = st.lists(st.builds(Saved, step=st.integers(0, 200), metric=metrics), unique_by=lambda s: s.step, max_size=12)
modes: st.SearchStrategy[Mode] = st.sampled_from(["max", "min"])
timed_runs = st.lists(
    st.builds(Saved, step=st.integers(0, 60), metric=metrics, saved_at=st.integers(0, 40).map(float)),
    unique_by=lambda s: s.step,
    max_size=12,
)
rules = st.builds(
    Rules,
    mode=modes,
    keep_latest=st.integers(1, 3),
    keep_best=st.integers(0, 3),
    keep_every=st.integers(0, 7),
    keep_seconds=st.sampled_from([0.0, 1.0, 5.0, 20.0]),
)


def better(a: Saved, b: Saved, mode: Mode) -> bool:
    """Tell whether a beats b by the written rules."""
    assert a.metric is not None
    assert b.metric is not None
    if a.metric == b.metric:
        return a.step > b.step
    return (a.metric > b.metric) == (mode == "max")


@pytest.mark.takes_seconds
@given(saved=runs, mode=modes, newest=st.integers(1, 4), top=st.integers(0, 4))
@quick(300)
def test_the_newest_and_the_best_always_stay(saved: list[Saved], mode: Mode, newest: int, top: int) -> None:
    steps = kept(saved, Rules(keep_latest=newest, keep_best=top, mode=mode))
    by_step = sorted((s.step for s in saved), reverse=True)
    measured = [s for s in saved if s.metric is not None and math.isfinite(s.metric)]
    assert steps <= set(by_step)
    assert set(by_step[:newest]) <= steps
    assert len(steps) <= newest + top
    chosen = best(saved, mode)
    if top and chosen is not None:
        assert chosen.step in steps
    gone = [s for s in measured if s.step not in steps]
    stayed = [s for s in measured if s.step in steps]
    if top and gone:
        assert sum(all(better(s, g, mode) for g in gone) for s in stayed) >= top


@pytest.mark.takes_seconds
@given(saved=runs, mode=modes)
@quick(300)
def test_best_beats_every_other_and_is_never_nan(saved: list[Saved], mode: Mode) -> None:
    measured = [s for s in saved if s.metric is not None and math.isfinite(s.metric)]
    chosen = best(saved, mode)
    assert (chosen is None) == (measured == [])
    if chosen is not None:
        assert all(better(chosen, other, mode) for other in measured if other != chosen)


@pytest.mark.takes_seconds
@given(
    saved=runs, mode=modes, newest=st.integers(1, 4), top=st.integers(0, 4), order=st.randoms(use_true_random=False)
)
@quick(100)
def test_the_order_of_the_scan_does_not_matter_and_a_second_pass_keeps_the_same(
    saved: list[Saved], mode: Mode, newest: int, top: int, order: object
) -> None:
    steps = kept(saved, Rules(keep_latest=newest, keep_best=top, mode=mode))
    shuffled = list(saved)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert kept(shuffled, Rules(keep_latest=newest, keep_best=top, mode=mode)) == steps
    assert best(shuffled, mode) == best(saved, mode)
    rest = [s for s in saved if s.step in steps]
    assert kept(rest, Rules(keep_latest=newest, keep_best=top, mode=mode)) == steps


@pytest.mark.takes_seconds
@given(saved=timed_runs, rules=rules, data=st.data())
@quick(300)
def test_whatever_was_not_yet_removed_the_same_stays(saved: list[Saved], rules: Rules, data: st.DataObject) -> None:
    """A kill between two removals leaves some of what should be gone; the next retention removes just that."""
    stay = kept(saved, rules)
    left = data.draw(st.sets(st.sampled_from(saved)) if saved else st.just(set()))
    assert kept([s for s in saved if s.step in stay or s in left], rules) == stay


@pytest.mark.takes_seconds
@given(saved=timed_runs, rules=rules)
@quick(300)
def test_save_by_save_keeps_what_one_look_at_all_would(saved: list[Saved], rules: Rules) -> None:
    disk: list[Saved] = []
    for new in sorted(saved, key=lambda s: s.step):
        stay = kept([*disk, new], rules)
        disk = [s for s in [*disk, new] if s.step in stay]
    assert {s.step for s in disk} == kept(saved, rules)


@pytest.mark.takes_seconds
@given(saved=timed_runs, rules=rules)
@quick(300)
def test_each_reason_is_a_rule_of_its_own(saved: list[Saved], rules: Rules) -> None:
    """What a rule keeps does not depend on the other rules."""
    why = reasons(saved, rules)
    assert set(why) == kept(saved, rules)
    assert list(why) == sorted(why)
    off = {"keep_best": 0, "keep_every": 0, "keep_seconds": 0.0}
    for name, field in (("best", "keep_best"), ("every", "keep_every"), ("time", "keep_seconds")):
        alone = replace(rules, **{**off, field: getattr(rules, field)})
        by_rule = {step for step, names in why.items() if name in names}
        assert by_rule == {step for step, names in reasons(saved, alone).items() if name in names}


@pytest.mark.takes_seconds
@given(saved=timed_runs, seconds=st.sampled_from([1.0, 5.0, 20.0]))
@quick(300)
def test_no_gap_in_time_is_longer_than_it_must_be(saved: list[Saved], seconds: float) -> None:
    """With a clock that only goes forward, every checkpoint has one that stays less than so many seconds before."""
    times = sorted(s.saved_at for s in saved)
    ordered = [replace(s, saved_at=t) for s, t in zip(sorted(saved, key=lambda s: s.step), times, strict=True)]
    why = reasons(ordered, Rules(mode="max", keep_seconds=seconds))
    stay = [s for s in ordered if "time" in why.get(s.step, ())]
    assert all(b.saved_at - a.saved_at >= seconds for a, b in pairwise(stay))
    for one in ordered:
        assert any(0 <= one.saved_at - s.saved_at < seconds for s in stay)


def test_a_clock_that_ran_ahead_does_not_stop_the_time_rule() -> None:
    ahead = Saved(step=1, metric=None, saved_at=1e9)
    rest = [Saved(step=2 + n, metric=None, saved_at=30.0 * n) for n in range(5)]
    why = reasons([ahead, *rest], Rules(mode="max", keep_seconds=60.0))
    assert [step for step, names in why.items() if "time" in names] == [1, 2, 4, 6]


@given(saved=runs)
@quick(100)
def test_latest_is_the_newest_step_whatever_its_metric(saved: list[Saved]) -> None:
    chosen = latest(saved)
    assert (chosen.step if chosen else None) == max((s.step for s in saved), default=None)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_ties_go_to_the_newer(mode: Mode) -> None:
    saved = [Saved(step=3, metric=0.5), Saved(step=9, metric=0.5), Saved(step=6, metric=0.5)]
    chosen = best(saved, mode)
    assert chosen is not None
    assert chosen.step == 9
    assert kept(saved, Rules(keep_latest=1, keep_best=2, mode=mode)) == {9, 6}


@pytest.mark.parametrize("mode", ["max", "min"])
def test_nan_and_missing_metrics_are_never_best(mode: Mode) -> None:
    saved = [Saved(step=1, metric=math.nan), Saved(step=2, metric=None), Saved(step=3, metric=0.1)]
    chosen = best(saved, mode)
    assert chosen is not None
    assert chosen.step == 3
    assert best(saved[:2], mode) is None
    assert kept(saved[:2], Rules(keep_latest=1, keep_best=5, mode=mode)) == {2}


@pytest.mark.parametrize(("newest", "top"), [(0, 1), (-1, 1), (1, -1)])
def test_bounds_that_leave_nothing_are_refused(newest: int, top: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1 .*keep_latest={newest}, keep_best={top}"):
        Rules(keep_latest=newest, keep_best=top, mode="max")


@pytest.mark.parametrize("field", ["keep_every", "keep_seconds"])
@pytest.mark.parametrize("value", [-1, math.nan])
def test_a_rule_that_is_negative_or_no_number_is_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"no other rule negative.*{field}={value}"):
        Rules(mode="max", **{field: value})


def test_accuracy_is_maximised_and_loss_minimised() -> None:
    assert (mode_of("accuracy"), mode_of("loss")) == ("max", "min")


def test_a_mode_that_is_neither_is_refused():
    """It would be taken for the other one, and keep the worst."""
    with pytest.raises(ValueError, match="mode must be min or max, got 'maximum'"):
        Rules(mode="maximum")

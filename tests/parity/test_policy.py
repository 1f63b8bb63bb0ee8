"""Best and latest never fight: what one rule keeps, the other never removes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.policy import Mode, Rules, Saved, best, kept, latest, mode_of
from tests.parity.small import quick

metrics = st.none() | st.sampled_from([0.0, -0.0, 0.5, 0.9, 1.0, math.nan, math.inf, -math.inf]) | st.floats()
runs = st.lists(st.builds(Saved, step=st.integers(0, 200), metric=metrics), unique_by=lambda s: s.step, max_size=12)
modes: st.SearchStrategy[Mode] = st.sampled_from(["max", "min"])


def better(a: Saved, b: Saved, mode: Mode) -> bool:
    """Tell whether a beats b by the written rules."""
    assert a.metric is not None
    assert b.metric is not None
    if a.metric == b.metric:
        return a.step > b.step
    return (a.metric > b.metric) == (mode == "max")


@given(saved=runs, mode=modes, newest=st.integers(1, 4), top=st.integers(0, 4))
@quick(300)
def test_the_newest_and_the_best_always_stay(saved: list[Saved], mode: Mode, newest: int, top: int) -> None:
    steps = kept(saved, Rules(keep_latest=newest, keep_best=top, mode=mode))
    by_step = sorted((s.step for s in saved), reverse=True)
    measured = [s for s in saved if s.metric is not None and not math.isnan(s.metric)]
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


@given(saved=runs, mode=modes)
@quick(300)
def test_best_beats_every_other_and_is_never_nan(saved: list[Saved], mode: Mode) -> None:
    measured = [s for s in saved if s.metric is not None and not math.isnan(s.metric)]
    chosen = best(saved, mode)
    assert (chosen is None) == (measured == [])
    if chosen is not None:
        assert all(better(chosen, other, mode) for other in measured if other != chosen)


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


def test_accuracy_is_maximised_and_loss_minimised() -> None:
    assert (mode_of("accuracy"), mode_of("loss")) == ("max", "min")

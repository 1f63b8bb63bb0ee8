"""Random saves, metrics, kills, policy changes and resumes: what the policy promises is on disk at every moment.

The machine is a run directory in memory. Retention happens in the order of the real one (write, pointers, removals
one by one) and may be killed between any two of these; what follows is a restart, which remembers nothing.
"""

import math
from dataclasses import replace

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from parity.policy import Rules, Saved, best, kept, latest

NUMBERS = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 0.75, 1.0, math.inf, -math.inf])
METRICS = st.none() | NUMBERS | st.just(math.nan)
MODES = ("max", "min")


def measured(saved):
    return [s for s in saved if s.metric is not None and math.isfinite(s.metric)]


class Run(RuleBasedStateMachine):
    """One run: what is on disk, and all that was saved since something else than saves and kills happened."""

    retain = staticmethod(kept)
    """What decides at a save."""

    def __init__(self):
        super().__init__()
        self.disk: dict[int, Saved] = {}
        self.ever: dict[int, Saved] = {}
        """Had nothing been removed since the rules, a metric or the past were last changed, this would be there."""
        self.pointers: dict[str, int | None] = {"latest": None, "best": None}
        self.rules = Rules(mode="max")
        self.now = 0.0
        self.clean = True
        """No kill has left something that is still to be removed."""
        self.saves = 0
        """Since something else happened: rules act at saves only."""

    def forget(self):
        self.ever = dict(self.disk)
        self.saves = 0

    def point(self, steps):
        there = [self.disk[step] for step in steps]
        for name, one in (("latest", latest(there)), ("best", best(there, self.rules.mode))):
            self.pointers[name] = one and one.step

    @rule(
        metric=METRICS,
        seconds=st.sampled_from([1.0, 10.0, 30.0, 100.0, -50.0]),
        cut=st.none() | st.integers(0, 4),
    )
    def save(self, metric, seconds, cut):
        """Save the next step; `cut` operations later the process is killed."""
        self.now = max(0.0, self.now + seconds)
        step = max(self.disk, default=0) + 1
        new = Saved(step=step, metric=metric, saved_at=self.now)
        done = 0

        def killed():
            nonlocal done
            done += 1
            return cut is not None and done > cut

        if killed():
            return self.restart()  # before the rename: a draft, and no checkpoint
        top_before = self.top()
        self.disk[step] = self.ever[step] = new
        self.clean = False
        if killed():
            return self.restart()
        stay = self.retain(self.disk.values(), self.rules)
        self.point(stay)
        for gone in sorted(set(self.disk) - stay):
            if killed():
                return self.restart()
            del self.disk[gone]
        self.clean = True
        self.saves += 1
        if not measured([new]):
            assert top_before <= set(self.disk), "what has no number took the place of one that has"
        return None

    def top(self):
        """Return the m best of what is there, counted by hand."""
        sign = 1 if self.rules.mode == "max" else -1
        order = sorted(measured(self.disk.values()), key=lambda s: (sign * s.metric, s.step), reverse=True)
        return {s.step for s in order[: self.rules.keep_best]}

    def restart(self):
        """Start anew: pointers are set by what is there; nothing else is known."""
        self.point(self.disk)

    @rule()
    def stop_and_go_on(self):
        self.restart()

    @precondition(lambda self: self.disk)
    @rule(data=st.data(), metric=NUMBERS | st.just(math.nan))
    def late(self, data, metric):
        step = data.draw(st.sampled_from(sorted(self.disk)))
        self.disk[step] = replace(self.disk[step], metric=metric)
        self.forget()
        self.point(self.disk)

    @rule(
        latest=st.integers(1, 3),
        top=st.integers(0, 3),
        every=st.integers(0, 4),
        seconds=st.sampled_from([0.0, 30.0, 100.0]),
    )
    def change(self, latest, top, every, seconds):
        self.rules = replace(self.rules, keep_latest=latest, keep_best=top, keep_every=every, keep_seconds=seconds)
        self.forget()
        self.restart()

    @precondition(lambda self: self.disk)
    @rule(data=st.data())
    def go_back(self, data):
        chosen = best(self.disk.values(), self.rules.mode)
        steps = sorted(self.disk)
        step = data.draw(st.sampled_from([*steps, chosen.step] if chosen else steps))
        self.disk = {other: saved for other, saved in self.disk.items() if other <= step}
        self.forget()
        self.restart()

    @invariant()
    def nothing_that_stays_is_missing(self):
        stay = kept(self.ever.values(), self.rules)
        assert stay <= set(self.disk) <= set(self.ever), "missing"

    @invariant()
    def the_newest_and_the_best_ever_are_there(self):
        if self.ever:
            newest = sorted(self.ever)[-self.rules.keep_latest :]
            assert set(newest) <= set(self.disk)
        chosen = best(self.ever.values(), self.rules.mode)
        if chosen and self.rules.keep_best:
            assert self.disk[chosen.step] == chosen

    @invariant()
    def a_second_pass_removes_nothing(self):
        stay = kept(self.disk.values(), self.rules)
        assert kept([self.disk[step] for step in stay], self.rules) == stay

    @invariant()
    def pointers_point_to_what_is_there(self):
        for name, step in self.pointers.items():
            assert step is None or step in self.disk, name
        assert (self.pointers["latest"] is None) == (not self.disk)
        if self.pointers["best"] is not None:
            assert measured([self.disk[self.pointers["best"]]])

    @invariant()
    def multiples_stay(self):
        if self.rules.keep_every:
            assert {s for s in self.ever if s % self.rules.keep_every == 0} <= set(self.disk)

    @invariant()
    def no_more_stays_than_the_rules_can_name(self):
        rules = self.rules
        if self.clean and self.saves and not rules.keep_every and not rules.keep_seconds:
            assert len(self.disk) <= rules.keep_latest + rules.keep_best, "left"


class MinimisingRun(Run):
    """The same for a loss."""

    def __init__(self):
        super().__init__()
        self.rules = Rules(mode="min")


SETTINGS = settings(max_examples=80, stateful_step_count=30, deadline=None, derandomize=True, database=None)
TestRun = Run.TestCase
TestMinimisingRun = MinimisingRun.TestCase
TestRun.settings = TestMinimisingRun.settings = SETTINGS


def nan_as_one(saved, rules):
    return kept([replace(s, metric=1.0) if s.metric != s.metric else s for s in saved], rules)


def not_finite_as_large(saved, rules):
    large = 2.0 if rules.mode == "max" else -2.0
    return kept([s if s in measured([s]) or s.metric is None else replace(s, metric=large) for s in saved], rules)


def all_times(saved, rules):
    """Forget which checkpoint the time is counted from."""
    spaced = replace(rules, keep_seconds=0.0)
    newest = max(saved, key=lambda s: s.step)
    return kept(saved, spaced) | ({newest.step} if rules.keep_seconds else set())


WRONG = {
    "best evicted by age": (lambda saved, rules: kept(saved, replace(rules, keep_best=0)), "missing|number"),
    "latest evicted by metric": (
        lambda saved, rules: {s.step for s in measured(saved)} or kept(saved, rules),
        "missing",
    ),
    "NaN counts": (nan_as_one, "missing|number"),
    "what is not finite wins": (not_finite_as_large, "missing|number"),
    "every k-th of another": (
        lambda saved, rules: kept(saved, replace(rules, keep_every=2 * rules.keep_every)),
        "missing",
    ),
    "time from the newest": (all_times, "missing"),
    "nothing removed": (lambda saved, rules: {s.step for s in saved}, "left"),
}


@pytest.mark.takes_seconds("NaN counts", "what is not finite wins", "nothing removed")
@pytest.mark.parametrize("name", WRONG)
def test_the_machine_finds_a_wrong_policy(name):
    choose, said = WRONG[name]
    wrong = type("Wrong", (Run,), {"retain": staticmethod(choose)})
    once = settings(SETTINGS, print_blob=False, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises(AssertionError, match=said):
        run_state_machine_as_test(wrong, settings=once)

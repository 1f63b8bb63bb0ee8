"""Wrong policies as they are met in practice, each with the groups of cases that must find it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from parity import policy
from parity.policy import PolicyInMemory, Rules, Saved

__all__ = ["PLANTS"]


class KeepingBy(PolicyInMemory):
    """Keeps what a wrong function keeps; best and latest are right."""

    def __init__(self, rules: Rules, choose: Callable[[list[Saved], Rules], set[int]]) -> None:
        super().__init__(rules)
        self.choose = choose

    def kept(self) -> set[int]:
        return self.choose(sorted(self.saved.values(), key=lambda s: s.step), self._rules)


class SeeingBy(PolicyInMemory):
    """Sees every metric through a wrong function, for eviction and for best."""

    def __init__(self, rules: Rules, see: Callable[[Saved, Rules], Saved]) -> None:
        super().__init__(rules)
        self.see = see

    def _seen(self) -> list[Saved]:
        return [self.see(saved, self._rules) for saved in self.saved.values()]

    def kept(self) -> set[int]:
        return policy.kept(self._seen(), self._rules)

    def best(self) -> int | None:
        found = policy.best(self._seen(), self._rules.mode)
        return None if found is None else found.step


def keeping(choose: Callable[[list[Saved], Rules], set[int]]) -> Callable[[Rules], PolicyInMemory]:
    return lambda rules: KeepingBy(rules, choose)


def seeing(see: Callable[[Saved, Rules], Saved]) -> Callable[[Rules], PolicyInMemory]:
    return lambda rules: SeeingBy(rules, see)


def worst(rules: Rules) -> float:
    return -1e300 if rules.mode == "max" else 1e300


def top(saved: list[Saved], rules: Rules, count: int) -> set[int]:
    """Return the best by metric, ties to the newer, anything unmeasured last."""
    sign = 1 if rules.mode == "max" else -1

    def rank(one: Saved) -> tuple[float, int]:
        bad = one.metric is None or not math.isfinite(one.metric)
        return (-math.inf if bad else sign * one.metric, one.step)

    return {s.step for s in sorted(saved, key=rank)[len(saved) - min(count, len(saved)) :]}


def beside_latest(saved: list[Saved], rules: Rules) -> set[int]:
    """Count the m best among those only that are not among the n newest."""
    newest = {s.step for s in saved[-rules.keep_latest :]}
    rest = [s for s in saved if s.step not in newest and s.metric is not None and math.isfinite(s.metric)]
    others = policy.kept(saved, replace(rules, keep_best=0))
    return others | (top(rest, rules, rules.keep_best) if rules.keep_best else set())


def by_rules(**changes: object) -> Callable[[Rules], PolicyInMemory]:
    return keeping(lambda saved, rules: policy.kept(saved, replace(rules, **changes)))


def every(test: Callable[[int, int], bool]) -> Callable[[Rules], PolicyInMemory]:
    def choose(saved: list[Saved], rules: Rules) -> set[int]:
        multiples = {s.step for s in saved if rules.keep_every and test(s.step, rules.keep_every)}
        return policy.kept(saved, replace(rules, keep_every=0)) | multiples

    return keeping(choose)


class TiesToOlder(PolicyInMemory):
    """Compares with > where >= is meant."""

    def _seen(self) -> list[Saved]:
        return [replace(s, step=-s.step) for s in self.saved.values()]

    def kept(self) -> set[int]:
        seen = sorted(self._seen(), key=lambda s: s.step)
        mine = policy.kept(self.saved.values(), replace(self._rules, keep_best=0))
        return mine | {-step for step, why in policy.reasons(seen, self._rules).items() if "best" in why}

    def best(self) -> int | None:
        found = policy.best(self._seen(), self._rules.mode)
        return None if found is None else -found.step


class RestartForgets(PolicyInMemory):
    """Holds metrics in memory only."""

    def restart(self) -> None:
        self.saved = {step: replace(saved, metric=None) for step, saved in self.saved.items()}


class TimeRestarts(PolicyInMemory):
    """Measures the time from the start of the process."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        self.old: set[int] = set()

    def restart(self) -> None:
        self.old = set(self.saved)

    def kept(self) -> set[int]:
        plain = policy.kept(self.saved.values(), replace(self._rules, keep_seconds=0.0))
        timed: set[int] = set()
        for part in (True, False):
            own = [s for s in self.saved.values() if (s.step in self.old) == part]
            timed |= {step for step, why in policy.reasons(own, self._rules).items() if "time" in why}
        return plain | timed


class SinceLast(PolicyInMemory):
    """Measures the time between one save and the next, kept or not."""

    last = -math.inf

    def save(self, step: int, metric: float | None, saved_at: float) -> None:
        self.keep = getattr(self, "keep", set()) | (
            {step} if saved_at >= self.last + self._rules.keep_seconds else set()
        )
        self.last = saved_at
        super().save(step, metric, saved_at)

    def kept(self) -> set[int]:
        timed = self.keep & set(self.saved) if self._rules.keep_seconds else set()
        return policy.kept(self.saved.values(), replace(self._rules, keep_seconds=0.0)) | timed


def clock_trusted(saved: list[Saved], rules: Rules) -> set[int]:
    """Wait until a clock that was set back has caught up."""
    stay, last = policy.kept(saved, replace(rules, keep_seconds=0.0)), -math.inf
    for one in saved:
        if rules.keep_seconds and one.saved_at >= last + rules.keep_seconds:
            stay.add(one.step)
            last = one.saved_at
    return stay


class LateIgnored(PolicyInMemory):
    """Takes no metric after the save."""

    def metric(self, step: int, value: float) -> None:
        self._require(step)


class LateEvicts(PolicyInMemory):
    """Removes checkpoints when a metric arrives."""

    def metric(self, step: int, value: float) -> None:
        super().metric(step, value)
        stay = self.kept()
        self.saved = {step: saved for step, saved in self.saved.items() if step in stay}


class LateByStep(PolicyInMemory):
    """Remembers late metrics by step, whichever checkpoint has it."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        self.late: dict[int, float] = {}

    def metric(self, step: int, value: float) -> None:
        super().metric(step, value)
        self.late[step] = value

    def save(self, step: int, metric: float | None, saved_at: float) -> None:
        super().save(step, self.late.get(step, metric), saved_at)


class LateAnywhere(PolicyInMemory):
    """Takes a metric for what is gone without a word."""

    def metric(self, step: int, value: float) -> None:
        if step in self.saved:
            super().metric(step, value)


class LateNanIgnored(PolicyInMemory):
    """Keeps the old metric when NaN arrives."""

    def metric(self, step: int, value: float) -> None:
        if not math.isnan(value):
            super().metric(step, value)


class ChangeEvicts(PolicyInMemory):
    """Applies changed rules when the process starts."""

    def rules(self, rules: Rules) -> None:
        super().rules(rules)
        stay = self.kept()
        self.saved = {step: saved for step, saved in self.saved.items() if step in stay}


class ChangeIgnored(PolicyInMemory):
    """Goes on under the rules the run was started with."""

    def rules(self, rules: Rules) -> None:
        pass


class NewerStay(PolicyInMemory):
    """Goes on from an older step beside what is newer."""

    def resume(self, which: object) -> None:
        if isinstance(which, int):
            self._require(which)


class BestIsLatest(PolicyInMemory):
    """Goes on from the latest when asked for the best."""

    def resume(self, which: object) -> None:
        super().resume("latest" if which == "best" else which)  # type: ignore[arg-type]


class NearestTaken(PolicyInMemory):
    """Takes the nearest step when the one that is named is not there."""

    def resume(self, which: object) -> None:
        if isinstance(which, int) and which not in self.saved:
            which = min(self.saved, key=lambda step: abs(step - which))
        super().resume(which)  # type: ignore[arg-type]


class BestEver(PolicyInMemory):
    """Points to the best that was ever saved, there or not."""

    ever: Saved | None = None

    def save(self, step: int, metric: float | None, saved_at: float) -> None:
        known = [s for s in (self.ever, Saved(step=step, metric=metric)) if s]
        self.ever = policy.best(known, self._rules.mode)
        super().save(step, metric, saved_at)

    def best(self) -> int | None:
        return self.ever.step if self.ever else None


class LatestIsBest(PolicyInMemory):
    """Goes on from what is best."""

    def latest(self) -> int | None:
        return self.best() or super().latest()


def nan_wins(saved: Saved, rules: Rules) -> Saved:
    bad = saved.metric is not None and math.isnan(saved.metric)
    return replace(saved, metric=-worst(rules)) if bad else saved


def nan_counts(saved: Saved, rules: Rules) -> Saved:
    bad = saved.metric is not None and math.isnan(saved.metric)
    return replace(saved, metric=worst(rules)) if bad else saved


def missing_is_zero(saved: Saved, rules: Rules) -> Saved:
    return saved if saved.metric is not None else replace(saved, metric=0.0)


class InfinityCounts(PolicyInMemory):
    """Takes an infinite metric for the largest, or smallest, of all numbers."""

    def kept(self) -> set[int]:
        return policy.kept(map(_large, self.saved.values()), self._rules)

    def best(self) -> int | None:
        found = policy.best(map(_large, self.saved.values()), self._rules.mode)
        return None if found is None else found.step


def _large(saved: Saved) -> Saved:
    infinite = saved.metric is not None and math.isinf(saved.metric)
    return replace(saved, metric=math.copysign(1e300, saved.metric)) if infinite else saved


class BetweenIgnored(PolicyInMemory):
    """Saves where a save is due, and nowhere else."""

    def validated(self, step: int, metric: float, saved_at: float) -> None:
        pass


class BetweenAlways(PolicyInMemory):
    """Saves at every validation."""

    def validated(self, step: int, metric: float, saved_at: float) -> None:
        self.save(step, metric, saved_at)


class BetweenBestEver(PolicyInMemory):
    """Saves where the metric is above all that were ever saved, given up or not."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        self.ever: list[Saved] = []

    def save(self, step: int, metric: float | None, saved_at: float) -> None:
        self.ever.append(Saved(step=step, metric=metric))
        super().save(step, metric, saved_at)

    def validated(self, step: int, metric: float, saved_at: float) -> None:
        if policy.is_new_best(self.ever, Saved(step=step, metric=metric), self._rules.mode):
            super().validated(step, metric, saved_at)


def signless(saved: Saved, rules: Rules) -> Saved:
    return saved if saved.metric is None else replace(saved, metric=abs(saved.metric))


def flipped(saved: Saved, rules: Rules) -> Saved:
    return saved if saved.metric is None or rules.mode == "max" else replace(saved, metric=-saved.metric)


def negative_zero_below(saved: Saved, rules: Rules) -> Saved:
    lower = saved.metric == 0 and math.copysign(1, saved.metric) < 0
    return replace(saved, metric=-5e-324) if lower else saved


PLANTS: dict[str, tuple[Callable[[Rules], PolicyInMemory], set[str]]] = {
    "ties go to the older": (TiesToOlder, {"ties"}),
    "minus zero is less than zero": (seeing(negative_zero_below), {"ties"}),
    "NaN is best": (seeing(nan_wins), {"nan"}),
    "NaN takes the place of the worst": (seeing(nan_counts), {"nan"}),
    "a missing metric is zero": (seeing(missing_is_zero), {"missing"}),
    "an infinite metric counts": (InfinityCounts, {"infinite"}),
    "a new best between saves is not saved": (BetweenIgnored, {"between"}),
    "every validation is saved": (BetweenAlways, {"between"}),
    "a best that was given up still counts": (BetweenBestEver, {"between"}),
    "the sign is dropped": (seeing(signless), {"best"}),
    "larger is always better": (seeing(flipped), {"best"}),
    "best is evicted by age": (by_rules(keep_best=0), {"age", "restart"}),
    "one best less": (
        keeping(lambda saved, rules: policy.kept(saved, replace(rules, keep_best=max(0, rules.keep_best - 1)))),
        {"best", "age"},
    ),
    "one latest more": (
        keeping(lambda saved, rules: policy.kept(saved, replace(rules, keep_latest=rules.keep_latest + 1))),
        {"latest"},
    ),
    "latest is evicted by metric": (
        keeping(lambda saved, rules: top(saved, rules, rules.keep_latest + rules.keep_best)),
        {"metric", "latest"},
    ),
    "the m best are counted beside the n latest": (keeping(beside_latest), {"best"}),
    "latest points to best": (LatestIsBest, {"metric", "age"}),
    "best points to what is gone": (BestEver, {"latest", "back"}),
    "every k-th is off by one": (every(lambda step, k: (step + 1) % k == 0), {"every"}),
    "every k-th of the saves": (every(lambda step, k: (step // 10) % max(1, round(k / 10)) == 0), {"every"}),
    "every k-th is left out": (by_rules(keep_every=0), {"every", "back"}),
    "time is measured from the start of the process": (TimeRestarts, {"time"}),
    "time is measured from save to save": (SinceLast, {"time"}),
    "a clock set back is waited for": (keeping(clock_trusted), {"time"}),
    "a restart forgets metrics": (RestartForgets, {"restart", "late"}),
    "a late metric is ignored": (LateIgnored, {"late"}),
    "a late metric evicts at once": (LateEvicts, {"late"}),
    "a late metric stays with the step": (LateByStep, {"late"}),
    "a late metric for what is gone is accepted": (LateAnywhere, {"late"}),
    "a late NaN is ignored": (LateNanIgnored, {"late"}),
    "changed rules evict at once": (ChangeEvicts, {"change"}),
    "changed rules are ignored": (ChangeIgnored, {"change"}),
    "what is newer stays": (NewerStay, {"back"}),
    "best goes on from the latest": (BestIsLatest, {"back"}),
    "the nearest step is taken": (NearestTaken, {"back"}),
}
"""What is wrong, to an implementation that does it and the groups of cases that must say so."""

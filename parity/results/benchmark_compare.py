"""Two files of benchmarks, compared by their ratios.

A time depends on the machine as much as on the code, so no time is judged. A ratio of two ways to do the same work,
taken round by round in one process, can be compared between files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parity.environment import compare_environments
from parity.results.benchmarks import BenchmarkFile, Ratio
from parity.results.record import Verdict

__all__ = ["BenchmarkComparison", "RatioChange", "RatioVerdict", "compare_benchmarks"]

MACHINE = (
    "cpu.brand_raw", "cpu.count", "usable_cpus", "machine", "system", "python_implementation", "python_version",
    "versions", "jax.devices", "torch.devices", "torch.threads", "torch.interop_threads", "thread_settings",
)  # fmt: skip
"""What a ratio may depend on; host names and clock rates are left out."""

RatioVerdict = Literal["worse", "better", "same", "undecided", "new", "gone", "unjudged"]
"""`same`: within what is allowed. `undecided`: moved by more, but the spreads of the files overlap. `unjudged`: too
few rounds. `new`, `gone`: in one file only."""

FEWEST_ROUNDS = 3
"""With fewer, neither an interval nor quartiles are a spread."""


@dataclass(frozen=True, kw_only=True)
class RatioChange:
    """One ratio in two files."""

    benchmark: str
    ratio: str
    old: Ratio | None
    """None if only the new file has it."""
    new: Ratio | None
    """None if only the old file has it."""
    worse_by: float | None
    """Relative change of the median in the direction that is worse: 0.05 is 5 % worse, negative is better."""
    verdict: RatioVerdict


@dataclass(frozen=True, kw_only=True)
class BenchmarkComparison:
    """Two files, ratio by ratio."""

    changes: tuple[RatioChange, ...]
    warnings: tuple[str, ...]
    """What makes the comparison weaker: another machine, other versions, other sets of ratios."""

    @property
    def shared(self) -> int:
        """Return how many ratios both files have."""
        return sum(change.worse_by is not None for change in self.changes)

    @property
    def judged(self) -> int:
        """Return how many of them have rounds enough to be judged."""
        return self.shared - sum(change.verdict == "unjudged" for change in self.changes)

    @property
    def worse(self) -> tuple[RatioChange, ...]:
        """Return the ratios that got worse."""
        return tuple(change for change in self.changes if change.verdict == "worse")

    @property
    def verdict(self) -> Verdict:
        """Return `broken` if a ratio got worse, `empty` if none can be judged, else `holds`."""
        return "empty" if not self.judged else "broken" if self.worse else "holds"


def compare_benchmarks(old: BenchmarkFile, new: BenchmarkFile, allowed: float) -> BenchmarkComparison:
    """Compare two files ratio by ratio.

    A ratio is `worse` (or `better`) if its median moved by more than `allowed` and the 95 % intervals of the two
    files do not touch; if they do, it is `undecided`. Two runs of the same code have intervals apart on the wrong
    side in 0.2 % of all comparisons at five rounds, 1.5 % at seven and 0.2 % at twenty (normal noise, simulated),
    before they must also differ by `allowed`. Where a file of an earlier version has none, the quartiles of both
    files take their place. Below three rounds there is no spread to speak of, and no verdict.

    Args:
        old: What is compared with.
        new: What may have got worse.
        allowed: Relative change of a median that is let pass, 0.05 for 5 %.
    """
    before, after = _ratios(old), _ratios(new)
    changes = tuple(_change(key[0], before.get(key), after.get(key), allowed) for key in {**before, **after})
    warnings = compare_environments(old.machine, new.machine, MACHINE, "machines")
    for verdict, other in (("gone", "new"), ("new", "old")):
        if some := [f"{c.benchmark}: {c.ratio}" for c in changes if c.verdict == verdict]:
            rest = f" and {len(some) - 3} more" if len(some) > 3 else ""
            warnings.append(f"not in the {other} file: {'; '.join(some[:3])}{rest}")
    return BenchmarkComparison(changes=changes, warnings=tuple(warnings))


def _ratios(file: BenchmarkFile) -> dict[tuple[str, str, str, str], Ratio]:
    """Return the ratios of a file; one that is of something else, or better the other way, is another ratio."""
    return {(b.name, r.name, r.of, r.better): r for b in file.benchmarks for r in b.ratios}


def _change(benchmark: str, old: Ratio | None, new: Ratio | None, allowed: float) -> RatioChange:
    some = old or new
    assert some is not None
    if old is None or new is None:
        verdict: RatioVerdict = "gone" if new is None else "new"
        return RatioChange(benchmark=benchmark, ratio=some.name, old=old, new=new, worse_by=None, verdict=verdict)
    first, second = (old, new) if some.better == "lower" else (new, old)
    worse_by, better_by = _rise(first.median, second.median), _rise(second.median, first.median)
    verdict = "same"
    if min(old.rounds, new.rounds) < FEWEST_ROUNDS:
        verdict = "unjudged"
    elif max(worse_by, better_by) > allowed:
        (low, high), (after_low, after_high) = _spreads(first, second)
        apart = after_low > high if worse_by > allowed else after_high < low
        verdict = "undecided" if not apart else "worse" if worse_by > allowed else "better"
    return RatioChange(benchmark=benchmark, ratio=some.name, old=old, new=new, worse_by=worse_by, verdict=verdict)


def _spreads(first: Ratio, second: Ratio) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the intervals of two ratios, or the quartiles of both where one has no interval."""
    if first.interval is not None and second.interval is not None:
        return first.interval, second.interval
    return (first.q1, first.q3), (second.q1, second.q3)


def _rise(start: float, end: float) -> float:
    """Return the relative rise; from or to 0 and below, the share of the larger that lies between.

    A ratio of a difference (the delay by a save) may come out below 0 where there is nothing to measure.
    """
    if start > 0 and end > 0:
        return end / start - 1
    return (end - start) / (max(abs(start), abs(end)) or 1.0)

"""Checkpoints in the folder of a run, held against the rules that its trainer says it keeps them by."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from parity import policy
from parity.checks.judging.evidence import Evidence
from parity.checks.running import Mark, Trace, is_log, without_digits
from parity.errors import SpecError

__all__ = ["judge_kept"]

WHEN = "by the rules of keep"


def judge_kept(trace: Trace, rules: policy.Rules, metric: str) -> list[Evidence]:
    """Compare the checkpoints in the folder at each mark with those that the rules keep.

    Args:
        trace: The uninterrupted run.
        rules: What its trainer says it keeps.
        metric: Variable that holds the metric at a save; empty where no checkpoint is kept for its metric.

    Returns:
        The first departure: a checkpoint that is gone although a rule keeps it, or a best one that is not the best.

    Raises:
        SpecError: Checkpoints are kept by a metric that no variable holds.
    """
    marks = trace.marks
    if rules.keep_best and all(math.isnan(_metric(mark, metric)) for mark in marks):
        raise SpecError("metric", f"must name the variable with the metric of a save; none is called {metric!r}")
    numbered: dict[str, policy.Saved] = {}
    fixed: dict[str, policy.Saved] = {}
    there: set[str] = set()
    expected: dict[int, policy.Saved] = {}
    for at, mark in enumerate(marks[1:]):
        there = (there | {*mark.saved}) - {*mark.gone}
        value = _metric(mark, metric)
        one = policy.Saved(step=mark.step, metric=None if math.isnan(value) else value)
        names = {_checkpoint(name) for name in mark.saved if not is_log(name)}
        names |= {name for removed, name in trace.removed if removed == at and _is_like(name, numbered)}
        for name in sorted(names):
            if without_digits(name) == name:
                before = fixed.get(name)
                if before is not None and _is_best(name) and _better(before, one, rules):
                    return [_not_the_best(name, mark.step, before, one)]
                fixed[name] = one
            elif name not in numbered:
                numbered[name] = expected[mark.step] = one
        stay = policy.reasons(expected.values(), rules)
        expected = {step: saved for step, saved in expected.items() if step in stay}
        present = {_checkpoint(name) for name in there}
        for name, saved in numbered.items():
            if saved.step in stay and name not in present:
                return [_gone(name, mark.step, stay[saved.step])]
        missed = [name for name, saved in fixed.items() if _is_best(name) and _better(one, saved, rules)]
        if missed and names:
            return [_not_the_best(missed[0], mark.step, one, fixed[missed[0]])]
        lost = [name for name in fixed if name not in present]
        if lost:
            return [_gone(lost[0], mark.step, ("best",) if _is_best(lost[0]) else ("latest",))]
    return []


def _metric(mark: Mark, name: str) -> float:
    """Return the value of a variable at a mark; NaN where there is none."""
    leaves = mark.snapshot.leaves
    path = name if name in leaves else next((p for p in leaves if name and p.endswith(f".{name}")), None)
    try:
        return float(leaves[path].digest) if path is not None else math.nan
    except ValueError:
        return math.nan


def _checkpoint(name: str) -> str:
    """Return what a file belongs to: the outermost directory with a number in its name, or the file itself."""
    parts = name.split("/")
    for at, part in enumerate(parts):
        if without_digits(part) != part:
            return "/".join(parts[: at + 1])
    return name


def _is_like(name: str, numbered: Collection[str]) -> bool:
    """Return whether a name is a checkpoint's that no mark saw: removed in the step that saved it."""
    return name not in numbered and without_digits(name) in {without_digits(known) for known in numbered}


def _is_best(name: str) -> bool:
    return "best" in name.lower()


def _better(one: policy.Saved, other: policy.Saved, rules: policy.Rules) -> bool:
    """Return whether a metric is better, not merely as good."""
    return one.metric != other.metric and policy.best([other, one], rules.mode) is one


def _not_the_best(name: str, step: int, best: policy.Saved, kept: policy.Saved) -> Evidence:
    """Return that the best checkpoint holds a worse one."""
    expected, got = (f"that of step {saved.step}, metric {saved.metric}" for saved in (best, kept))
    return Evidence("best", name, step, expected, got, WHEN)


def _gone(name: str, step: int, why: Sequence[str]) -> Evidence:
    component = "best" if tuple(why) == ("best",) else "checkpoint.retention"
    return Evidence(component, name, step, f"kept as {' and '.join(why)}", "deleted", WHEN)

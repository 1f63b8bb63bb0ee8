"""Files of a run: what a resumed one left against what one left that nothing stopped, and which it kept.

Every file counts, whatever it is called: a log, an exported model, a checkpoint. Two equal runs say what is noise:
names with times or process numbers, folders of one process. Checkpoints are held against the rules that the trainer
says it keeps them by.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from parity import policy
from parity.capture import Leaf, PathLeaves, component_from_name, differing
from parity.checks.judging.evidence import Evidence, Outcome, text_of
from parity.checks.running import CURVES, Mark, Trace, is_log, without_digits
from parity.errors import SpecError

__all__ = [
    "TIMED",
    "ProcessStart",
    "begun_of",
    "is_within",
    "judge_files",
    "judge_kept",
    "own_folders",
    "with_plain_names",
]

TIMED = "~"
"""Before the number that stands for the digits of a name, counted in the order of the names."""


def own_folders(new: Iterable[str], reference: Collection[str]) -> set[str]:
    """Return the directories that one process alone made, the outermost ones.

    Args:
        new: Files that it wrote and no process before it.
        reference: Files that the uninterrupted run wrote.

    Example:
        >>> sorted(own_folders(["logs/version_1/metrics.csv", "step_9.pt"], ["logs/version_0/metrics.csv"]))
        ['logs/version_1']
    """
    known = {folder for name in reference for folder in _folders(name)}
    alone = (next((folder for folder in _folders(name) if folder not in known), "") for name in new)
    return {folder for folder in alone if folder}


def is_within(name: str, own: Collection[str]) -> bool:
    """Return whether a file lies in a directory of one process, or in one of its kind."""
    kinds = {without_digits(folder) for folder in own}
    return any(without_digits(folder) in kinds for folder in _folders(name))


def _folders(name: str) -> list[str]:
    """Return the directories of a file, the outermost first."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: at + 1]) for at in range(len(parts))]


def with_plain_names(
    expected: PathLeaves, again: PathLeaves, got: PathLeaves
) -> tuple[PathLeaves, PathLeaves, PathLeaves]:
    """Return the leaves with numbers in the place of digits that two equal runs do not share in names of files.

    `log-20250131-1200.json` is another name in each run, and the first of its kind in all of them. Names in which
    equal runs differ in number stay as they are: nothing can be said of them.

    Args:
        expected: What the uninterrupted run left: `file: path in it` to leaf.
        again: What an equal run left.
        got: What the resumed run left.
    """
    theirs, others, ours = _by_family(expected), _by_family(again), _by_family(got)
    timed = {f for f, names in theirs.items() if names != others.get(f) and len(names) == len(others.get(f, ()))}
    return _renamed(expected, theirs, timed), _renamed(again, others, timed), _renamed(got, ours, timed)


def _by_family(leaves: PathLeaves) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted({path.partition(":")[0] for path in leaves}):
        found[without_digits(name)].append(name)
    return found


def _renamed(leaves: PathLeaves, families: Mapping[str, list[str]], timed: Collection[str]) -> PathLeaves:
    counted = ((family, at, name) for family in timed for at, name in enumerate(families.get(family, ())))
    plain = {name: f"{family}{TIMED}{at}" for family, at, name in counted}
    parts = ((*path.partition(":"), leaf) for path, leaf in leaves.items())
    return {f"{plain.get(name, name)}{colon}{rest}": leaf for name, colon, rest, leaf in parts}


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


def judge_files(
    expected: Mapping[str, Leaf],
    again: Mapping[str, Leaf],
    got: Mapping[str, Leaf],
    steps: tuple[int, int],
    own: Collection[str] = (),
    logs: Collection[str] = (),
    begun: ProcessStart | None = None,
    earlier: Collection[str] = (),
) -> Outcome:
    """Compare what a resumed run left with what a run left that nothing stopped.

    Args:
        expected: What the uninterrupted run left: `file: path in it` to leaf.
        again: What an equal run left.
        got: What the resumed run left.
        steps: Completed steps at the resume, and at the end.
        own: Directories that the resumed process alone made, as `own_folders` returns them. Each process writes into
            one of its own: what is in others of that kind cannot be compared.
        logs: Files that grow while a run goes: a process may begin one anew.
        begun: What is known of the beginning of the two processes; by default nothing.
        earlier: Files that the process before left at its own end, as no run does that goes on: a last save, which
            takes a place among those that a rotation keeps.
    """
    out, begun = Outcome(), begun or ProcessStart()
    start, end = steps
    expected, again, got = with_plain_names(expected, again, got)
    noise = set(differing(expected, again))
    names, names_again, names_got = _files(expected), _files(again), _files(got)
    families = {without_digits(name) for name in names}
    numbers = Counter(without_digits(name) for name in names)
    chance = {without_digits(name) for name in names ^ names_again}  # names that equal runs do not share
    added = {without_digits(name) for name in earlier}
    kept = Counter(without_digits(name) for name in names_got)
    timed = {name.rpartition(TIMED)[0] for name in names_got if TIMED in name}
    repeated = {family for family in timed if _only_repeats(family, expected, got, noise)}
    for name in sorted(names ^ names_got):
        family = without_digits(name)
        if family in chance or is_within(name, own):
            continue
        before, after = ("there", "absent") if name in names else ("absent", "there")
        item = Evidence(
            _component(name, "checkpoint.retention"), name, end, before, after, "in the folder at the end"
        )
        # what an unfinished save left, or a resumed process alone writes, is of no kind that a whole run leaves; of
        # files with a time in their names a process may write one of its own
        its_own = name not in names and (family not in families or (TIMED in name and numbers[family] == 1))
        takes_a_place = name in earlier or (family in added and kept[family] >= numbers[family])
        again_written = name.rpartition(TIMED)[0] in repeated and name not in names
        (out.bookkeeping if its_own or takes_a_place or again_written else out.broken).append(item)
    rewritten = {name for name in names & names_got & set(logs) if _only_the_end(name, expected, got)}
    fewer = {without_digits(name) for name in names ^ names_got if TIMED in name}  # which is which cannot be said
    for path in sorted(differing(expected, got)):
        name, _, inside = path.partition(": ")
        name = name.rstrip(":")
        if name not in names & names_got or without_digits(name) in fewer:
            continue
        if path == f"{name}:" and path in noise:  # nothing here reads it, and two equal runs differ in it
            item = Evidence("checkpoint", path, end, "bytes in which equal runs differ", "not compared", f"in {name}")
            out.bookkeeping.append(item)
            continue
        leaf = expected.get(path)
        if path in noise or f"{name}:" in noise or leaf is None or leaf.role in ("structure", "alias"):
            continue
        component = _component(name, component_from_name(inside) if inside else "checkpoint")
        item = Evidence(component, path, end, leaf.text, text_of(got.get(path)), f"in {name} at the end")
        harmless = name in rewritten or begun.tells(name, leaf, got.get(path), start) or is_within(name, own)
        # events that were not flushed at the kill are gone: a curve with a hole is no other curve
        harmless = harmless or (name.rpartition("/")[2] == CURVES and path not in got)
        (out.bookkeeping if harmless else out.broken).append(item)
    out.bookkeeping += [
        Evidence(_component(path, "checkpoint"), path, end, "absent", leaf.text, "in the folder at the end")
        for path, leaf in sorted(_further_lines(expected, got, noise).items())
        if not is_within(path.partition(":")[0], own)
    ]
    return out


_AGAIN = re.compile(r" \(\d+\)$")
"""At the end of a line that a file has several times: which of them it is."""


def _further_lines(expected: PathLeaves, got: PathLeaves, noise: Collection[str]) -> dict[str, Leaf]:
    """Return the lines of texts that the resumed run alone wrote and that are of a kind the other run writes too.

    As an event that is told once more, at another step. A process may say so when it begins or goes on, so such lines
    are listed; those of a kind of their own, such as `resumed from 12`, are not.
    """
    theirs = {path for path, leaf in expected.items() if leaf.kind == "line"}
    kinds, chance = (
        {without_digits(path) for path in theirs},
        {path.partition(":")[0] for path in noise if path in theirs},
    )
    return {
        path: leaf
        for path, leaf in got.items()
        if leaf.kind == "line" and path not in expected and without_digits(_AGAIN.sub("", path)) in kinds
        and path.partition(":")[0] not in chance
    }  # fmt: skip


def _component(name: str, otherwise: str) -> str:
    """Return what a difference in a file is called: a word for the reader, nothing depends on it."""
    return "best" if "best" in name.lower() else otherwise


def _only_repeats(family: str, expected: PathLeaves, got: PathLeaves, noise: Collection[str]) -> bool:
    """Return whether files with times in their names are more of the same: steps made again wrote theirs once more.

    Args:
        family: Their name without digits.
        expected: What the uninterrupted run left, names with times replaced.
        got: The same of the resumed one.
        noise: Paths in which equal runs differ.
    """
    start = f"{family}{TIMED}"
    chance = {path.partition(":")[2] for path in noise if path.startswith(start)}

    def contents_of(leaves: PathLeaves) -> list[frozenset[tuple[str, str]]]:
        found: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for path, leaf in leaves.items():
            name, _, inside = path.partition(":")
            if name.startswith(start):
                found[name].update(() if inside in chance else ((inside, leaf.text),))
        return [frozenset(one) for one in found.values()]

    theirs, ours = contents_of(expected), contents_of(got)
    return all(ours) and len(ours) > len(theirs) and set(ours) == set(theirs)


def _only_the_end(name: str, expected: Mapping[str, Leaf], got: Mapping[str, Leaf]) -> bool:
    """Return whether a log of the resumed run has the last lines alone: each process writes it anew."""
    lines = [path for path, leaf in expected.items() if leaf.kind == "line" and path.startswith(f"{name}: ")]
    there = [path for path in lines if path in got]
    equal = all(
        got[path].same(leaf) for path, leaf in expected.items() if path in got and path.startswith(f"{name}: ")
    )
    return bool(there) and equal and there == lines[len(lines) - len(there) :]


_NOTHING = ("0", "None", "False")


@dataclass(frozen=True)
class ProcessStart:
    """How two processes began: what each held from its first mark to its end, and what it had written by then."""

    values: frozenset[tuple[str, str]] = frozenset()
    """Values that no step changed and that differ: of the uninterrupted run, and of the resumed one."""
    files: frozenset[str] = frozenset()
    """Files that the resumed process wrote before its first mark and not after it."""
    restarts: int = 0
    """Processes before it: what a trainer counts that counts its restarts."""

    def tells(self, name: str, leaf: Leaf, other: Leaf | None, start: int) -> bool:
        """Return whether a value says where a process began: nothing in a run that nothing stopped, else the step.

        A count that was lost may be the same number (`missing: 12`): the process has to have known it when it began.

        Args:
            name: The file.
            leaf: What the uninterrupted run left there.
            other: What the resumed one left.
            start: Completed steps at the resume.
        """
        if other is None or leaf.digest not in _NOTHING:
            return False
        text = leaf.digest == "None" and other.kind == "str"
        if not text and other.digest not in (str(start), *map(str, range(1, self.restarts + 1)), "True"):
            return False
        if name in self.files:
            return True
        return any(
            left in _NOTHING and right not in _NOTHING and (right == other.digest or text or other.digest == "True")
            for left, right in self.values
        )


def begun_of(reference: Trace, resumed: Trace, restarts: int = 0) -> ProcessStart:
    """Return how an uninterrupted run and a resumed one began.

    Args:
        reference: The uninterrupted run.
        resumed: The run of the process that resumed.
        restarts: Processes that were killed before it.
    """
    if not resumed.marks:
        return ProcessStart()
    first, later = resumed.marks[0], {name for mark in resumed.marks[1:] for name in mark.saved}
    kept = [_unchanged(trace) for trace in (reference, resumed)]
    pairs = {(leaf.digest, kept[1][path].digest) for path, leaf in kept[0].items() if path in kept[1]}
    return ProcessStart(
        frozenset(pair for pair in pairs if pair[0] != pair[1]), frozenset(first.saved) - later, restarts
    )


def _unchanged(trace: Trace) -> dict[str, Leaf]:
    """Return the plain values that are the same at all marks of a run."""
    first, *others = (mark.snapshot.leaves for mark in trace.marks)
    found = {path: leaf for path, leaf in first.items() if leaf.role == "scalar"}
    return {path: leaf for path, leaf in found.items() if all(leaf.same(later.get(path)) for later in others)}


def _files(paths: Iterable[str]) -> set[str]:
    """Return the files that leaves are in."""
    return {path.partition(":")[0] for path in paths}

"""The judge of a run that was resumed by another number of processes than it was saved by.

At the resume it has to hold what was saved, bit for bit: parts put together (`ranks`), replicas once. What depends
on the number of processes, such as the length of an epoch of one rank, may be what a run of that number has there.
Later only rounding may differ, if it is shown that only rounding does: two runs that nothing stopped, one of each
number, say by how much. Where they part by more, as with a batch for each process, what follows is not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from parity.capture import Leaf, StateSnapshot, root_of
from parity.checks.judging.envelope import LIMIT, EqualRunsEnvelope, is_floating, is_trained_number
from parity.checks.judging.evidence import Evidence, Outcome, Uninterrupted, text_of
from parity.checks.judging.judge import judge_resumed
from parity.checks.judging.ranks import WHOLE, GatheredRun, base_of, gathered, placed_in, processes
from parity.checks.judging.resume_start import Kill
from parity.checks.running import Mark, Trace

__all__ = ["RecountedRuns", "judge_later", "judge_recounted", "named", "recount"]

_FIRST = 3
"""Marks after a resume up to which runs of both numbers have to differ by rounding alone."""


@dataclass(frozen=True, kw_only=True)
class RecountedRuns:
    """The three runs, each of their processes gathered, and what they say together of the resume."""

    saved: GatheredRun
    """Nothing stopped it; of as many processes as those that saved."""
    afresh: GatheredRun
    """Nothing stopped it; of as many as those that resumed."""
    resumed: GatheredRun
    counts: tuple[int, int]
    """Processes that saved, and that resumed."""
    start: Mark | None
    """What the processes that resumed hold before their first step, with the step of the run that saved it, in
    which what follows the number of processes is as saved. None where that was not seen, or nothing was resumed."""
    rank: Mapping[str, int]
    """Path, without a rank, to the first rank of those that holds something else than what was saved, where all ranks
    hold one value in both other runs."""
    as_saved: tuple[Evidence, ...]
    """Exact values that are as they were saved, where a run of the other number has others: counts of one process
    that were not made those of another number, or counts of all of them. Nothing tells which."""

    @property
    def own(self) -> frozenset[str]:
        """Return the paths, without a rank, that have no counterpart."""
        return self.saved.own | self.afresh.own

    @property
    def anew(self) -> bool:
        """Return whether the resumed run begins where every run does."""
        return self.resumed.trace.steps[0] == self.saved.trace.steps[0]


def recount(saved: Trace, afresh: Trace, resumed: Trace, counts: tuple[int, int]) -> RecountedRuns:
    """Gather three runs; what follows the number of processes at the resume is no difference any more.

    Args:
        saved: A run that nothing stopped, of the number of processes that saved; with values.
        afresh: The same of the other number.
        resumed: The run that resumed; where its marks end a step, with the state before its first step.
        counts: Processes that saved, and that resumed.
    """
    placed = placed_in([saved, afresh, resumed])
    ours, theirs = gathered(saved, counts[0], placed), gathered(afresh, counts[1], placed)
    got = gathered(resumed, counts[1], placed)
    for run in (ours, theirs, got):
        for mark in run.trace.marks:
            for base in ours.own | theirs.own:
                mark.snapshot.leaves.pop(WHOLE + base, None)
    whole = RecountedRuns(saved=ours, afresh=theirs, resumed=got, counts=counts, start=None, rank={}, as_saved=())
    step = _step_of(ours.trace, resumed)
    if step is None:
        return whole
    if saved.loop is None:
        return _at_the_resume(whole, got.trace.marks[0], got.first)
    if resumed.entry is None:
        return whole
    before = gathered(replace(resumed, marks=[Mark(step, resumed.entry)]), counts[1], placed)
    for base in whole.own:
        before.trace.marks[0].snapshot.leaves.pop(WHOLE + base, None)
    return _at_the_resume(whole, before.trace.marks[0], before.first)


def _step_of(saved: Trace, resumed: Trace) -> int | None:
    """Return the completed steps of the state that was resumed; None where no mark of the other run is of it."""
    step = resumed.steps[0]
    if step not in saved.steps:
        return None
    if saved.loop is None:  # a mark begins the step: the first one has what was restored
        return step
    at = saved.steps.index(step)
    return saved.steps[at - 1] if at else None


def _at_the_resume(runs: RecountedRuns, start: Mark, held: Mapping[str, Mapping[int, Leaf]]) -> RecountedRuns:
    """Return the runs with the state at the resume, in which what a run of the other number has is as saved."""
    expected, other = (
        next((mark.snapshot for mark in run.trace.marks if mark.step == start.step), StateSnapshot())
        for run in (runs.saved, runs.afresh)
    )
    leaves, rank, as_saved = dict(start.snapshot.leaves), {}, []
    for base, of_rank in held.items():
        path, leaf = WHOLE + base, expected.leaves.get(WHOLE + base)
        if base in runs.own or leaf is None:
            continue
        absent = [one for one in range(runs.counts[1]) if one not in of_rank]
        rank[base] = next((one for one, has in of_rank.items() if not has.same(leaf)), absent[0] if absent else 0)
        if rank[base] in of_rank:
            leaves[path] = of_rank[rank[base]]
    for path, leaf in list(leaves.items()):
        if leaf.same(other.leaves.get(path)):  # it follows the number of processes, and is no loss
            leaves[path] = expected.leaves.get(path, leaf)
        elif path in other.leaves and leaf.same(expected.leaves.get(path)) and _is_exact(leaf):
            got, when = other.leaves[path].text, f"as {processes(runs.counts[0])} saved it"
            if not expected.is_dead(path) and not start.snapshot.is_dead(path):
                as_saved.append(Evidence(leaf.component, path, start.step, got, leaf.text, when))
    known = {root_of(path) for path in leaves}
    for path, leaf in expected.leaves.items():
        # what a step makes is not there before it, nor what no process of the other number has there
        lacking = leaf.role == "gradient" or (path not in other.leaves and base_of(path) not in rank)
        if path not in leaves and (lacking or root_of(path) not in known):
            leaves[path] = leaf
    mark = Mark(start.step, replace(start.snapshot, leaves=leaves), start.saved, start.gone, start.read)
    return replace(runs, start=mark, rank=rank, as_saved=tuple(as_saved))


def _is_exact(leaf: Leaf) -> bool:
    return leaf.role in ("scalar", "position", "state") and not is_floating(leaf)


def judge_recounted(runs: RecountedRuns, uninterrupted: Uninterrupted, kill: Kill) -> Outcome:
    """Compare what a run of another number of processes holds at its resume with what was saved.

    Args:
        runs: The three runs; the resumed one has a mark at least.
        uninterrupted: What equal runs say, of all ranks.
        kill: Where the processes before were killed, and what they left.

    Returns:
        What was found, at paths that begin as those of rank 0; `named` gives them the words of a reader.
    """
    saved, steps, count = runs.saved.trace, runs.resumed.trace.steps, processes(runs.counts[1])
    if runs.anew:
        settled = [at for at in saved.saves(kill.reads, kill.passing) if 1 < at < kill.mark]
        if not settled:
            return Outcome(unsure=True, notes=[f"{count} began anew: nothing was saved whole before the kill"])
        expected = f"step {saved.steps[settled[-1]]} or later"
        return Outcome(
            broken=[Evidence("checkpoint.latest", "mark", steps[0], expected, f"step {steps[0]}", AT_RESUME)]
        )
    if runs.start is None and steps[0] not in saved.steps:
        expected = "a step of the uninterrupted run"
        return Outcome(broken=[Evidence("counters.step", "mark", steps[0], expected, str(steps[0]), AT_RESUME)])
    if runs.start is None:
        return Outcome(unsure=True, notes=[f"what {count} had before their first step was not seen"])
    known = replace(
        uninterrupted,
        noise=_of_any(uninterrupted.noise),
        changing=_of_any(uninterrupted.changing),
        rounded=_of_any(uninterrupted.rounded),
    )
    out = judge_resumed(saved, replace(runs.resumed.trace, marks=[runs.start], end="killed"), known, kill)
    out.broken += _ranks_apart(runs, known)
    return out


def _ranks_apart(runs: RecountedRuns, known: Uninterrupted) -> list[Evidence]:
    """Return what all ranks hold alike in both runs that nothing stopped, and not in this one, from first to last."""
    assert runs.start is not None
    saved = next((mark.snapshot for mark in runs.saved.trace.marks if mark.step == runs.start.step), StateSnapshot())
    found = []
    for base, rank in runs.rank.items():
        path = WHOLE + base
        leaf = saved.leaves[path]
        moves = path in known.changing and leaf.role in ("state", "array") and not saved.is_dead(path)
        if moves and base in runs.resumed.last and path not in known.noise:
            got = text_of(runs.start.snapshot.leaves.get(path))
            found.append(Evidence(leaf.component, path, runs.start.step, leaf.text, got, f"on rank {rank} alone"))
    return found


AT_RESUME = "at the resume"


def _of_any(paths: Collection[str]) -> frozenset[str]:
    return frozenset(WHOLE + base_of(path) for path in paths)


def judge_later(runs: RecountedRuns, uninterrupted: Uninterrupted, out: Outcome) -> bool:
    """Compare what follows the resume, where runs of both numbers part by rounding alone; else say why it is not.

    Args:
        runs: The three runs.
        uninterrupted: What equal runs say, of all ranks.
        out: What was found at the resume, and nothing broken; takes what is found here.

    Returns:
        Whether it was compared.
    """
    saved, afresh, resumed = (run.trace for run in (runs.saved, runs.afresh, runs.resumed))
    start = resumed.steps[0] if runs.start is None else runs.start.step
    changing = _of_any(uninterrupted.changing)
    differs = [*out.differs, *out.bookkeeping]
    why = f"runs of {runs.counts[0]} and {runs.counts[1]} processes mark other steps"
    if saved.steps == afresh.steps:
        here = next(mark for mark in saved.marks if mark.step >= start)  # at a last mark after the loop all is dead
        leaves = here.snapshot.leaves
        paths = [p for p in leaves if p in changing and is_floating(leaves[p]) and is_trained_number(p, [here])]
        envelope = EqualRunsEnvelope([saved, afresh], paths, list(dict.fromkeys(saved.steps)))
        why = _parts(envelope, start, runs.counts)
        if not why:
            found = envelope.judge(resumed, start)
            why = found.too_wide
            bound = f"within {LIMIT:g} times what runs of {runs.counts[0]} and {runs.counts[1]} processes part by"
            causes = [e for e in [*differs, *runs.as_saved] if not e.is_one_number]
            if found.broken:
                out.broken += [*causes, *(e._replace(expected=bound) for e in found.broken)]
    if why and differs:
        out.unsure = True
    if why:
        out.notes.append(f"with {processes(runs.counts[1])} what follows the resume is not compared: {why}")
    return not why


def _parts(envelope: EqualRunsEnvelope, start: int, counts: tuple[int, int]) -> str:
    """Return by what runs of two numbers of processes part more than by rounding; empty if by nothing."""
    steps = [step for step in envelope.steps if step > start][:_FIRST]
    for step in [one for one in envelope.steps if one <= start] + steps:
        for path in sorted(envelope.paths):
            moved, width = envelope.update(path, step), envelope.width(path, step)
            if moved and moved < LIMIT * width:
                return (
                    f"runs of {counts[0]} and {counts[1]} processes that nothing stopped differ at step {step} in "
                    f"{base_of(path)} by {width / moved:.2g} of what a step moves it"
                )
    return ""


def named(out: Outcome, runs: RecountedRuns) -> Outcome:
    """Return what was found with the paths of a reader: the rank where one is meant, else none."""

    def path_of(path: str) -> str:
        base = base_of(path)
        return f"rank{runs.rank[base]}:{base}" if base in runs.rank else base

    for name in ("broken", "differs", "bookkeeping"):
        setattr(out, name, [e._replace(path=path_of(e.path)) for e in getattr(out, name)])
    out.first = None
    return out

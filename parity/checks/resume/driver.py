"""The driver: takes a run along one scenario, from the kill to the end, and has the judge compare it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from parity.capture import Leaf
from parity.checks.judging import (
    EqualRunsEnvelope,
    Evidence,
    Kill,
    Meant,
    Outcome,
    Uninterrupted,
    both_runs,
    is_unfinished,
    judge_printed,
    judge_resumed,
    judge_same,
    name_what_is_shown,
    on_their_way,
    put_roots_first,
    saved_first,
)
from parity.checks.resume.blocks_ahead import Kept, settle_blocks
from parity.checks.resume.endings import Endings
from parity.checks.resume.intervals import Intervals
from parity.checks.resume.left_files import read_files
from parity.checks.resume.loss_curve import loss_curves
from parity.checks.resume.scenarios import Scenario
from parity.checks.resume.taken import TakenValues
from parity.checks.resume.trained import equal_so_far, lost_numbers
from parity.checks.running import (
    Request,
    Runner,
    Trace,
    copy_folder,
    list_folder,
    set_apart,
)
from parity.results import Curves

__all__ = ["Driver"]

UNFINISHED = (
    "scenario {scenario}: the process was killed before a save that had begun was finished, and the run began anew: "
    "nothing was resumed there; kill it later (stop_at), or wait for the save"
)

OTHER_WAYS = ("intervals", "extend", "one-rank")
"""Scenarios that are no kills of one run, one after the other."""

LONGER = 4
"""Times its steps, and a hundred more, that a run may take: one that ignores `steps` mostly ends, at its own number;
one that never ends is told from it by that alone."""


class Driver:
    """Drives one training function; holds what every scenario is compared with.

    Args:
        runner: Runs the function.
        root: Directory of the folders of the runs.
        steps: Steps of the whole run.
        stop_at: Completed steps at the kill.
        options: Keyword arguments of the function.
        meant: What is not judged.
        filled: Whether new arrays without values hold zeros in all runs.
    """

    def __init__(
        self,
        runner: Runner,
        root: Path,
        steps: int,
        stop_at: int,
        options: dict[str, Any],
        meant: Meant,
        *,
        filled: bool = False,
    ) -> None:
        self.runner, self.root, self.stop_at, self.meant = runner, root, stop_at, meant
        self.whole = Request(steps=steps, longest=LONGER * steps + 100, options=options, filled=filled)
        """The whole run, of which nothing else is asked."""
        self.reference: Trace
        self.uninterrupted: Uninterrupted
        self.copies: dict[int, Path] = {}
        """Mark to the folder as a kill there left it."""
        self.savers: dict[int, Trace] = {}
        """Mark to the run that was killed there and left the folder, where it is not `again`."""
        self.again: Trace
        """The equal run whose folder was copied."""
        self.equal_runs: list[Trace] = []
        """The runs from which the envelope was measured."""
        self.envelope: EqualRunsEnvelope | None = None
        """What judges the numbers that rounding moves; None where equal runs are equal bit by bit."""
        self.of_numbers = False
        """Whether no array is trained."""
        self.closed: dict[str, str] = {}
        self.curves: dict[str, Curves] = {}
        """Scenario to the loss of the uninterrupted run and of the resumed one."""
        self.tables: set[str] = set()
        """Checkpoints that only grow: a process continues from their last lines."""
        self.reads: set[str] = set()
        """Files that resumed runs read: the checkpoints."""
        self._full: Trace | None = None
        self._endings = Endings(self)
        self.taken = TakenValues(runner, root, self.whole)
        self._lock = threading.Lock()

    def full(self, keep: Mapping[int, Sequence[str]]) -> Trace:
        """Run once more without a stop, one time only: what two equal runs leave, to the end.

        It orders its sets as the reference and the resumed runs do: what differs in a file by that order alone would
        be noise otherwise, and a loss by it would be excused. All other chance is its own, as that of the run which
        saved is: a generator that nobody seeds, an identifier that an import draws.
        """
        with self._lock:
            if self._full is None:
                self._full = self.run(self.root / "once-more", replace(self.whole, keep=keep, order="reference"))
            return self._full

    def run(self, folder: Path, request: Request) -> Trace:
        """Run the function once."""
        trace = self.runner.run(folder, request)
        trace.appended -= self.tables
        return trace

    def find_tables(self, stop: int) -> bool:
        """Find the checkpoints among files that only grow: those that a process reads before it begins to train.

        Args:
            stop: Mark to which a kill left the folder.

        Returns:
            Whether there are any.
        """
        folder = self.root / "tables"
        copy_folder(self.copies[stop], folder)
        self.tables = self.runner.run(folder, replace(self.whole, kill=0)).restored & self.reference.appended
        for trace in (self.reference, self.again):
            trace.appended -= self.tables
        return bool(self.tables)

    def drive(self, scenario: Scenario) -> Outcome:
        """Take the run along a scenario."""
        others = dict(zip(OTHER_WAYS, (self._drive_options, self._drive_extend, self._drive_one_rank), strict=True))
        return others.get(scenario.name, self._drive_kills)(scenario)

    def _drive_kills(self, scenario: Scenario) -> Outcome:
        folder = self.root / f"scenario-{scenario.name}"
        copy_folder(self.copies[scenario.kills[0]], folder)
        asked = self.asked(scenario)
        killed = scenario.kills[0]
        before = [self.savers.get(killed, self.again)]
        for kill in scenario.kills[1:]:
            until = self._until(asked, kill)
            left = list_folder(folder)
            trace = self.run(folder, until)
            if trace.end != "killed":  # it failed, or came to its end without reaching the kill
                return self._judge_run(scenario, trace, killed, folder, before, left)
            killed = kill or killed
            before.append(replace(trace, marks=trace.marks[1:], at_start=trace.marks[0].saved if trace.marks else ()))
        left = list_folder(folder)
        trace = self.run(folder, self.kept(asked))
        return self._judge_run(scenario, trace, killed, folder, before, left)

    def _until(self, request: Request, kill: int) -> Request:
        """Return a request for a run that is killed at a mark of the uninterrupted one."""
        step = self.reference.marks[kill].step
        return replace(request, kill_step=step) if kill else replace(request, kill=0)

    def _settle_blocks(self, scenario: Scenario, trace: Trace, outcome: Outcome) -> None:
        """Have what is left of blocks that are read ahead compared, in runs that take the same ways once more."""

        def uninterrupted(keep: Kept) -> Trace:
            return self.run(self.root / f"blocks-of-{scenario.name}", replace(self.whole, keep_steps=keep))

        def resumed(keep: Kept) -> Trace:
            folder = self.root / f"blocks-{scenario.name}"
            if scenario.name == "extend":
                self.run(folder, self._short())
            else:
                copy_folder(self.copies[scenario.kills[0]], folder)
            for kill in scenario.kills[1:]:
                self.run(folder, self._until(self.asked(scenario), kill))
            return self.run(folder, replace(self.asked(scenario), keep_steps=keep))

        ended = trace.end == "finished" and scenario.name not in ("intervals", "one-rank")
        if ended and self.envelope is None and trace.marks and trace.steps[0] in self.reference.steps:
            begin = self.reference.steps.index(trace.steps[0])
            states = both_runs(self.reference.marks[begin:], trace.marks)
            settle_blocks(outcome, states, uninterrupted, resumed)

    def _drive_one_rank(self, scenario: Scenario) -> Outcome:
        """Kill the last rank alone, let the others end as they do without it, and resume all of them."""
        until = replace(self.whole, kill_step=self.stop_at, kill_rank=self.runner.ranks - 1)
        killed = self.run(self.root / scenario.name, until)
        folder = self.root / f"scenario-{scenario.name}"
        copy_folder(set_apart(self.root / scenario.name), folder)
        left = list_folder(folder)
        trace = self.run(folder, self.kept(self.asked(scenario)))
        return self._judge_run(scenario, trace, len(killed.marks) - 1, folder, [killed], left)

    def asked(self, scenario: Scenario) -> Request:
        """Return the whole run with the options of a scenario."""
        options = {**self.whole.options, **scenario.options}
        return replace(self.whole, options=options, entry=self.reference.loop)

    def kept(self, request: Request) -> Request:
        """Return a request for a run that can be judged by the envelope, where there is one."""
        return request if self.envelope is None else replace(request, keep_steps=self.envelope.keep)

    def _truth(self, before: Sequence[Trace]) -> Trace:
        """Return what a resumed run is compared with.

        Where rounding moves numbers, the truth at a resume is the state of the very run that saved; what is compared
        later is equal in all of them.
        """
        if self.envelope is None:
            return self.reference
        known = {mark.step: mark for trace in before for mark in trace.marks}
        return replace(self.reference, marks=[known.get(mark.step, mark) for mark in self.reference.marks])

    def trains_alike(self, other: Trace) -> bool:
        """Return whether an uninterrupted run trains as the reference does: bit by bit, or within the envelope.

        One that ends at another step does not.
        """
        if len(other.marks) != len(self.reference.marks):
            return False
        if self.envelope is not None:
            found = self.envelope.judge(other, other.marks[0].step)
            return not found.broken and not found.too_wide
        noise = self.uninterrupted.noise | self.uninterrupted.rounded
        if self.of_numbers and lost_numbers(self.reference, other, self._saved(max(self.copies)), noise):
            return False
        return judge_same(self.reference.marks, other.marks, self.uninterrupted.changing) is None

    def _judge_run(self, scenario: Scenario, trace: Trace, killed: int, folder: Path, before: Sequence[Trace],
                   left: Collection[str]) -> Outcome:  # fmt: skip
        if trace.end == "late":
            return Outcome(unsure=True, notes=[f"nothing is judged in the scenario {scenario.name}: {trace.error}"])
        if (curves := loss_curves(self.reference, before, trace, self.reference.marks[killed].step)) is not None:
            self.curves[scenario.name] = curves
        lenient = scenario.name in ("best", "older", "before-save", "extend", "one-rank")
        with self._lock:
            self.reads |= {name for name in trace.restored or trace.reads if name in self.reference.names}
        known = {mark.step: mark for one in before for mark in one.marks}
        marks = [known.get(mark.step, mark) for mark in self.reference.marks]
        passing = on_their_way([self.reference, self.again, *before], list_folder(self.root / "reference"))
        ended = {"extend": len(before[-1].marks), "one-rank": None}  # one came to its end, others went on
        reached = ended.get(scenario.name, killed)
        asked = 0 if lenient else killed
        kill = Kill(mark=asked, reached=reached, marks=marks, left=left, reads=self.reads, passing=passing)
        outcome = judge_resumed(self._truth(before), trace, self.uninterrupted, kill)
        if not outcome.broken and trace.steps[:1] == self.reference.steps[:1] and is_unfinished(self.reference, kill):
            outcome.unsure = True
            outcome.notes.append(UNFINISHED.format(scenario=scenario.name))
        self.taken.settle(outcome, self.reference.marks, self.uninterrupted.use, self.trains_alike)
        self._settle_blocks(scenario, trace, outcome)
        failed = trace.end in ("failed", "lost")
        if failed and not outcome.broken:  # what it may have failed by
            paths = {e.path for e in outcome.differs}
            outcome.broken = outcome.differs + [e for e in outcome.earliest if e.path not in paths]
        if outcome.first is not None:
            seen = outcome.first[0], len(self.reference.marks), self.uninterrupted.use
            outcome.broken = self.taken.unread_last(outcome.broken, *seen)
        put_roots_first(outcome, trace.of_python)
        if outcome.first is not None:
            since = self.reference.marks[outcome.first[0] - outcome.first[1] :]
            one, two = ([mark.snapshot.leaves for mark in marks] for marks in (since, trace.marks))
            outcome.broken = saved_first(outcome.broken, (one, two), partial(self._saved, killed))
        self._leave_out_what_is_meant(outcome)
        if failed:
            outcome.broken.append(self._failed(trace, killed, left))
            outcome.notes.append(
                f"the function failed when it was resumed (scenario {scenario.name}):\n{trace.error}"
            )
            return outcome
        if self.envelope is not None and not outcome.broken and trace.marks:
            _judge_by(self.envelope, outcome, trace)
        live = not outcome.broken  # what is found from here on is what the run left or gave back
        if live and trace.end == "finished" and scenario.name != "best":
            files = self._endings.judge_files(scenario, trace, killed, folder, before, left, outcome.bookkeeping)
            for found in (files, self._endings.judge_returned(trace)):
                outcome.broken += found.broken
                outcome.bookkeeping += found.bookkeeping
            if not outcome.broken and self.of_numbers:
                noise = self.uninterrupted.noise | self.uninterrupted.rounded
                outcome.broken += lost_numbers(self.reference, trace, self._saved(killed), noise)
            end = self.reference.marks[-1].step
            outcome.bookkeeping += judge_printed(self.reference.printed, self.again.printed, trace.printed, end)
            self._leave_out_what_is_meant(outcome)
        if outcome.broken and live:  # what differs from the resume on, and at the end, is what files and numbers show
            name_what_is_shown(outcome)
        return outcome

    def _leave_out_what_is_meant(self, outcome: Outcome) -> None:
        for name in ("broken", "differs", "bookkeeping"):
            found = [e for e in getattr(outcome, name) if not self.meant.takes(e.path, e.component)]
            setattr(outcome, name, found)

    def _failed(self, trace: Trace, killed: int, left: Collection[str]) -> Evidence:
        """Return what a resumed run that failed shows: a file that it wanted may have been removed."""
        last = trace.error.strip().splitlines()[-1] if trace.error.strip() else "nothing"
        before = {name for mark in self.reference.marks[: killed + 1] for name in mark.saved}
        gone = any(name in last and name not in left for name in before)
        component = "checkpoint.retention" if gone and "No such file" in last else "checkpoint.restore"
        step = self.reference.marks[killed].step
        return Evidence(component, "function", step, "a run that continues", last, "at the resume")

    def _saved(self, killed: int) -> dict[str, Leaf]:
        """Return what the folder held at a kill."""
        return read_files(self.copies[killed], self.reference.appended) if killed in self.copies else {}

    def _drive_options(self, scenario: Scenario) -> Outcome:
        """Compare a run with other intervals: what is trained must not change."""
        folder = self.root / f"scenario-{scenario.name}"
        trace = self.run(folder, self.kept(self.asked(scenario)))
        if trace.end != "finished":
            self.closed[scenario.name] = f"the function failed with {scenario.options}"
            return Outcome()
        when = f"with {', '.join(f'{k}={v}' for k, v in scenario.options.items())}, never stopped"
        intervals = Intervals(self.run, self.root, self.whole, self.reference, self.uninterrupted)
        out, to_the_end = intervals.judge(trace, scenario.options, when)
        if to_the_end and self.envelope is not None:
            _judge_by(self.envelope, out, trace, when)
        return out

    def _short(self) -> Request:
        """Return a request for a run that comes to its end at the stop."""
        return replace(self.whole, steps=self.stop_at, options={**self.whole.options, "steps": self.stop_at})

    def _drive_extend(self, scenario: Scenario) -> Outcome:
        folder = self.root / f"scenario-{scenario.name}"
        short = self.run(folder, self._short())
        if short.end != "finished":
            self.closed[scenario.name] = f"the function failed with steps={self.stop_at}"
            return Outcome()
        if short.steps[-1:] == self.reference.steps[-1:]:
            last = f"step {self.reference.steps[-1]}"
            self.closed[scenario.name] = f"with steps={self.stop_at} the function goes on to {last}, as without"
            return Outcome()
        if not equal_so_far(self.reference, short, self.uninterrupted):
            self.closed[scenario.name] = (
                "what the function trains depends on steps, such as the horizon of its schedule"
            )
            return Outcome()
        left = list_folder(folder)
        trace = self.run(folder, self.kept(self.whole))
        return self._judge_run(scenario, trace, 0, folder, [short], left)


def _judge_by(envelope: EqualRunsEnvelope, out: Outcome, trace: Trace, when: str = "") -> None:
    """Add what the envelope says about a run to what was found bit by bit."""
    found = envelope.judge(trace, trace.marks[0].step)
    out.multiple, out.unsure = found.multiple, bool(found.too_wide)
    out.notes += [found.too_wide] if found.too_wide else []
    if found.broken:
        out.broken += out.differs + [e._replace(when=when) if when else e for e in found.broken]

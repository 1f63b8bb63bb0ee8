"""The session of a check: two equal runs, then every scenario, and what all of them together say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from parity.capture import differing
from parity.checks.judging import (
    LIMIT,
    Evidence,
    Meant,
    Outcome,
    Use,
    advise,
    after_resume,
    copies_apart,
    each_once,
    judge_declared,
    judge_kept,
    judge_same,
    may_be_unwritten,
    measured,
    not_finite,
    observe_effects,
    parted_paths,
    ranks_apart,
    say_unmeasured,
    suspect,
    uninterrupted_of,
    varying,
)
from parity.checks.resume.driver import Driver
from parity.checks.resume.equal_runs import likely_cause, measure_envelope
from parity.checks.resume.other_count import drive_scenario
from parity.checks.resume.scenarios import Scenario, plan_scenarios
from parity.checks.resume.trained import count_trained, moving_unseen, precision_of
from parity.checks.running import (
    Request,
    Runner,
    SameThreadExecutor,
    Trace,
    Train,
    copy_folder,
    list_folder,
    parameters_of,
    require_call,
    set_apart,
)
from parity.errors import TrainerError
from parity.policy import Rules
from parity.results import Curves, Resumption, Suspect, Verdict

__all__ = ["Session"]

SHARED = ("random", "numpy.random", "torch.default_generator")
"""Paths of the generators that all code shares and that a check can put back."""

MOST = 200
"""Most suspects that a record keeps."""

OF_PATH = "The folder is a pathlib.Path: a function that wants text takes str(folder)."

MARKS_A_STEP = 32
"""Most marks a step, on the average, of which the folder is copied where two runs go side by side."""


class Session:
    """One check: the two equal runs, the scenarios, the verdict."""

    def __init__(self, train: Train, runner: Runner, root: Path, steps: int, stop_at: int, options: dict[str, Any],
                 names: Sequence[str], notes: list[str], keep: Rules | None, metric: str,
                 meant: Meant, resume_processes: int | None = None, *, filled: bool = False) -> None:  # fmt: skip
        self.names, self.notes, self.keep, self.metric = names, notes, keep, metric
        self._resume_processes = resume_processes
        self.parameters = parameters_of(train)
        options = {**({"steps": steps} if "steps" in self.parameters else {}), **options}
        require_call(train, root, options)
        self.driver = Driver(runner, root, steps, stop_at, options, meant, filled=filled)
        self.unwritten = False
        """Whether memory that nobody has written may be what a verdict rests on; not where it was filled."""
        self.suspects: list[Suspect] = []
        self.bookkeeping: list[Suspect] = []
        self.observations: list[Suspect] = []
        self.driven: list[str] = []
        self.compared = 0
        self.unsure = False
        self.multiple = 0.0
        self._marks = 0
        """Marks of the first run, as soon as it has made them."""

    def run(self) -> Resumption:
        """Run everything and return the record."""
        parallel = self.driver.runner.parallel
        with SameThreadExecutor() if parallel == 1 else ThreadPoolExecutor(parallel) as pool:
            try:
                return self._run(pool)
            except BaseException:  # an interrupt, or a run that cannot be judged: nobody waits for the others
                pool.shutdown(wait=False, cancel_futures=True)
                self.driver.runner.stop()
                raise

    def _run(self, pool: Executor) -> Resumption:
        first = pool.submit(self._first_run, replace(self.driver.whole, reference=True))
        # side by side, the second begins before it is seen what the first saves
        seen = first.result() if self.driver.runner.parallel == 1 else None
        second = pool.submit(self._second_run, seen)
        self.driver.reference, self.driver.again = first.result(), second.result()
        marks, again = self.driver.reference.marks, self.driver.again
        changing = varying(marks)
        parted = judge_same(marks, again.marks, changing)
        trained, said, self.driver.of_numbers = count_trained(marks, changing)
        self.notes += said
        use = self._use(again)
        self.unwritten = not self.driver.whole.filled and may_be_unwritten(parted, marks, use.files)
        if parted is None:
            self.driver.uninterrupted = uninterrupted_of(marks, again.marks, changing, use)
        elif why := measure_envelope(self.driver, parted, changing, use, self._uninterrupted, pool):
            return self._inconclusive(parted, trained, why)
        self._leave_out_what_is_meant()
        if self.stop not in self.driver.copies:
            raise TrainerError(
                f"{len(marks)} marks in {self.driver.whole.steps} steps, more than {MARKS_A_STEP} each: mark where a "
                "step begins, and nowhere else"
            )
        before = marks[: self.stop + 1]
        only_grow = not any(set(mark.saved) - self.driver.reference.appended for mark in before)
        if only_grow and not self.driver.find_tables(self.stop):
            raise self._nothing_saved()
        declared = self._declared(again)
        told = {(e.path, e.when) for e in declared}
        observed = [e for e in observe_effects(again, self.driver.uninterrupted) if (e.path, e.when) not in told]
        apart = [e for e in copies_apart(marks) if not self.driver.meant.takes(e.path, e.component)]
        observed += [e for e in ranks_apart(marks) if e.path not in {one.path for one in apart}]
        self.observations = [suspect(e, "uninterrupted", advise(e, observed)) for e in observed[:MOST]]
        if self.keep is not None:
            self._add(judge_kept(self.driver.reference, self.keep, self.metric), "uninterrupted")
        self._drive(pool)
        # what a region changed, or let ranks part before the kill, is the cause of what a scenario shows: it is first
        scenarios, self.suspects = self.suspects, []
        self._add(declared + [e for e in apart if e.step <= self.driver.stop_at], "uninterrupted")
        self.suspects += scenarios
        self._add([e for e in apart if e.step > self.driver.stop_at], "uninterrupted")
        return self._verdict(trained)

    def _leave_out_what_is_meant(self) -> None:
        marks, meant = self.driver.reference.marks, self.driver.meant
        seen = {(path, leaf.component) for mark in marks for path, leaf in mark.snapshot.leaves.items()}
        uninterrupted = self.driver.uninterrupted
        self.driver.uninterrupted = replace(uninterrupted, noise=uninterrupted.noise | meant.paths(seen))

    def _drive(self, pool: Executor) -> None:
        """Drive every scenario; the first tells what the function reads, so what its checkpoints are."""
        drive, names = partial(drive_scenario, self.driver), list(self.names)
        if not self._simple:
            first = self._plan(["kill"])
            outcomes = [drive(scenario) for scenario in first]
            if "kill" in names:
                names.remove("kill")
                self._merge(first, outcomes, pool)
        if names and not self.suspects and not self.unsure:
            scenarios = self._plan(names)
            self._merge(scenarios, pool.map(drive, scenarios), pool)

    def _plan(self, names: Sequence[str]) -> list[Scenario]:
        marks, there = self.driver.reference.marks, list_folder(self.driver.copies[self.stop])
        saves = self.driver.reference.saves(self.driver.reads)
        counts = self.driver.runner.ranks, self._resume_processes
        scenarios, closed = plan_scenarios(names, marks, self.stop, self.parameters, saves, there, *counts)
        self.driver.closed |= closed
        return scenarios

    @property
    def _simple(self) -> bool:
        """Whether all scenarios begin with the kill at the stop."""
        return set(self.names) <= {"kill", "again", "third", "intervals", "best", "extend", "one-rank", "other-count"}

    def _declared(self, again: Trace) -> list[Evidence]:
        """Return what declared regions changed; of shared generators only where training comes to differ by it.

        Every data loader draws a seed when it begins, which mostly nobody reads: so the run is made once more, the
        generators put back after each such region, and what it trains is compared.
        """
        found = judge_declared(again, self.driver.uninterrupted)
        shared = [e for e in found if e.path in SHARED]
        if not shared:
            return found
        asked = replace(self.driver.whole, put_back=True)
        quiet = self.driver.runner.run(self.driver.root / "put-back", self.driver.kept(asked))
        if not self.driver.trains_alike(quiet):
            return found
        self.notes.append(f"{shared[0].when} draws from {shared[0].path}; training does not come to differ by it")
        return [e for e in found if e not in shared]

    def _merge(self, scenarios: Sequence[Scenario], outcomes: Iterable[Outcome], pool: Executor) -> None:
        """Take what the scenarios found, up to the first that is broken: the others would show the same cause."""
        for scenario, outcome in zip(scenarios, outcomes, strict=True):
            if scenario.name in self.driver.closed:
                continue
            self.driven.append(scenario.name)
            self.compared += outcome.compared
            self.notes += outcome.notes
            self.unsure = self.unsure or outcome.unsure
            self.multiple = max(self.multiple, outcome.multiple or 0.0)
            self.bookkeeping += [suspect(e, scenario.name) for e in outcome.bookkeeping]
            if outcome.broken and self._confirm(scenario, outcome, pool):
                return

    def _confirm(self, scenario: Scenario, outcome: Outcome, pool: Executor) -> bool:
        """Run both once more: equal runs may part after the kill too, and the verdict is to say by how much.

        Returns:
            Whether something is left that equal runs do not show.
        """
        if self.driver.envelope is not None:  # several equal runs agree in all that was judged bit by bit
            self._add(outcome.broken, scenario.name)
            return True
        there, here = outcome.first or (0, 0)
        # of what was lost, and of the first step that shows it
        paths = {at: [e.path for e in outcome.broken if e.when == after_resume(at)][:40] for at in {0, here}}
        fetched: Trace | None = None
        if len(scenario.kills) == 1 and outcome.first is not None and any(paths.values()):
            folder = self.driver.root / f"values-{scenario.name}"
            copy_folder(self.driver.copies[scenario.kills[0]], folder)
            asked = replace(self.driver.asked(scenario), keep=paths, kill=here)
            waiting = pool.submit(self.driver.runner.run, folder, asked)
            full = self.driver.full({there - here + at: wanted for at, wanted in paths.items()})
            fetched = waiting.result()
        else:
            full = self.driver.full({})
        if judge_same(self.driver.reference.marks, full.marks, self.driver.uninterrupted.changing) is not None:
            self.notes.append("what differs after the kill differs between two equal runs as well")
            self.unsure = True
            return True
        noise = parted_paths(self.driver.reference.marks, full.marks)
        if self.driver.reference.final is not None and full.final is not None:
            noise.update(differing(self.driver.reference.final.leaves, full.final.leaves))
        outcome.broken = [e for e in outcome.broken if e.path not in noise]
        if not outcome.broken:
            return False
        self._add(outcome.broken, scenario.name)
        if fetched is not None and len(fetched.marks) > here and len(full.marks) > there:
            for at in paths:
                mark = full.marks[there - here + at]
                kept = mark.snapshot.values, fetched.marks[at].snapshot.values
                self.suspects = measured(self.suspects, *kept, mark.step)
        return True

    def _verdict(self, trained: int) -> Resumption:
        marks = self.driver.reference.marks
        if not trained:
            self.notes.append(
                "no floating value that the check sees changed: nothing was trained, or it is out of sight"
            )
        if "torch" in self.driver.reference.frameworks and not any(
            leaf.component.startswith("optimizer.") for leaf in marks[-1].snapshot.leaves.values()
        ):
            self.notes.append("no optimizer was seen: give it to parity.mark, or keep it in a variable of the loop")
        if not set(self.driven) - {"intervals"} and not self.suspects:
            self.notes.append("no scenario was driven in which the run is resumed")
            self.unsure = True
        if self.driver.meant.unused and not self.suspects:
            self.notes.append(f"ignore: no value is called {', '.join(self.driver.meant.unused)}")
        unsure = self.unsure or not trained or not self.compared
        verdict: Verdict = "broken" if self.suspects else "inconclusive" if unsure else "holds"
        if verdict == "holds" and (found := not_finite(self.driver.reference, self.driver.uninterrupted.changing)):
            verdict = "inconclusive"
            self.notes.append(found)
        if verdict == "holds":
            listed = (one.path for one in self.bookkeeping)
            self.notes += say_unmeasured(self.driver.uninterrupted.use, listed, marks[-1].snapshot.leaves)
        return self._record(verdict, trained)

    def _first_run(self, asked: Request) -> Trace:
        trace = self._uninterrupted("reference", replace(asked, rest=self.driver.stop_at))
        self.stop = next(at for at, mark in enumerate(trace.marks) if mark.step >= self.driver.stop_at)
        if not any(mark.saved for mark in trace.marks[: self.stop + 1]):
            raise self._nothing_saved()
        self._marks = len(trace.marks)
        return trace

    def _nothing_saved(self) -> TrainerError:
        return TrainerError(
            f"nothing was saved in the folder before step {self.driver.stop_at}; save into the folder that the "
            "function is given, or give a later stop_at"
        )

    def _second_run(self, first: Trace | None) -> Trace:
        """Run once more, up to the last kill, with a copy of the folder as each kill would leave it.

        In processes it runs beside the first one: every mark up to the kill is copied that a scenario may want.
        """
        root, copies, stop_at = self.driver.root, self.driver.copies, self.driver.stop_at
        asked = replace(self.driver.whole, watch=True, writes=first.writes if first is not None else ())
        if self._simple:
            trace = self._uninterrupted("again", replace(asked, kill_step=stop_at))
            copies[len(trace.marks) - 1] = set_apart(root / "again")
            return trace
        most = len(first.marks) if first is not None else MARKS_A_STEP * (asked.steps + 1)
        copies |= {at: root / f"killed-{at}" for at in range(most)}
        trace = self._uninterrupted("again", replace(asked, copies=dict(copies)))
        set_apart(root / "again")
        if self.driver.runner.mode == "process":  # a copy is no kill: this one is
            killed = self.driver.runner.run(root / "killed", replace(self.driver.whole, kill_step=stop_at))
            at = len(killed.marks) - 1
            copies[at], self.driver.savers[at] = set_apart(root / "killed"), killed
        return trace

    def _record(self, verdict: Verdict, trained: int) -> Resumption:
        last, envelope = self.driver.reference.marks[-1].snapshot, self.driver.envelope
        return Resumption(
            name="",
            verdict=verdict,
            mode=self.driver.runner.mode,
            steps=self.driver.whole.steps,
            stop_at=self.driver.stop_at,
            suspects=tuple(self.suspects[:MOST]),
            bookkeeping=tuple(each_once(self.bookkeeping))[:MOST],
            observations=tuple(each_once(self.observations))[:MOST],
            unseen=dict(last.unseen),
            moving=moving_unseen(self.driver.reference.marks),
            scenarios=tuple(self.driven),
            closed=self.driver.closed,
            ignored=self.driver.meant.patterns,
            notes=tuple(self.notes),
            compared=self.compared,
            leaves=len(last.leaves),
            changed=trained,
            frameworks=self.driver.reference.frameworks,
            precision=precision_of(self.driver.reference.marks),
            equal_runs=envelope.runs if envelope else 0,
            multiple=self.multiple if envelope else None,
            limit=LIMIT if envelope else None,
            curves=self._curves(),
        )

    def _curves(self) -> Curves | None:
        """Return the loss in the scenario that shows a loss of state, else in the first one that was driven."""
        shown = [one.scenario for one in self.suspects[:1]] + self.driven
        return next((self.driver.curves[name] for name in shown if name in self.driver.curves), None)

    def _uninterrupted(self, name: str, request: Request) -> Trace:
        trace = self.driver.runner.run(self.driver.root / name, request)
        if trace.end in ("failed", "lost", "late"):
            given = (
                f"\n{OF_PATH}" if "TypeError" in trace.error and type(trace.folder).__name__ in trace.error else ""
            )
            raise TrainerError(f"the function failed without being stopped:\n{trace.error}{given}")
        if len(trace.marks) < 2 and self._marks:
            raise TrainerError(
                f"a second run in an empty folder made {len(trace.marks)} marks, the first one {self._marks}: the "
                "function finds outside of the folder that it is done, as in a global that is used up or a file "
                "elsewhere; begin there anew in each call, or give mode='process'"
            )
        if len(trace.marks) < 2:
            raise TrainerError(
                f"the function made {len(trace.marks)} marks in {self.driver.whole.steps} steps; yield the completed "
                "steps, or call parity.mark, once per step"
            )
        if trace.marks[-1].step < self.driver.stop_at:
            raise TrainerError(
                f"the function ended after {trace.marks[-1].step} steps, before the kill at {self.driver.stop_at}; "
                "give steps and stop_at that it reaches"
            )
        return trace

    def _use(self, again: Trace) -> Use:
        """Return what of the trainer's source ran: of both equal runs, of which one is watched."""
        writes = frozenset((*self.driver.reference.writes, *again.writes))
        files = {self.driver.reference.code[0], *(file for file, _ in (*writes, *again.executed))} - {""}
        executed = again.executed | {self.driver.reference.code}
        return Use(
            files=tuple(sorted(files)),
            executed=frozenset(executed),
            writes=writes,
            marking=self.driver.reference.code,
        )

    def _add(self, found: Sequence[Evidence], scenario: str) -> None:
        self.suspects += [suspect(e, scenario, advise(e, found)) for e in found[:MOST]]

    def _inconclusive(self, parted: Evidence, trained: int, why: str) -> Resumption:
        at_start = parted.step == self.driver.reference.marks[0].step
        likely = likely_cause(parted, at_start=at_start, inline=self.driver.runner.mode == "inline")
        self.notes.append(
            f"two equal runs differ by themselves: at step {parted.step} {parted.path} ({parted.component}) differs; "
            f"{likely}. Nothing is judged: {why}"
        )
        return self._record("inconclusive", trained)

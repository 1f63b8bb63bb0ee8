"""The scenario `other-count`: what was saved by some processes is resumed by more or fewer of them.

The function says by what it does whether it allows that. One that fails before it has marked anything may refuse it,
or may be at fault; nothing tells which, so its own message is the verdict's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from parity.checks.judging import (
    NONE,
    Evidence,
    Kill,
    Outcome,
    RecountedRuns,
    base_of,
    begun_of,
    copies_apart,
    is_floating,
    judge_files,
    judge_later,
    judge_recounted,
    judge_same,
    named,
    on_their_way,
    own_folders,
    placed_in,
    processes,
    recount,
)
from parity.checks.resume.driver import Driver
from parity.checks.resume.left_files import read_files
from parity.checks.resume.scenarios import Scenario
from parity.checks.running import AT_ENTRY, Trace, copy_folder, list_folder

__all__ = ["drive_scenario"]

_SHOWN = 5
"""Most paths that a note names."""


def drive_scenario(driver: Driver, scenario: Scenario) -> Outcome:
    """Take the run along a scenario, also along one whose processes are of another number."""
    if scenario.processes is None:
        return driver.drive(scenario)
    return OtherCount(driver, scenario.processes).drive(scenario)


class OtherCount:
    """Drives the scenario, which takes three runs: the resumed one, and one of each number that nothing stops.

    Args:
        driver: Holds what every scenario is compared with.
        count: Processes that resume.
    """

    def __init__(self, driver: Driver, count: int) -> None:
        self.driver, self.counts = driver, (driver.runner.ranks, count)
        self._wanted = self._paths()

    def drive(self, scenario: Scenario) -> Outcome:
        """Resume by the other number, and compare what the processes hold together."""
        driver, count = self.driver, self.counts[1]
        before, other = map(processes, self.counts)
        if driver.envelope is not None:
            return _unsure(f"equal runs part by rounding: a resume by {other} is not judged beside that")
        folder = driver.root / f"scenario-{scenario.name}"
        copy_folder(driver.copies[scenario.kills[0]], folder)
        left = set(list_folder(folder))
        asked = replace(driver.asked(scenario), processes=count, keep_steps=self._keep(count))
        resumed = driver.run(folder, asked)
        if resumed.end == "late" or not resumed.marks:
            return _unsure(f"what {before} saved was not resumed by {other}: {_why(resumed)}")
        afresh = driver.run(driver.root / f"afresh-of-{count}", replace(asked, reference=True, entry=None))
        if afresh.end != "finished" or not afresh.marks:
            return _unsure(f"the function does not train with {other} from its start: {_why(afresh)}")
        saved = self._saved()
        if judge_same(driver.reference.marks, saved.marks, driver.uninterrupted.changing) is not None:
            return _unsure("what differs after the kill differs between two equal runs as well")
        runs = recount(saved, afresh, resumed, self.counts)
        out = self._judged(runs, resumed, scenario.kills[0], left)
        known = {base_of(e.path) for run in (driver.reference, afresh) for e in copies_apart(run.marks)}
        out.broken += [e for e in copies_apart(resumed.marks) if base_of(e.path) not in known]
        files: list[Evidence] = []
        if resumed.end in ("failed", "lost"):
            expected, step = f"a run that {other} can continue", resumed.steps[-1]
            said = Evidence("checkpoint.restore", "function", step, expected, _why(resumed), "after the resume")
            out.broken.append(said)
            out.notes.append(f"the function failed after {other} had resumed it:\n{resumed.error}")
        elif not out.broken and not runs.anew and judge_later(runs, driver.uninterrupted, out) and not out.broken:
            files = self._files(folder, resumed, afresh, left)
        if not out.broken:
            out.bookkeeping += runs.as_saved
        else:
            known = {e.path for e in out.broken}
            out.bookkeeping = [e for e in out.bookkeeping if e.path not in known]
        out = named(out, runs)
        out.bookkeeping += files
        for name in ("broken", "differs", "bookkeeping"):
            found = [e for e in getattr(out, name) if not driver.meant.takes(e.path, e.component)]
            setattr(out, name, found)
        out.notes += self._listed(runs)
        return out

    def _judged(self, runs: RecountedRuns, resumed: Trace, killed: int, left: set[str]) -> Outcome:
        """Return what the resumed processes hold otherwise than those that saved did."""
        driver = self.driver
        driver.reads |= {name for name in resumed.restored or resumed.reads if name in driver.reference.names}
        passing = on_their_way([driver.reference, driver.again], list_folder(driver.root / "reference"))
        kill = Kill(mark=killed, marks=driver.reference.marks, left=left, reads=driver.reads, passing=passing)
        out = judge_recounted(runs, driver.uninterrupted, kill)
        driver.taken.settle(out, driver.reference.marks, driver.uninterrupted.use, driver.trains_alike)
        return out

    def _files(self, folder: Path, resumed: Trace, afresh: Trace, left: set[str]) -> list[Evidence]:
        """Return what the folder holds at the end otherwise than runs of both numbers, which hold it alike.

        It is listed and not judged: that two runs agree in a file does not say that a third one, of which a part was
        trained by each number, has to. Numbers of training are left out, as rounding moves them.
        """
        root, logs = self.driver.root, self.driver.reference.appended | afresh.appended
        alone, reference = (read_files(root / name, logs) for name in (f"afresh-of-{self.counts[1]}", "reference"))
        of_both = {path: NONE if is_floating(leaf) else leaf for path, leaf in reference.items()}
        new = {name for name in resumed.names if name not in left and name not in afresh.names}
        steps = resumed.steps[0], afresh.steps[-1]
        own, begun = own_folders(new, afresh.names), begun_of(afresh, resumed)
        return judge_files(alone, of_both, read_files(folder, logs), steps, own, logs, begun).broken

    def _saved(self) -> Trace:
        """Return a run of as many processes as those that saved, with values."""
        driver, keep = self.driver, self._keep(self.counts[0])
        marks = [mark.step for mark in driver.reference.marks]
        saved = driver.full({at: keep[step] for at, step in enumerate(marks)})
        if any(mark.snapshot.values for mark in saved.marks):
            return saved
        asked = replace(driver.whole, keep_steps=keep, reference=True)
        return driver.run(driver.root / f"values-of-{self.counts[0]}", asked)

    def _paths(self) -> tuple[list[str], list[str]]:
        """Return the paths, without a rank, of which every rank's values are wanted, and those of which one's are."""
        reference = self.driver.reference
        placed = placed_in([reference])
        floating = {base_of(path) for mark in reference.marks for path, leaf in mark.snapshot.leaves.items()
                    if is_floating(leaf) and leaf.role in ("state", "array")}  # fmt: skip
        return sorted(placed), sorted(floating - placed)

    def _keep(self, count: int) -> dict[int, list[str]]:
        """Return what a run keeps for this: completed steps to paths of its ranks."""
        of_all, of_one = self._wanted
        paths = [f"rank{rank}:{base}" for rank in range(count) for base in of_all]
        paths += [f"rank0:{base}" for base in of_one]
        return dict.fromkeys((*(mark.step for mark in self.driver.reference.marks), AT_ENTRY), paths)

    def _listed(self, runs: RecountedRuns) -> list[str]:
        """Return the note on what has no counterpart in another number of processes."""
        marks = self.driver.reference.marks
        roles = ("state", "array", "stream", "position")
        last = {base_of(path) for path, leaf in marks[-1].snapshot.leaves.items()
                if leaf.role in roles and not marks[-1].snapshot.is_dead(path)}  # fmt: skip
        noise = {base_of(path) for path in self.driver.uninterrupted.noise}
        names = sorted(base for base in runs.own if base in last and base not in noise)
        if not names:
            return []
        more = f" ({len(names) - _SHOWN} more)" if len(names) > _SHOWN else ""
        return [
            "not judged with another number of processes, as ranks hold different values and no framework says which "
            f"part of what each is: {', '.join(names[:_SHOWN])}{more}"
        ]


def _why(trace: Trace) -> str:
    """Return in one line how a run ended."""
    lines = trace.error.strip().splitlines()
    return lines[-1].strip() if lines else "it returned without a mark" if trace.end == "finished" else trace.end


def _unsure(why: str) -> Outcome:
    return Outcome(unsure=True, notes=[why])

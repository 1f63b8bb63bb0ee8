"""What a resumed run left in its folder and gave back, compared with what the uninterrupted one did.

What differs there is asked of further runs before it counts: of an equal run, whose differences are chance, and in
processes of one that orders its sets as the process did that had saved.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from parity.capture import Leaf
from parity.checks.judging import (
    NONE,
    EqualRunsEnvelope,
    Evidence,
    Outcome,
    Uninterrupted,
    begun_of,
    is_floating,
    judge_returned,
)
from parity.checks.resume.left_files import LeftFiles, asks_for_start, either
from parity.checks.resume.read_back import settle_unread
from parity.checks.resume.scenarios import Scenario
from parity.checks.running import Request, Runner, Trace, copy_folder

__all__ = ["CheckRuns", "Endings"]


class CheckRuns(Protocol):
    """What is known of the runs of a check, and what makes more of them: the driver."""

    runner: Runner
    root: Path
    whole: Request
    reference: Trace
    uninterrupted: Uninterrupted
    copies: dict[int, Path]
    envelope: EqualRunsEnvelope | None
    equal_runs: list[Trace]

    def run(self, folder: Path, request: Request) -> Trace:
        """Run the function once."""

    def full(self, keep: Mapping[int, Sequence[str]]) -> Trace:
        """Return an equal run that came to its end."""

    def asked(self, scenario: Scenario) -> Request:
        """Return the whole run with the options of a scenario."""


class Endings:
    """Compares what runs leave; keeps what it has read of those that all scenarios are compared with."""

    def __init__(self, runs: CheckRuns) -> None:
        self._runs = runs
        self._left: dict[frozenset[str], dict[str, Leaf]] = {}
        self._lock = threading.Lock()
        self._ordered: Trace | None = None

    def judge_files(self, scenario: Scenario, trace: Trace, killed: int, folder: Path, before: Sequence[Trace],
                    left: Collection[str], live: Sequence[Evidence] = ()) -> Outcome:  # fmt: skip
        """Compare the files.

        Args:
            scenario: The way that was taken.
            trace: The resumed run.
            killed: Mark at which the process before it was killed.
            folder: Its folder.
            before: The runs before it.
            left: Files that the process before it left.
            live: What differs in the live state, and is no loss by itself.
        """
        runs = self._runs
        grown = {name for one in (*before[1:], trace) for name in one.appended}
        files = LeftFiles(runs.reference, runs.root / "reference", grown, self._left, self._lock)
        judge = partial(files.judge, trace, folder, left, extended=scenario.name == "extend")
        begun = begun_of(runs.reference, trace, before, runs.uninterrupted)
        again = None if runs.envelope is None else files.without_noise(one.folder for one in runs.equal_runs)
        found = judge(again, begun)
        looks = killed in runs.copies and len(scenario.kills) == 1
        if looks and asks_for_start(found, begun):
            first = self._begin_again(scenario, killed, files, "begun")
            begun = replace(begun, written=frozenset((p, leaf.digest) for p, leaf in first.items()))
            found = judge(again, begun)
            if any(e.path in first for e in found.broken if asks_for_start(Outcome(bookkeeping=[e]), begun)):
                second = self._begin_again(scenario, killed, files, "begun-again")
                chance = {path for path, leaf in second.items() if path in first and not leaf.same(first[path])}
                begun = replace(begun, by_chance=frozenset(chance))
                found = judge(again, begun)
        if found.broken and again is None:
            runs.full({})
            again = files.read(runs.root / "once-more")
            found = judge(again, begun)
            # arrays that went to each other's names lie in a file as another order has them
            alike = not any(_is_array(runs.reference, e.path) for e in live)
            if found.broken and alike and (ordered := self._in_order_of_the_saver()) is not None:
                found = judge(again, begun, files.read(ordered.folder))
        if found.broken and runs.envelope is None and trace.marks:
            asked = replace(runs.asked(scenario), entry=None)
            changing = runs.uninterrupted.changing
            settle_unread(found, runs.reference, trace, folder, runs.root, runs.runner, asked, changing)
        return found

    def judge_returned(self, trace: Trace) -> Outcome:
        """Compare what the function returned.

        Args:
            trace: The resumed run.
        """
        runs = self._runs
        expected, end = runs.reference.returned, runs.reference.marks[-1].step
        found = judge_returned(expected, expected, trace.returned, end)
        if found.broken and runs.envelope is None:
            again = runs.full({}).returned
            found = judge_returned(expected, again, trace.returned, end)
            if found.broken and (ordered := self._in_order_of_the_saver()) is not None:
                found = judge_returned(either(expected, ordered.returned, trace.returned), again, trace.returned, end)
        elif found.broken:
            again = {path: NONE if is_floating(leaf) else leaf for path, leaf in expected.items()}
            found = judge_returned(expected, again, trace.returned, end)
        return found

    def _in_order_of_the_saver(self) -> Trace | None:
        """Run once without a stop, with the order of sets of the runs that save, one time only; None in one process.

        A resumed run that puts back what had that order is not to have the order of the reference.
        """
        if self._runs.runner.mode != "process":
            return None
        with self._lock:
            if self._ordered is None:
                self._ordered = self._runs.run(self._runs.root / "as-saved", replace(self._runs.whole, order="saver"))
            return self._ordered if self._ordered.end == "finished" else None

    def _begin_again(self, scenario: Scenario, killed: int, files: LeftFiles, name: str) -> dict[str, Leaf]:
        """Return what a process that resumes from a kill has left at its first mark."""
        start = self._runs.root / f"{name}-{scenario.name}"
        copy_folder(self._runs.copies[killed], start)
        self._runs.run(start, replace(self._runs.asked(scenario), kill=0))
        return files.read(start)


def _is_array(trace: Trace, path: str) -> bool:
    leaf = trace.marks[-1].snapshot.leaves.get(path)
    return leaf is not None and leaf.role in ("array", "state")

"""Taken values: whether the trainer's code takes what differs after a resume, measured in further equal runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from parity.checks.judging import Asked, Evidence, Outcome, Use, identifiers, is_decided, is_variable, sites_of
from parity.checks.running import Access, Decision, DecisionSite, Mark, Request, Runner, is_unread

__all__ = ["TakenValues"]

UNTAKEN = (
    "{holder} is another after the resume, and no later step of this run changes it: whether one beyond it would is "
    "not known; give more steps, restore it, or say that it is meant: ignore={{'{holder}': reason}}"
)


class TakenValues:
    """Measures what code takes, once for each name, for all scenarios of a check.

    Args:
        runner: Runs the function.
        root: Directory of the folders of the runs.
        whole: The whole run, of which nothing else is asked.
    """

    def __init__(self, runner: Runner, root: Path, whole: Request) -> None:
        self._runner, self._root, self._whole = runner, root, whole
        self._loads: set[Access] = set()
        self._measured: frozenset[str] = frozenset()
        self._sites: set[DecisionSite] = set()
        self._decisions: set[Decision] = set()
        self._lock = threading.Lock()

    def settle(self, outcome: Outcome, marks: Sequence[Mark], use: Use) -> None:
        """Tell the losses among values that no other difference follows from: those that are read before written.

        By a name alone nothing is lost: a condition has to take the value at that very path.

        Args:
            outcome: What was found; what is asked there is answered.
            marks: Marks of the uninterrupted run.
            use: What of the trainer's source ran.
        """
        doubtful = [*outcome.deciding, *(asked.evidence for asked in outcome.asked if not asked.holders)]
        decided = self._decided(doubtful, marks, use) if doubtful else set()
        lost = [e for e in outcome.deciding if e in decided]
        outcome.bookkeeping += [e for e in doubtful if e not in decided]
        outcome.asked = [asked for asked in outcome.asked if asked.holders or asked.evidence in decided]
        names: dict[Asked, list[str]] = {}
        untaken: dict[str, Evidence] = {}
        for asked in outcome.asked:
            path = asked.evidence.path
            if is_variable(path) and not asked.holders:  # a variable: its byte code says that it may be read
                lost.append(asked.evidence)
            else:  # an element is taken by its place, which no name tells: `optimizers[phase]`
                taken_by = [one for one in asked.holders if not one.endswith("]")] if asked.holders else [path]
                names[asked] = [(identifiers(one) or [one])[-1] for one in taken_by]
        accesses = self._accesses(frozenset(name for found in names.values() for name in found), len(marks))
        for asked, found in names.items():
            steps, ever = (asked.first, asked.last), not asked.holders
            unread = all(is_unread(name, accesses, *steps, written=asked.written, ever=ever) for name in found)
            (outcome.bookkeeping if unread else lost).append(asked.evidence)
            if unread and asked.holders:
                untaken.setdefault(asked.holders[0], asked.evidence)
        outcome.broken += sorted(lost, key=lambda e: e.step)  # what differs from the resume on before what came of it
        for holder in untaken if not outcome.broken else ():
            outcome.unsure = True
            outcome.notes.append(UNTAKEN.format(holder=holder))

    def _decided(self, doubtful: Sequence[Evidence], marks: Sequence[Mark], use: Use) -> set[Evidence]:
        """Return those whose values conditions take, measured in a run that nothing stops."""
        names = {(identifiers(e.path.removesuffix(".len")) or [e.path])[-1] for e in doubtful}
        with self._lock:
            sites = sites_of(use, names) - self._sites
            if sites:
                folder = self._root / f"decisions-{len(self._sites)}"
                trace = self._runner.run(folder, replace(self._whole, decisions=sites))
                measured = trace.end == "finished"
                self._decisions |= trace.decisions if measured else {Decision("name", site.name) for site in sites}
                self._sites |= sites
            return {e for e in doubtful if is_decided(e.path, self._decisions, marks)}

    def _accesses(self, names: frozenset[str], marks: int) -> set[Access]:
        """Measure the first accesses to names after each mark, in a run that nothing stops."""
        with self._lock:
            new = names - self._measured
            if new:
                folder = self._root / f"loads-{len(self._measured)}"
                trace = self._runner.run(folder, replace(self._whole, loads=new))
                measured = trace.end == "finished"
                every = range(marks + 1)
                self._loads |= trace.loads if measured else {(name, at, "load") for name in new for at in every}
                self._measured |= new
            return self._loads

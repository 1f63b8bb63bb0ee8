"""Taken values: whether the trainer's code takes what differs after a resume, measured in further equal runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from parity.checks.judging import (
    OUTER,
    Asked,
    Evidence,
    Outcome,
    Use,
    after_resume,
    choices_of,
    identifiers,
    is_decided,
    is_variable,
    sites_of,
    sites_of_choice,
)
from parity.checks.running import (
    INSIDE,
    Access,
    Decision,
    DecisionSite,
    Mark,
    Request,
    Runner,
    Trace,
    Turn,
    is_unread,
)

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
        self._failed: frozenset[str] = frozenset()
        """Names of which nothing is known, as the run that was to measure them failed."""
        self._sites: set[DecisionSite] = set()
        self._decisions: set[Decision] = set()
        self._turned: dict[frozenset[Turn], bool | None] = {}
        """What was turned, and whether training came to differ by it; None where that is not known."""
        self._lock = threading.Lock()

    def settle(self, outcome: Outcome, marks: Sequence[Mark], use: Use, alike: Callable[[Trace], bool]) -> None:
        """Tell the losses among values that no other difference follows from: those that are read before written.

        By a name alone nothing is lost: a condition has to take the value at that very path.

        Args:
            outcome: What was found; what is asked there is answered.
            marks: Marks of the uninterrupted run.
            use: What of the trainer's source ran.
            alike: Returns whether an uninterrupted run trains as the one does that others are compared with.
        """
        doubtful = [*outcome.deciding, *(asked.evidence for asked in outcome.asked if not asked.holders)]
        plain = [e for e in doubtful if e not in outcome.weighed]
        decided = self._decided(plain, marks, use) if plain else set()
        weighed = [e for e in doubtful if e in outcome.weighed]
        decided |= self._weighed(weighed, marks, use, alike) if weighed else set()
        lost = [e for e in outcome.deciding if e in decided]
        outcome.bookkeeping += [e for e in doubtful if e not in decided]
        outcome.asked = [asked for asked in outcome.asked if asked.holders or asked.evidence in decided]
        made = [asked for asked in outcome.asked if asked.tried is not None]
        tried = self._tried(made, len(marks), use) if made else set()
        outcome.bookkeeping += [asked.evidence for asked in made if asked in tried]
        outcome.asked = [asked for asked in outcome.asked if asked not in tried]
        names: dict[Asked, list[str]] = {}
        untaken: dict[str, Evidence] = {}
        for asked in outcome.asked:
            path = asked.evidence.path
            if is_variable(path) and not asked.holders:  # a variable: its byte code says that it may be read
                lost.append(asked.evidence)
            else:  # an element is taken by its place, which no name tells: `optimizers[phase]`
                taken_by = [one for one in asked.holders if not one.endswith("]")] if asked.holders else [path]
                names[asked] = [_access_of(one, use) for one in taken_by]
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

    def unread_last(self, broken: list[Evidence], at: int, marks: int, use: Use) -> list[Evidence]:
        """Return suspects with those behind all others that differ at the resume, and that the next step sets unread.

        As an attribute that every batch sets before it reads it. Measured only where one would be named first.

        Args:
            broken: Suspects in order.
            at: Mark of the uninterrupted run that the resume is at.
            marks: Marks of the uninterrupted run.
            use: What of the trainer's source ran.
        """
        here = [e for e in broken if e.when == after_resume(0)]
        doubtful = [
            e for e in here if e.got in ("absent", "None") or (not is_variable(e.path) and use.sets(_name(e)))
        ]
        others = [e for e in here if e not in doubtful]
        if len(here) < 2 or not doubtful or broken[0] not in doubtful:
            return broken
        by = {e: _access_of(e.path.removesuffix(".len"), use) for e in doubtful}
        accesses = self._accesses(frozenset(by.values()), marks)
        unread = [e for e in doubtful if is_unread(by[e], accesses, at + 1, at + 1, written=True, ever=False)]
        if not others and len(unread) == len(doubtful):
            return broken
        return [e for e in broken if e not in unread] + unread

    def _tried(self, made: Sequence[Asked], marks: int, use: Use) -> set[Asked]:
        """Return what the uninterrupted run takes in the step in which the resumed one has made its own."""
        names = {asked: f"{asked.tried}{_access_of(asked.evidence.path, use)}" for asked in made}
        accesses = self._accesses(frozenset(names.values()), marks)
        known = {asked: name for asked, name in names.items() if name not in self._failed}
        return {asked for asked, name in known.items() if (name, asked.first, "load") in accesses}

    def _decided(self, doubtful: Sequence[Evidence], marks: Sequence[Mark], use: Use) -> set[Evidence]:
        """Return those whose values conditions take, measured in a run that nothing stops."""
        sites = sites_of(use, {_name(e) for e in doubtful})
        decisions = self._decisions_at(sites, measured_alone=False)
        return {e for e in doubtful if is_decided(e.path, decisions, marks, use)}

    def _weighed(
        self, doubtful: Sequence[Evidence], marks: Sequence[Mark], use: Use, alike: Callable[[Trace], bool]
    ) -> set[Evidence]:
        """Return those by which choices are made that training depends on, measured in runs in which they are turned.

        All are turned at once first: mostly nothing follows from any of them. Else half of them are, and so on.
        """
        names = {_name(e) for e in doubtful}
        sites = {choice.turn: sites_of_choice(choice, names) for choice in choices_of(use, names)}
        decisions = self._decisions_at(frozenset().union(*sites.values()), measured_alone=True)
        turns: dict[Evidence, frozenset[Turn]] = {}
        for e in doubtful:
            taken = {d.site for d in decisions if is_decided(e.path, [d], marks, use)}
            if found := frozenset(turn for turn, at in sites.items() if at & taken):
                turns[e] = found
        matter = self._those_that_matter(sorted(set(turns.values()), key=sorted), alike)
        return {e for e, found in turns.items() if found in matter}

    def _those_that_matter(
        self, groups: Sequence[frozenset[Turn]], alike: Callable[[Trace], bool]
    ) -> set[frozenset[Turn]]:
        if not groups or self._matters(frozenset().union(*groups), alike) is False:
            return set()
        if len(groups) == 1:
            return {groups[0]} if self._matters(groups[0], alike) else set()
        half = len(groups) // 2
        return self._those_that_matter(groups[:half], alike) | self._those_that_matter(groups[half:], alike)

    def _matters(self, turns: frozenset[Turn], alike: Callable[[Trace], bool]) -> bool | None:
        """Return whether training comes to differ where choices are turned; None where that run did not finish."""
        with self._lock:
            if turns not in self._turned:
                trace = self._runner.run(
                    self._root / f"turned-{len(self._turned)}", replace(self._whole, turns=turns)
                )
                self._turned[turns] = not alike(trace) if trace.end == "finished" else None
            return self._turned[turns]

    def _decisions_at(self, sites: frozenset[DecisionSite], *, measured_alone: bool) -> list[Decision]:
        """Return what conditions take at some places, measured in a run that nothing stops.

        Args:
            sites: The places.
            measured_alone: Whether nothing is known where that run failed; else all that has the name counts.
        """
        with self._lock:
            new = sites - self._sites
            if new:
                folder = self._root / f"decisions-{len(self._sites)}"
                trace = self._runner.run(folder, replace(self._whole, decisions=new))
                measured = trace.end == "finished"
                self._decisions |= trace.decisions if measured else {Decision("name", s.name, site=s) for s in new}
                self._sites |= new
            found = [one for one in self._decisions if one.site in sites]
            return [one for one in found if one.how != "name"] if measured_alone else found

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
                self._failed |= frozenset() if measured else new
                self._measured |= new
            return self._loads


def _access_of(path: str, use: Use) -> str:
    """Return by what accesses to a value are known: its last name, of an attribute or a key where code sets such one.

    A variable of a closure has its path inside of the function, and is set by its name alone.
    """
    name = (identifiers(path) or [path])[-1]
    return name if OUTER.sub("", path) == name or not use.sets(name) else INSIDE + name


def _name(e: Evidence) -> str:
    """Return the last identifier of a path, by which code takes the value."""
    return (identifiers(e.path.removesuffix(".len")) or [e.path])[-1]

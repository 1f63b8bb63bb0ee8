"""Other intervals of saving and of validating: what is trained must not depend on them.

A plateau that is counted in validations, or a limit on how many there may be, is meant to: with another interval it
is another run, as one with another horizon is. That is measured: where the branches that such counts pick are never
taken, both intervals train alike, and the interval of saving alone changes nothing.
"""

from __future__ import annotations

import ast
import itertools
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.capture import StateSnapshot
from parity.checks.judging import (
    NONE,
    Evidence,
    Outcome,
    TwoStates,
    Uninterrupted,
    ValueChoice,
    both_runs,
    choices_of,
    identifiers,
    stepwise,
    text_of,
)
from parity.checks.resume.trained import is_training, put_back_later
from parity.checks.running import Mark, Request, Trace, Turn

__all__ = ["Intervals"]

FOLLOWS = (
    "{when}: training follows `{condition}` ({where}), which takes what validations alone change; with another "
    "interval of validating it is another run, and the scenario says nothing"
)

VALIDATE = "validate_every"
"""The parameter of a training function that is its interval of validating."""


class Intervals:
    """Compares a run with other intervals with the one that has the function's own.

    Args:
        run: Runs the function once.
        root: Directory of the folders of the runs.
        whole: The whole run, of which nothing else is asked.
        reference: The uninterrupted run.
        uninterrupted: What equal runs say.
    """

    def __init__(
        self, run: Callable[[Path, Request], Trace], root: Path, whole: Request, reference: Trace,
        uninterrupted: Uninterrupted,
    ) -> None:  # fmt: skip
        self._run, self._root, self._whole = run, root, whole
        self._reference, self._uninterrupted = reference, uninterrupted

    def judge(self, trace: Trace, options: Mapping[str, Any], when: str) -> tuple[Outcome, bool]:
        """Return what differs, and whether all marks were compared.

        Args:
            trace: The run with other intervals, which nothing stopped.
            options: Those intervals.
            when: The same in words.
        """
        out = Outcome()
        states = both_runs(self._reference.marks, trace.marks)
        parted = self._parted(self._reference, trace)
        lazy = put_back_later(parted)
        for at, (both, differ) in enumerate(zip(states, parted, strict=True)):
            out.compared += 1
            a, b = both.left.leaves, both.right.leaves
            found = [Evidence(a[p].component, p, both.step, a[p].text, text_of(b.get(p)), when) for p in differ]
            if at in lazy:
                out.bookkeeping += found
                continue
            if differ and _decided_by_evaluation(both.left, both.right):
                out.notes.append(f"{when}: the schedule follows the evaluations, so training may differ")
                return out, False
            if differ and (follows := self._followed(trace, states[: at + 1], options)):
                condition, where = follows
                out.notes.append(FOLLOWS.format(when=when, condition=condition, where=where))
                return out, False
            if differ:
                out.broken += sorted(found, key=lambda e: (not e.component.startswith("rng"), e.path))
                return out, False
        return out, True

    def _parted(self, one: Trace, other: Trace) -> list[list[str]]:
        """Return the paths of what is trained in which a run with other intervals differs, mark by mark."""
        known = self._uninterrupted
        ignored = known.noise | known.rounded
        often = known.stepwise & stepwise(other.marks)
        return [
            [
                p for p, leaf in both.left.leaves.items()
                if p not in ignored and not both.left.is_dead(p) and is_training(p, leaf, known, often)
                and not leaf.same(both.right.leaves.get(p))
            ]
            for both in both_runs(one.marks, other.marks)
        ]  # fmt: skip

    def _followed(
        self, trace: Trace, states: Sequence[TwoStates], options: Mapping[str, Any]
    ) -> tuple[str, str] | None:
        """Return a condition by which training follows the validations, and where it stands; None if none is known.

        Args:
            trace: The run with other intervals.
            states: What both runs held, up to the mark at which what is trained differs.
            options: The other intervals.
        """
        every = options.get(VALIDATE)
        if not every:
            return None
        differ = {path for both in states for path in both.differing()}
        names = {
            (identifiers(path) or [path])[-1]
            for path in differ & self._uninterrupted.changing
            if trace.marks[0].snapshot.leaves.get(path, NONE).role == "scalar"
            and _moves_by_validations(path, self._reference.marks, trace.marks, every)
        }
        choices = [one for one in choices_of(self._uninterrupted.use, names) if _compares(one, options)]
        if not choices:
            return None
        never = frozenset(one.turn._replace(never=True) for one in choices)
        saving = {name: value for name, value in options.items() if name != VALIDATE}
        if saving and not self._alike({}, saving, frozenset()):
            return None
        if not self._alike({}, options, never):
            return None
        return _shown(choices)

    def _alike(self, options: Mapping[str, Any], others: Mapping[str, Any], turns: frozenset[Turn]) -> bool:
        """Return whether runs with two sets of options train alike where some branches are never taken."""
        traces = []
        for at, given in enumerate((options, others)):
            if not given and not turns:
                traces.append(self._reference)
                continue
            asked = replace(self._whole, options={**self._whole.options, **given}, turns=turns)
            traces.append(self._run(self._root / f"intervals-{len(turns)}-{at}", asked))
        return all(trace.end == "finished" for trace in traces) and not any(self._parted(*traces))


def _decided_by_evaluation(left: StateSnapshot, right: StateSnapshot) -> bool:
    """Return whether rates differ too, and follow evaluations by design, as on a plateau."""
    plateau = any(leaf.component == "schedule.num_bad_epochs" for leaf in left.leaves.values())
    rates = [p for p, leaf in left.leaves.items() if leaf.component.startswith("schedule") and leaf.role == "state"]
    return plateau and any(not left.leaves[p].same(right.leaves.get(p)) for p in rates)


def _moves_by_validations(path: str, own: Sequence[Mark], others: Sequence[Mark], every: int) -> bool:
    """Return whether a value changes after steps alone that lie a whole number of intervals apart.

    What an evaluation changes on its way, such as a count of all calls of a model, changes in the other steps too.

    Args:
        path: Path of the value.
        own: Marks of the run with the function's own intervals.
        others: Marks of the run with other intervals.
        every: The other interval of validating.
    """
    if len({step % every for step in _moves(path, others)}) > 1:
        return False
    moves = _moves(path, own)
    apart = math.gcd(*(step - moves[0] for step in moves))
    return every > 1 and (bool(_moves(path, others)) or (len(moves) > 1 and apart > 1))


def _moves(path: str, marks: Sequence[Mark]) -> list[int]:
    """Return the completed steps after which a value is another one than at the mark before."""
    series = [mark.snapshot.leaves.get(path, NONE) for mark in marks]
    return [later.step for later, (a, b) in zip(marks[1:], itertools.pairwise(series), strict=True) if not b.same(a)]


def _compares(choice: ValueChoice, options: Collection[str]) -> bool:
    """Return whether a choice is made by which of two numbers is higher, and not by the interval itself."""
    compared = [one for part in choice.parts for one in ast.walk(part) if isinstance(one, ast.Compare)]
    ordering = any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for one in compared for op in one.ops)
    return ordering and not choice.names & set(options)


def _shown(choices: Sequence[ValueChoice]) -> tuple[str, str]:
    """Return the last of some choices in its file, as source and as a place."""
    last = max(choices, key=lambda one: one.turn.begin)
    line = last.turn.begin[0]
    source = " and ".join(map(ast.unparse, last.parts))
    return source, f"{os.path.basename(last.turn.file)}:{line}"

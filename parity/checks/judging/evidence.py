"""Evidence: leaves that are not what they should be, what equal runs alone say, and the order of suspicion."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from parity.capture import Leaf, StateSnapshot, component_from_name, differing, root_of
from parity.checks.judging.usage import Use
from parity.checks.running import Mark

__all__ = [
    "LATER",
    "NONE",
    "RANK",
    "Asked",
    "Evidence",
    "Outcome",
    "TwoStates",
    "Uninterrupted",
    "after_resume",
    "both_runs",
    "parted_paths",
    "stepwise",
    "text_of",
    "uninterrupted_of",
]


class Evidence(NamedTuple):
    """One leaf that is not what it should be."""

    component: str
    path: str
    step: int
    expected: str
    """The value in the uninterrupted run, or its type and digest."""
    got: str
    when: str
    """`at the resume`, `one step after the resume`, `in state.pt at the end`."""

    @property
    def is_one_number(self) -> bool:
        """Whether both are the same number or text, though perhaps of two types, which are said behind it then."""
        one, other = (side.rpartition(" (")[0] if side.endswith(")") else "" for side in (self.expected, self.got))
        return self.expected == self.got or (bool(one) and one == other)


NONE = Leaf("scalar", "", "", "")
"""Stands for a leaf that is not there."""


class Asked(NamedTuple):
    """A value that differs at a resume, and the steps in which it matters whether it is read."""

    evidence: Evidence
    first: int
    """Marks of the uninterrupted run before the first of the steps."""
    last: int
    """The same of the last one."""
    written: bool
    """Whether the last one makes it equal again."""
    holders: tuple[str, ...] = ()
    """Paths of the object that the value is inside of, if its own name is not what the trainer takes it by."""
    tried: str | None = None
    """What comes before its name where it is measured whether the first step tries what it has made of it: no loss
    where the uninterrupted run takes its own in that step. None where nothing is tried."""


@dataclass(kw_only=True)
class Outcome:
    """What one comparison found."""

    broken: list[Evidence] = field(default_factory=list)
    """In the order of suspicion."""
    differs: list[Evidence] = field(default_factory=list)
    """What differs at a resume that nothing else shows to be broken: the causes, if an envelope shows that it is."""
    deciding: list[Evidence] = field(default_factory=list)
    """Losses if a condition takes their values, which their names alone say so far: to be measured."""
    weighed: set[Evidence] = field(default_factory=set)
    """Those of both lists that are losses only if training comes to differ by the other value of a choice."""
    asked: list[Asked] = field(default_factory=list)
    """Losses if their values are read before they are written, else bookkeeping: to be measured."""
    bookkeeping: list[Evidence] = field(default_factory=list)
    earliest: list[Evidence] = field(default_factory=list)
    """What differed first and is taken by code: the cause, if nothing but a file or a result is broken."""
    beginnings: frozenset[str] = frozenset()
    """Paths of those that every resume makes so: where a process began, a cache."""
    written_again: list[tuple[Evidence, frozenset[str]]] = field(default_factory=list)
    """What was set anew, with the files that this step alone wrote: the cause, if these are broken."""
    notes: list[str] = field(default_factory=list)
    lasting: frozenset[str] = frozenset()
    """Paths that differ at the end."""
    no_loss_alone: frozenset[str] = frozenset()
    """Paths of generators, modes and gradients that differ at the resume."""
    where_it_ends: Mapping[tuple[str, str], list[Evidence]] = field(default_factory=dict)
    """What differs at the resume, by what is expected of it at the end and what there is."""
    compared: int = 0
    """Marks that were compared."""
    first: tuple[int, int] | None = None
    """Marks of both runs at which the first evidence was seen: where values are to be fetched."""
    multiple: float | None = None
    """Largest deviation as a multiple of the envelope of equal runs; None where bits were compared."""
    unsure: bool = False
    """Whether the envelope was too wide to judge."""


@dataclass(frozen=True, kw_only=True)
class Uninterrupted:
    """What is known from uninterrupted runs alone."""

    noise: frozenset[str]
    """Paths that differ between two equal runs: no evidence."""
    rounded: frozenset[str] = frozenset()
    """Paths that rounding moves: evidence at the resume, compared with what was saved there, and not later."""
    changing: frozenset[str]
    """Paths whose value changes while the run goes."""
    histories: tuple[str, ...]
    """Paths of containers that only grow: metrics of the past, no state."""
    use: Use = field(default_factory=Use)
    """What of the trainer's source ran."""
    streams: frozenset[str] = frozenset()
    """Generators that training draws from."""
    stepwise: frozenset[str] = frozenset()
    """Arrays that change in more than half of the steps and are read again: trained, or made anew for each step."""
    idle: frozenset[str] = frozenset()
    """Generators that move in less than half of the steps: as one from which loaders draw seeds."""
    finished_schedules: Mapping[str, int] = field(default_factory=dict)
    """Positions of schedules that have ended, to the step after which they did not move any more."""
    made_by_steps: frozenset[str] = frozenset()
    """Variables that are not there at the first mark of a run: what a step makes for itself."""

    def is_history(self, path: str) -> bool:
        """Return whether a path lies in a container that only grows."""
        return path.startswith(self.histories)


RANK = (
    "model.ties", "optimizer.param_order", "optimizer.param_groups", "optimizer.identity", "schedule.identity",
    "model.mode", "model.requires_grad", "settings", "schedule.step", "schedule", "scaler",
    "optimizer.hyperparameters", "optimizer.master_params", "optimizer.step", "optimizer.first_moment",
    "optimizer.second_moment", "optimizer", "model.params", "ema", "rng", "data.position", "data.batch",
    "model.buffers", "best", "gradients", "counters", "model.hyperparameters", "loss",
)  # fmt: skip
"""What cannot be a consequence at the first mark comes first."""
LATER = (
    "data.batch", "data.position", "rng", "model.mode", "schedule", "scaler", "settings", "gradients", "loss",
    "model.buffers", "ema", "best", "optimizer", "model.params",
)  # fmt: skip
"""At a later mark: what others follow from comes first."""


def uninterrupted_of(
    marks: Sequence[Mark], again: Sequence[Mark], changing: frozenset[str], use: Use
) -> Uninterrupted:
    """Return what two equal runs say about every leaf.

    Args:
        marks: Marks of the first run, at least one.
        again: Marks of the second.
        changing: Paths whose value changes in the first.
        use: What of the trainer's source ran.

    Returns:
        What is known of the leaves; no path counts as rounded yet.
    """
    lengths: dict[str, list[int]] = {}
    for mark in marks:
        for path, leaf in mark.snapshot.leaves.items():
            if leaf.role == "structure" and path.endswith(".len"):
                lengths.setdefault(path.removesuffix(".len"), []).append(int(leaf.digest))
    streams = frozenset(p for p in changing if marks[0].snapshot.leaves.get(p, NONE).role == "stream")
    # one that grows no more is a window over the last values, which a step may read: a deque that is full
    grow = [p for p, n in lengths.items() if len(n) > 2 and n == sorted(n) and n[-1] > max(n[0] + 1, n[len(n) // 2])]
    return Uninterrupted(
        noise=frozenset(parted_paths(marks, again)),
        changing=changing,
        histories=tuple(
            p for p in grow if _all_scalar(p, marks) and not _changes_inside(p, changing) and not _is_table(p, marks)
        ),
        use=use,
        made_by_steps=frozenset({root_of(p) for mark in marks for p in mark.snapshot.leaves})
        - frozenset({root_of(p) for p in marks[0].snapshot.leaves}),
        finished_schedules=_ended(marks, changing),
        stepwise=stepwise(marks),
        streams=streams,
        idle=frozenset(p for p in streams if 2 * _moves(p, marks) < len(marks)),
    )


def stepwise(marks: Sequence[Mark]) -> frozenset[str]:
    """Return the arrays that change in more than half of the steps and are read again.

    What only evaluations or saves change is not among them, unless these come with nearly every step.

    Args:
        marks: Marks of one run.
    """
    times: dict[str, int] = {}
    for before, after in itertools.pairwise(marks):
        old, new = before.snapshot, after.snapshot
        for path, leaf in new.leaves.items():
            if leaf.role == "array" and path in old.leaves and not leaf.same(old.leaves[path]):
                times[path] = times.get(path, 0) + (not new.is_dead(path))
    return frozenset(path for path, count in times.items() if 2 * count > len(marks) - 1)


def _moves(path: str, marks: Sequence[Mark]) -> int:
    """Return how often a value changes from one mark to the next."""
    series = [mark.snapshot.leaves.get(path, NONE) for mark in marks]
    return sum(not after.same(before) for before, after in itertools.pairwise(series))


def _ended(marks: Sequence[Mark], changing: frozenset[str]) -> dict[str, int]:
    """Return the schedules that moved often and then rested for much longer than before: a warm-up that is over."""
    found: dict[str, int] = {}
    for path in changing:
        series = [mark.snapshot.leaves.get(path, NONE) for mark in marks]
        if series[-1].component != "schedule.step" or series[-1].role != "state":
            continue
        moved = [at for at in range(1, len(series)) if not series[at].same(series[at - 1])]
        longest = max(b - a for a, b in zip([0, *moved], moved, strict=False))
        if len(moved) > 2 and len(series) - 1 - moved[-1] > 2 * longest:
            found[path] = marks[moved[-1]].step
    return found


def _all_scalar(prefix: str, marks: Sequence[Mark]) -> bool:
    inside = [leaf for path, leaf in marks[-1].snapshot.leaves.items() if path.startswith(f"{prefix}[")]
    return all(leaf.role in ("scalar", "structure", "alias") or leaf.kind.endswith("[]") for leaf in inside)


def _is_table(path: str, marks: Sequence[Mark]) -> bool:
    """Return whether a growing container is a mapping of so many values that it is one leaf: which change is unknown.

    Counts of words grow too.
    """
    leaf = marks[-1].snapshot.leaves.get(path)
    return leaf is not None and leaf.kind.startswith(("dict[", "Counter[", "OrderedDict[", "defaultdict["))


def _changes_inside(prefix: str, changing: Collection[str]) -> bool:
    """Return whether an element that is there already changes: counts of words, and no record of the past."""
    inside = re.compile(rf"{re.escape(prefix)}\[\d+\]")
    return any(inside.fullmatch(path) for path in changing)


def _is_shared(path: str, there: Mapping[str, Leaf], lacking: Mapping[str, Leaf]) -> bool:
    """Return whether one state lacks a path and holds the same by another name of the object."""
    leaf = there.get(path)
    if leaf is None or path in lacking or leaf.role not in ("scalar", "structure", "array"):
        return False
    for at in range(len(path) - 1, 0, -1):
        if path[at] in ".[" and (owner := lacking.get(path[:at])) is not None and owner.role == "alias":
            return leaf.same(lacking.get(owner.digest + path[at:]))
    return False


class TwoStates(NamedTuple):
    """What two runs hold at one mark."""

    step: int
    """Completed steps."""
    left: StateSnapshot
    """State of the uninterrupted run."""
    right: StateSnapshot
    """State of the other."""

    def leaf(self, path: str) -> Leaf:
        """Return the leaf at a path that at least one of the states has: that of the uninterrupted run first."""
        return self.left.leaves.get(path) or self.right.leaves[path]

    def is_dead(self, path: str) -> bool:
        """Return whether a path begins with a variable that one of the runs writes before it reads it."""
        return self.left.is_dead(path) or self.right.is_dead(path)

    def differing(self) -> list[str]:
        """Return the paths in which the states differ, in no fixed order.

        A list that two names share in one run only has its elements at one of the paths there: they do not differ by
        that; that it is shared is a leaf of its own.
        """
        left, right = self.left.leaves, self.right.leaves
        found = differing(left, right)
        return [path for path in found if not _is_shared(path, left, right) and not _is_shared(path, right, left)]

    def is_other_name(self, path: str) -> bool:
        """Return whether both hold one value at a path, of which one of them has another name that comes first."""
        left, right = self.left.leaves.get(path), self.right.leaves.get(path)
        if left is None or right is None or (left.role == "alias") == (right.role == "alias"):
            return False
        if left.role == "alias":
            return right.same(self.left.leaves.get(left.digest))
        return left.same(self.right.leaves.get(right.digest))

    def is_a_place(self, path: str) -> bool:
        """Return whether a path is a place in an iterator, or another name of data that both runs hold elsewhere.

        Under which of its names a batch is met first depends on where the loop stands in it.
        """
        both = [state.leaves[path] for state in (self.left, self.right) if path in state.leaves]
        roles = {leaf.role for leaf in both}
        is_data = all(leaf.component.startswith("data.") for leaf in both)
        return self.leaf(path).role == "position" or (roles == {"alias"} and is_data and len(both) == 2)

    def component(self, path: str) -> str:
        """Return what differs at a path: of memory that is shared on one side only, the tie."""
        both = [state.leaves[path] for state in (self.left, self.right) if path in state.leaves]
        one_is_shared = len({leaf.role == "alias" for leaf in both}) == 2
        if one_is_shared and {leaf.component for leaf in both} & {"model.params", "model.ties"}:
            return "model.ties"
        if both[0].kind == "str" and both[0].role == "scalar" and both[0].component.startswith(_OF_NUMBERS):
            return path  # a text is no momentum, whatever it is called
        return both[0].component

    def ranked(self, paths: Collection[str], order: Sequence[str]) -> list[str]:
        """Return paths in an order of suspicion: by component, then by name.

        Args:
            paths: Paths that at least one of the states has.
            order: Components, the most suspicious first; one stands for its parts too. Paths of no such component
                come last, and so do those that are absent only because what has them is absent.
        """

        def key(path: str) -> tuple[int, bool, str]:
            component = self.component(path)
            one_lacks_it = path not in self.left.leaves or path not in self.right.leaves
            if component in _WITH_ITS_OWNER and one_lacks_it:
                return len(order), False, path
            # a tensor that no state_dict has is made of those that one has, as a weight of its mask
            made = component == "model.buffers" and self.leaf(path).role != "state"
            for at, prefix in enumerate(order):
                if component == prefix or component.startswith(f"{prefix}."):
                    return at, made, path
            return len(order), made, path

        return sorted(paths, key=key)

    def evidence(self, path: str, when: str) -> Evidence:
        """Return the evidence that one leaf is.

        Args:
            path: A path that at least one of the states has.
            when: When it was seen, as in `Evidence`. A batch that differs at the resume shows another position of
                the data.
        """
        component = self.component(path)
        if component == "data.batch" and when == "at the resume":
            component = "data.position"
        if component == "model.ties" and (word := component_from_name(path)).startswith("best"):
            component = word  # a best state that is the live one: a word for the reader, the tie is what differs
        left, right = (state.leaves.get(path) for state in (self.left, self.right))
        expected, got = text_of(left), text_of(right)
        if expected == got and left is not None and right is not None:  # one number in two types computes otherwise
            expected, got = f"{expected} ({left.kind})", f"{got} ({right.kind})"
        return Evidence(component, path, self.step, expected, got, when)


_OF_NUMBERS = ("optimizer.", "model.params", "model.buffers", "gradients", "ema", "loss", "scaler")
"""Components that are numbers and nothing else."""

_WITH_ITS_OWNER = ("optimizer.param_order", "optimizer.param_groups", "model.mode", "model.requires_grad")
"""Components that are absent only where what has them is absent too."""


def both_runs(marks: Sequence[Mark], others: Sequence[Mark]) -> list[TwoStates]:
    """Return what two runs hold, at each mark that both have.

    Args:
        marks: Marks of the uninterrupted run; they give the steps.
        others: Marks of the other.
    """
    pairs = zip(marks, others, strict=False)
    return [TwoStates(left.step, left.snapshot, right.snapshot) for left, right in pairs]


def parted_paths(marks: Sequence[Mark], others: Sequence[Mark]) -> set[str]:
    """Return the paths in which two runs differ at any mark that both have; arguments as of `both_runs`."""
    return {path for both in both_runs(marks, others) for path in both.differing()}


def text_of(leaf: Leaf | None) -> str:
    """Return a leaf as evidence shows it."""
    return leaf.text if leaf else "absent"


def after_resume(steps: int) -> str:
    """Return when something was seen, in words: so many steps after the resume, or at it."""
    if steps == 0:
        return "at the resume"
    return f"{'one step' if steps == 1 else f'{steps} steps'} after the resume"

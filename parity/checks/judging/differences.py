"""Differences between an uninterrupted run and a resumed one, mark by mark, and what follows from what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parity.capture import TRAINED, Leaf, root_of
from parity.checks.judging.caches import is_unmade
from parity.checks.judging.counting import (
    compare,
    counts_by_role,
    is_a_length,
    is_setting,
    may_be_the_cause,
    may_follow,
    optimizer_of,
    part_of,
    shows_another_step,
    without_leftovers,
)
from parity.checks.judging.evidence import LATER, RANK, Evidence, TwoStates, Uninterrupted, after_resume
from parity.checks.judging.later_steps import is_cleared_next, is_kept_loss, is_without_effect
from parity.checks.judging.ordering import DATA, find_replaced, identifiers, is_taken

__all__ = ["Differences"]


class Differences:
    """The differences between two runs, mark by mark from the resume on, and what follows from what.

    Args:
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        uninterrupted: What equal runs say.
        around: What paths begin with in frames of Python's own library, as of an event loop: they train nothing.
    """

    def __init__(
        self, states: Sequence[TwoStates], uninterrupted: Uninterrupted, around: tuple[str, ...] = ()
    ) -> None:
        self.states, self.uninterrupted, self._around = states, uninterrupted, around
        differing = [compare(both, uninterrupted, index) for index, both in enumerate(states)]
        self.found = without_leftovers(differing, states, uninterrupted)
        for index in range(len(states) - 1, 0, -1):
            self.found[index] = [p for p in self.found[index] if self._is_of_this_step(p, index)]
        over = {path for path, step in uninterrupted.finished_schedules.items() if step <= states[0].step}
        self.hard = [
            [p for p in differ if counts_by_role(p, both, uninterrupted) and p not in over]
            for differ, both in zip(self.found, states, strict=True)
        ]
        firm = [
            [p for p in hard if not self._is_stream(p) and not _is_mode(both.leaf(p))]
            for hard, both in zip(self.hard, states, strict=True)
        ]
        shown = [
            any(shows_another_step(p, both, uninterrupted) for p in differ)
            for differ, both in zip(self.found, states, strict=True)
        ]
        later = [index for index in range(1, len(states)) if firm[index] or shown[index]]
        self.first_later = later[0] if later else len(states)
        """The first mark after the resume at which something differs that takes part in training."""
        self._lasting = [p for p in self.hard[0] if len(self.hard) == 1 or p in self.hard[1] or self._is_rounded(p)]
        self.broken = any(firm[1:]) or any(p in firm[0] for p in self._lasting)
        """A generator, a mode or a gradient alone is no loss: nothing that is trained came to depend on it."""
        parts = {part_of(p, states[0]) for p in firm[0] if p in self._lasting}
        parts |= {part_of(p, both) for hard, both in zip(firm[1:], states[1:], strict=True) for p in hard}
        if parts == {"array"} and not self._spreads():
            self.broken = False  # an average that feeds nothing but itself; files and what is returned may show it
        apart = [(p, both) for hard, both in zip(firm, states, strict=True) for p in hard]
        if apart and not any(shown[1:]) and all(self._is_no_loss_alone(p, both) for p, both in apart):
            self.broken = False

    def _is_no_loss_alone(self, path: str, both: TwoStates) -> bool:
        """Return whether what differs is a loss only where training differs with it.

        Of two lists of groups one is the older, and who edits that one would train otherwise.
        """
        return both.leaf(path).component in _HELD_TWICE or is_unmade(path, self.states, self.uninterrupted.changing)

    def _spreads(self) -> bool:
        """Return whether arrays that differ at the resume made anything else differ: then something reads them."""
        lost = set(self.found[0])
        if not lost:  # a queue that a thread has filled to another degree has an element more or less
            return any(
                path in both.left.leaves and path in both.right.leaves
                for both, hard in zip(self.states[1:], self.hard[1:], strict=True)
                for path in hard
            )
        before: set[str] = set()
        for both, differ in zip(self.states[1:], self.found[1:], strict=True):
            same = {both.left.leaves[p].digest for p in lost & both.left.leaves.keys()}
            for path in differ:
                leaf = both.leaf(path)
                one_has_it = path not in both.left.leaves or path not in both.right.leaves
                if one_has_it and any(f"{path[:at]}.len" in lost for at, one in enumerate(path) if one == "["):
                    continue  # what a table holds that began anew: it feeds itself
                known = leaf.role in ("structure", "alias", "position") or self.uninterrupted.is_history(path)
                if path in lost or path.startswith(self._around) or known:
                    continue
                if leaf.digest not in same | before and not both.is_other_name(path):  # a copy is no other value
                    return True
            before = same
        return False

    def _is_of_this_step(self, path: str, index: int) -> bool:
        """Return whether a value that nobody reads was made by the step before, in both runs: others tell nothing."""
        both, before = self.states[index], self.states[index - 1]
        if not both.is_dead(path):
            return True
        pairs = ((both.left, before.left), (both.right, before.right))
        return all(path in now.leaves and not now.leaves[path].same(old.leaves.get(path)) for now, old in pairs)

    def _is_rounded(self, path: str) -> bool:
        """Return whether a path is of what is trained, and compared at the resume only."""
        return path in self.uninterrupted.rounded and self.states[0].leaf(path).component.startswith(TRAINED)

    def _is_stream(self, path: str) -> bool:
        return path in self.uninterrupted.streams

    def rests_alone(self) -> bool:
        """Return whether all that differs is state of optimizers that neither run changes any more.

        As after a phase that is over. It matters if a later step takes that optimizer, which is measured.
        """
        first = self.states[0]
        slots = [p for p in self.hard[0] if first.leaf(p).role == "state" and optimizer_of(p)]
        resting = {
            p for p in slots if first.component(p).startswith(("optimizer", "schedule")) and self.is_at_rest(p)
        }
        return (
            bool(resting)
            and resting.issuperset(p for hard in self.hard for p in hard)
            and not any(
                shows_another_step(p, both, self.uninterrupted)
                for both, differ in zip(self.states[1:], self.found[1:], strict=True)
                for p in differ
            )
        )

    def holders(self, path: str) -> tuple[str, ...]:
        """Return the paths at which the uninterrupted run has the optimizer that a slot is of."""
        first, leaves = optimizer_of(path), self.states[0].left.leaves
        return (first, *(p for p, leaf in leaves.items() if leaf.role == "alias" and leaf.digest == first))

    def lost(self) -> list[Evidence]:
        """Return what differs at the resume and takes part in training: what is still wrong a step later first."""
        fleeting = [p for p in self.hard[0] if p not in self._lasting]
        return self._evidence(0, self._lasting, RANK) + self._evidence(0, fleeting, RANK)

    def is_fleeting(self, path: str) -> bool:
        """Return whether what differs at the resume is equal again one step later."""
        return path not in self._lasting

    def is_without_effect(self, path: str) -> bool:
        """Return whether what differs at the resume is equal again before any other path came to differ."""
        return is_without_effect(path, self.found[: self.first_later], self.uninterrupted)

    def causes(self) -> list[Evidence]:
        """Return what else differs at the resume and can be what the later differences follow from.

        What indexes the data is its position, whatever it is called.
        """
        return [self._position(e) for e in self._causes()]

    def _position(self, e: Evidence) -> Evidence:
        words = identifiers(e.path)
        whole = self.states[0].leaf(e.path).kind.startswith(("int", "uint"))  # nothing else is an index
        if e.component == e.path and whole and words and self.uninterrupted.use.indexes(words[-1]):
            return e._replace(component="data.position")
        return e

    def _causes(self) -> list[Evidence]:
        both = self.states[0]
        soft = [p for p in self.found[0] if p not in self.hard[0] and may_be_the_cause(p, both, self.uninterrupted)]
        equal = [p for p in self.found[0] if p not in {*self.hard[0], *soft} and p in self.uninterrupted.changing]
        soft += [p for p in equal if is_kept_loss(p, both, self.found[1 : self.first_later])]
        passing = [p for p in self.found[0] if p not in self.hard[0] and p not in soft and self._is_passing(p)]
        soft, changing = soft + passing, {*self.uninterrupted.changing, *passing}
        others = [
            p for p in soft
            if both.leaf(p).role in ("scalar", "array") and p in changing
            and len(self.found) > 1 and p in self.found[1]
        ]  # fmt: skip
        if others or not self._gradients_lost():  # usually cleared before they are used again
            soft = [p for p in soft if both.leaf(p).role != "gradient"]
        if self._same_batch():  # iterators that have skipped differ inside from those that were never stopped
            others = [p for p in soft if both.leaf(p).role != "position"]
            # where nothing else can be the cause, one that gives no data may be: an endless generator of rates
            soft = others if set(self.hard[0]) - self.uninterrupted.idle or self._any_taken(others) else soft
        found = self._evidence(0, soft, RANK)
        # what a step moves is state; a first value that no step changes is often nothing but its beginning
        begun = [e for e in found if e.component == e.path and e.path not in changing]
        found = [e for e in found if e not in begun] + begun
        return sorted(found, key=lambda e: both.leaf(e.path).role == "scalar" and not is_taken(e, self.uninterrupted))

    def _any_taken(self, paths: Sequence[str]) -> bool:
        found = self._evidence(0, paths, RANK)
        return any(is_taken(e, self.uninterrupted) for e in found)

    def _is_passing(self, path: str) -> bool:
        """Return whether a path is gone one step later in the uninterrupted run: a key that holds what changes."""
        if len(self.states) == 1 or self.states[0].is_dead(path) or self.uninterrupted.is_history(path):
            return False
        now, later = (both.left.leaves for both in self.states[:2])
        return path in now and path not in later and now[path].role == "scalar" and now[path].component != "loss"

    def lasting(self) -> frozenset[str]:
        """Return the paths that differ at the end; of a key that holds what changes, where the last one differs."""
        end = set(self.found[-1])
        holders = tuple(f"{p.rpartition('[')[0]}[" for p in end if "[" in p)
        return frozenset(end | {p for p in self.found[0] if self._is_passing(p) and p.startswith(holders)})

    def histories(self) -> list[Evidence]:
        """Return the records of past steps that are shorter: a step may read them, if nothing else is the cause."""
        both = self.states[0]
        lengths = [f"{path}.len" for path in self.uninterrupted.histories]
        shorter = [p for p in lengths if p in self.found[0] and p in both.left.leaves]
        found = [both.evidence(p, after_resume(0)) for p in sorted(shorter)]
        read = [e for e in found if self.uninterrupted.use.reads(identifiers(e.path)[-2])]
        return [e._replace(path=e.path.removesuffix(".len")) for e in read]

    def settings(self) -> list[Evidence]:
        """Return the constants of training that the resumed run has others of."""
        paths = [p for p in self.found[0] if is_setting(p, self.states, self.found, self.uninterrupted)]
        found = self._evidence(0, paths, RANK)
        # numbers alone are settings by what they are; a vocabulary or a list of files has to be taken by a step
        held = [e for e in found if self.states[0].leaf(e.path).kind.partition("[")[2].rstrip("]")]
        found = [e for e in found if e not in held or is_taken(e, self.uninterrupted)]
        return [e._replace(component="settings") if e.component == e.path and e not in held else e for e in found]

    def _same_batch(self) -> bool:
        """Return whether batches were seen at the first mark that shows something, and are equal."""
        if self.first_later >= len(self.states):
            return True
        seen = self._batches(self.first_later)
        return bool(seen) and not set(seen) & set(self.found[self.first_later])

    def _batches(self, index: int) -> list[str]:
        """Return the paths of the batch: by name, or the array that the loop assigns first."""
        left = self.states[index].left
        arrays = [p for p, leaf in left.leaves.items() if leaf.role == "array" and p in self.uninterrupted.changing]
        return [p for p in arrays if left.leaves[p].component in DATA] or [p for p in arrays if left.is_dead(p)][:1]

    def _gradients_lost(self) -> bool:
        """Return whether gradients differ later although batch and loss are equal: a sum was cut off.

        So it was where the uninterrupted run holds gradients at the resume, and clears them in the step after it: one
        that only begins by clearing them holds some at every mark.
        """
        if self.first_later >= len(self.states):
            return False
        if any(is_cleared_next(p, self.states) for p in self.found[0]):
            return True
        both = self.states[self.first_later]
        components = {both.leaf(p).component for p in self.found[self.first_later]}
        return "gradients" in components and not components & {"loss", *DATA}

    def later(self) -> list[Evidence]:
        """Return what differs at the first later mark that shows something."""
        if self.first_later >= len(self.states):
            return []
        both = self.states[self.first_later]
        follow = [p for p in self.found[self.first_later] if may_follow(p, both, self.uninterrupted)]
        follow = [p for p in follow if not both.is_other_name(p)]
        follow = [p for p in follow if not both.is_a_place(p)] or follow
        batch = set(self._batches(self.first_later))
        found = self._evidence(self.first_later, follow, LATER)
        found = [
            e._replace(component="data.batch") if e.path in batch and e.component not in DATA else e for e in found
        ]
        # a batch follows from the order that it is taken by
        return sorted(found, key=lambda e: (e.component not in DATA, e.component == "data.batch"))

    def held_by(self, e: Evidence) -> Evidence:
        """Return what a value is in, if that is None in one of the runs at the resume; else the value itself.

        `best_state is None` decides by the dict and not by the arrays in it.
        """
        both = self.states[0]
        ends = [at for at, letter in enumerate(e.path) if letter in ".["]
        for end in ends:
            owner = e.path[:end]
            for there, lacking in ((both.left, both.right), (both.right, both.left)):
                none = lacking.leaves.get(owner)
                if none is not None and none.kind == "NoneType" and owner not in there.leaves:
                    sides = ("something", "None") if lacking is both.right else ("None", "something")
                    return e._replace(path=owner, expected=sides[0], got=sides[1])
        return e

    def is_a_length(self, path: str) -> bool:
        """Return whether a whole number is the length of an array of the same object, at all marks of both runs."""
        return is_a_length(path, self.states)

    def held_twice(self) -> list[Evidence]:
        """Return what holds the groups of an optimizer, or an optimizer, that another one has taken the place of."""
        both = self.states[0]
        return [both.evidence(p, after_resume(0)) for p in self.hard[0] if both.leaf(p).component in _HELD_TWICE]

    def at_the_end(self) -> list[Evidence]:
        """Return what differs at the end although nothing in training does."""
        last, both = len(self.found) - 1, self.states[-1]
        begun = self.states[0].left.leaves  # a key that holds the value is another path with each value
        paths = [p for p in self.found[last] if p in self.uninterrupted.changing or self._is_new(p, begun)]
        paths = [p for p in paths if both.leaf(p).role not in ("position", "alias")]
        found = self._evidence(last, paths, RANK)
        return [item for item in found if item.expected != "absent"]

    def while_read(self) -> list[Evidence]:
        """Return what else differed from the resume on for as long as the loop could read it.

        Variables are dead behind the loop, and what no step changes is nobody's average: nothing else lists them.
        """
        last, found = len(self.states) - 1, []
        for path in self.found[0]:
            role, changes = part_of(path, self.states[0]), path in self.uninterrupted.changing
            lives = [at for at, both in enumerate(self.states) if not both.is_dead(path)]
            # a place that never comes to be the same may be a budget that steps take from, and decide behind the end
            apart = changes and role == "position" and len(lives) > 1 and all(path in self.found[at] for at in lives)
            listed = path in self.found[last] and changes and not apart
            if listed or not lives or path not in self.found[lives[-1]] or self.uninterrupted.is_history(path):
                continue
            first = "float" in self.states[0].leaf(path).kind  # others that rest say where a process began
            if role == "array" or (role == "scalar" and (changes or first)) or apart:
                found += self._evidence(lives[-1], [path], RANK)
        return found

    def noisy(self) -> list[Evidence]:
        """Return the arrays that differ at the end and are no evidence, as they differ between equal runs too.

        So do those that are kept by an address: the resumed run has them at a path of its own, in a container whose
        length differs from run to run.
        """
        last, both = len(self.states) - 1, self.states[-1]
        noise = self.uninterrupted.noise
        arrays = [
            path
            for path, leaf in both.left.leaves.items()
            if leaf.role == "array" and path in noise and path in self.uninterrupted.changing
            and not both.is_dead(path) and not leaf.same(both.right.leaves.get(path))
        ]  # fmt: skip
        arrays += [
            path
            for path in both.right.leaves.keys() - both.left.leaves.keys()
            if both.right.leaves[path].role == "array" and f"{path.rpartition('[')[0]}.len" in noise
        ]
        return self._evidence(last, arrays, RANK)

    def _is_new(self, path: str, begun: Mapping[str, Leaf]) -> bool:
        """Return whether a path below a variable that was there at the resume has come to be there since."""
        return path not in begun and root_of(path) not in self.uninterrupted.made_by_steps

    def is_at_rest(self, path: str) -> bool:
        """Return whether neither run changes a value from the resume on."""
        sides = zip(*((both.left.leaves.get(path), both.right.leaves.get(path)) for both in self.states), strict=True)
        return all(one == leaves[0] for leaves in sides for one in leaves)

    def replaced_later(
        self, derived: Sequence[bool]
    ) -> tuple[list[tuple[Evidence, int]], list[tuple[Evidence, int]]]:
        """Return what was lost and replaced before the end; and what may have been derived from the folder.

        Each with the number of the state of which it is equal again.

        Args:
            derived: Of each state, whether the resumed run read its folder in the step before.
        """
        lost, unsure = (
            [(e, paths[e.path]) for e in self._evidence(0, [*paths], RANK)]
            for paths in find_replaced(self.states, self.found, self.uninterrupted, derived)
        )
        return lost, unsure

    def _evidence(self, index: int, paths: Sequence[str], order: Sequence[str]) -> list[Evidence]:
        both = self.states[index]
        ordered = both.ranked(paths, order)
        if order is RANK and _optimizer_absent(ordered, both):  # then its rates are lost with it
            rates = [p for p in ordered if both.leaf(p).component in _RATES]
            ordered = [p for p in ordered if p not in rates] + rates
        return [both.evidence(p, after_resume(index)) for p in ordered]


def _is_mode(leaf: Leaf) -> bool:
    """Return whether a leaf is a training mode: a loop may set it where a step begins, after the mark."""
    return leaf.component == "model.mode"


_RATES = ("schedule.lr", "optimizer.hyperparameters")
_HELD_TWICE = ("optimizer.param_groups", "optimizer.identity", "schedule.identity")


def _optimizer_absent(paths: Sequence[str], both: TwoStates) -> bool:
    """Return whether slots of the optimizer are not there at all: it was not loaded."""
    absent = [p for p in paths if p in both.left.leaves and p not in both.right.leaves]
    return any(both.leaf(p).component.startswith("optimizer.") and ".state" in p for p in absent)

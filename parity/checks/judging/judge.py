"""The judge of live runs: from the traces of a run that nothing stopped and of one that was resumed, to findings.

At which mark of the uninterrupted run a resumed one stands is decided by what it holds, not by what it says. States
are compared leaf by leaf and bit by bit, in causal order: what differs at the first mark after a restore, before any
step was taken, was lost; what differs first at a later mark shows what was lost without being seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace

from parity.capture import Leaf, root_of
from parity.checks.judging.alignment import align
from parity.checks.judging.as_saved import as_saved
from parity.checks.judging.bounds import keeps_away, runs_into
from parity.checks.judging.caches import is_cache
from parity.checks.judging.choices import choices_of
from parity.checks.judging.differences import Differences
from parity.checks.judging.evidence import (
    LATER,
    Asked,
    Evidence,
    Outcome,
    TwoStates,
    Uninterrupted,
    after_resume,
    both_runs,
)
from parity.checks.judging.later_steps import (
    done_again,
    is_cleared_next,
    is_filled_otherwise,
    shortened,
    written_again,
)
from parity.checks.judging.ordering import (
    DATA,
    earliest,
    holders_of,
    identifiers,
    in_order,
    is_read,
    is_taken,
    restored_last,
    seeds_of_loaders,
    with_data,
)
from parity.checks.judging.otherwise import differs_otherwise, parted_ties
from parity.checks.judging.presence import absent_with_default, tried_by
from parity.checks.judging.read_ahead import is_read_ahead
from parity.checks.judging.renewed import is_renewed_after_saves
from parity.checks.judging.resume_start import Kill, judge_silence, judge_start
from parity.checks.judging.shown import no_loss_alone, where_it_ends
from parity.checks.judging.sources import made_in_steps
from parity.checks.judging.suspicion import (
    is_another_type,
    number_of,
    of_a_beginning,
    with_sources,
    without_effect_last,
)
from parity.checks.running import Mark, Trace

__all__ = ["judge_resumed", "judge_same", "varying"]


def varying(marks: Sequence[Mark]) -> frozenset[str]:
    """Return the paths whose value changes from any mark to the next."""
    found: set[str] = set()
    for before, after in itertools.pairwise(marks):
        old, new = before.snapshot.leaves, after.snapshot.leaves
        found |= {path for path, leaf in new.items() if path in old and not leaf.same(old[path])}
    return frozenset(found)


def judge_same(marks: Sequence[Mark], again: Sequence[Mark], changing: Collection[str]) -> Evidence | None:
    """Return where two equal runs differ in what is trained; None where they do not.

    Args:
        marks: Marks of the first run.
        again: Marks of the second.
        changing: Paths whose value changes in the first.
    """
    parted: list[Evidence] = []
    idle: set[str] = set()
    for left, right in zip(marks, again, strict=False):
        if left.step != right.step:
            return Evidence("counters.step", "mark", left.step, str(left.step), str(right.step), "in an equal run")
        both = TwoStates(left.step, left.snapshot, right.snapshot)
        differ = [p for p in both.differing() if not both.is_dead(p)]
        # How far a thread has filled a queue is a matter of time: an array counts where both runs have it.
        there = both.left.leaves.keys() & both.right.leaves.keys()
        trained = [
            p for p in differ if _trained(both.leaf(p), p, changing) and (p in there or both.leaf(p).role == "state")
        ]
        causes = [p for p in differ if both.leaf(p).role in ("array", "stream", "position", "gradient")]
        if left is marks[0] and not trained and all(both.leaf(p).role == "stream" for p in causes):
            idle = {p for p in causes if p not in changing}  # of a new process, which has drawn nothing from them
        parted += [both.evidence(p, "in an equal run") for p in both.ranked(causes, LATER)]
        if trained:
            first = [e for e in parted if e.component.startswith(("data", "rng")) and e.path not in {*_SHARED, *idle}]
            return first[0] if first else both.evidence(both.ranked(trained, LATER)[0], "in an equal run")
    return None


_SHARED = ("random", "numpy.random")


def _trained(leaf: Leaf, path: str, changing: Collection[str]) -> bool:
    return leaf.role == "state" or (leaf.role == "array" and path in changing)


def judge_resumed(reference: Trace, resumed: Trace, uninterrupted: Uninterrupted, kill: Kill) -> Outcome:
    """Compare a resumed run with one that nothing stopped.

    Args:
        reference: The uninterrupted run.
        resumed: The run of the process that resumed.
        uninterrupted: What equal runs say.
        kill: Where the process before was killed, and what it left.
    """
    out = Outcome()
    if not resumed.marks:
        if resumed.end not in ("failed", "lost"):
            out.broken.append(judge_silence(reference, kill))
        return out
    start = resumed.marks[0]
    at, shifted = align(reference.marks, start.snapshot, start.step, uninterrupted.changing)
    wrong = judge_start(reference, start.step, at, kill, shifted=shifted)
    out.broken += wrong
    if wrong and not shifted and not (wrong[0].component == "checkpoint.latest" and start.step > reference.steps[0]):
        return out
    steps = zip(reference.steps[at:], resumed.steps, strict=False)
    parted = next(((step, other) for step, other in steps if step != other), None)
    if parted is not None and not shifted:
        step, other = parted
        out.broken.append(Evidence("counters.step", "mark", step, str(step), str(other), "after the resume"))
    states = both_runs(reference.marks[at:], resumed.marks)
    states = as_saved(states, reference.marks, at, resumed.restored, kill.reached)
    out.compared = len(states)
    _judge_states(out, states, reference, resumed, uninterrupted, at)
    expected_marks = len(reference.marks) - at
    if len(resumed.marks) != expected_marks and resumed.end == "finished" and not shifted:
        last, got = (f"the last at step {trace.steps[-1]}" for trace in (reference, resumed))
        out.broken.append(Evidence("counters.step", "marks", resumed.steps[-1], last, got, "at the end"))
    return out


def _judge_states(
    out: Outcome, states: list[TwoStates], reference: Trace, resumed: Trace, uninterrupted: Uninterrupted, at: int
) -> None:
    if reference.final is not None and resumed.final is not None and resumed.end == "finished":
        states.append(_at_the_end(reference, resumed))
    if not states:
        return
    around = tuple(f"{name}()." for name in resumed.of_python)
    seen, failed = Differences(states, uninterrupted, around), resumed.end in ("failed", "lost")
    resting = seen.lost() if seen.broken and seen.rests_alone() else []
    if seen.broken and not resting:
        lost, causes, later = seen.lost(), seen.causes(), seen.later()
        # An evaluation leaves another mode behind than a new model has; most loops set it where a step begins, and it
        # is as before one step later. It was named before the position, the window or the scale that was lost.
        # So does a generator that each step seeds before it draws.
        modes = [e for e in lost if _is_set_by_steps(e, states[0]) and seen.is_fleeting(e.path)]
        lost = [e for e in lost if e not in modes]
        if any(e.component != "model.mode" and states[0].leaf(e.path).role == "state" for e in lost):
            # a mode alone is no loss, as of a model that nothing but a save evaluates
            lost.sort(key=lambda e: e.component == "model.mode")
        # gradients that are not there may be those that the next step clears before it makes its own
        if not lost and not any(_tells(e, seen) for e in causes):
            causes = [*seen.histories(), *causes]
        causes = [*absent_with_default(states, seen.found, uninterrupted), *causes]
        if not lost:
            told = any(is_taken(e, uninterrupted) for e in causes)
            less = shortened(states[0], seen.found[0], uninterrupted, records=not told)
            less = [e for e in less if e.path not in {one.path for one in causes}]
            causes = [*causes, *less] if told else [*less, *causes]
        known = causes if lost else with_data(causes, later, uninterrupted)
        apart = parted_ties(states, seen.found, seen.first_later)
        lost = [apart.pop(e.path, e) for e in lost]
        known = [*apart.values(), *(e for e in known if e.path not in apart)]
        seeds = seeds_of_loaders(lost, seen.settings() + known, uninterrupted)
        otherwise = {e.path for e in known if is_filled_otherwise(e.path, states)}
        found = in_order([e for e in lost if e not in seeds], seen.settings() + known, uninterrupted, otherwise)
        if all(e.when != after_resume(0) for e in found):
            made = made_in_steps(states, seen.found, uninterrupted)
            found = made + differs_otherwise(states, seen.found, uninterrupted) + found
        if modes:
            shown = [e for e in found if e not in lost and e.component not in DATA and not is_read(e, uninterrupted)]
            found = [e for e in found if e not in shown] + modes + shown
        found = with_sources(without_effect_last(found, seen, failed=failed), seen)
        if at > 0 and resumed.entry is not None:
            before = reference.marks[at - 1].snapshot
            out.broken += restored_last(found, later, before, resumed.entry, uninterrupted) + seeds
        else:
            out.broken += found + seeds + later
        here = 0 if lost or not later else seen.first_later
        out.first = (at + here, here)
    else:
        causes = seen.causes()
        taken = [e for e in causes if is_taken(e, uninterrupted)]
        out.differs, out.lasting = seen.lost() + taken, seen.lasting()
        out.no_loss_alone, out.where_it_ends = no_loss_alone(seen), where_it_ends(seen)
        ends = at + len(states)
        for item in [*seen.at_the_end(), *seen.while_read()]:
            if item.path in {e.path for e in resting}:
                continue
            # at the resume itself, what the first step sets is not there yet
            gone = {"None", "absent"} & {item.expected, item.got} and item.when != after_resume(0)
            open_to = item.path not in uninterrupted.streams and not seen.is_a_length(item.path)
            open_to = open_to and not is_another_type(item.path, states) and not is_read_ahead(item.path, states)
            open_to = open_to and not is_cache(item.path, states, uninterrupted.changing, uninterrupted.use.files)
            decided = open_to and _decides(item, seen, there=bool(gone))
            if open_to and not decided and _picks(item, seen, uninterrupted):
                out.weighed.add(item)
                decided = True
            if decided and seen.is_at_rest(item.path):
                # where the resumed run failed in its first step, that one may have been about to write it
                sets = len(states) == 1 and _is_set_next(item.path, reference.marks, at)
                out.asked.append(Asked(item, at + 1, ends, written=sets))
            else:
                (out.deciding if decided else out.bookkeeping).append(item)
        saves = reference.saves(resumed.restored or resumed.reads)
        derived = [*(mark.read for mark in resumed.marks[: out.compared]), resumed.reading]
        replaced, unsure = seen.replaced_later(derived)
        for item, replaced_at in replaced:
            whole = seen.held_by(item)
            open_to = not seen.is_a_length(item.path) and not is_another_type(item.path, states)
            open_to = open_to and not is_read_ahead(item.path, states)
            decided = open_to and _decides(whole, seen, there=whole != item)
            if decided and {"None", "absent"} & {whole.expected, whole.got}:
                decided = not is_renewed_after_saves(item.path, reference.marks, saves)
            if open_to and not decided and _picks(item, seen, uninterrupted):
                out.weighed.add(whole)
                decided = True
            if decided:
                tried = tried_by(whole, states[0], uninterrupted.use.files) if replaced_at == 1 else None
                asked = Asked(whole, at + 1, at + replaced_at, written=True, tried=tried)
                out.asked += [asked] if asked not in out.asked else []
            else:
                out.bookkeeping.append(item)
        out.bookkeeping += [item for item, _ in unsure] + seen.noisy() + seen.held_twice()
        out.broken += done_again(reference, at, resumed, seen.states, seen.found, uninterrupted)
        out.written_again = written_again(reference, at, resumed, seen.states, seen.found, uninterrupted)
        others = [e for e in causes if e not in taken and e.path in out.lasting]
        out.earliest = earliest(seen.states, seen.found, uninterrupted) or others
        if all(e.when != after_resume(0) for e in out.earliest):
            out.earliest = differs_otherwise(states, seen.found, uninterrupted) + out.earliest
        for some in (out.differs, out.earliest):
            some.sort(key=lambda e: of_a_beginning(e, seen, failed=failed))
        out.beginnings = frozenset(e.path for e in out.earliest if of_a_beginning(e, seen, failed=failed))
        out.asked += [Asked(e, at + 1, ends, False, seen.holders(e.path)) for e in resting]
        if out.broken or out.deciding or out.asked or failed:
            out.first = (at, 0)


def _tells(e: Evidence, seen: Differences) -> bool:
    """Return whether something may be a cause by what is known of it: else a list that a step reads comes first."""
    if e.component == "gradients":
        return is_cleared_next(e.path, seen.states)
    if seen.is_without_effect(e.path) or _is_unset(e, seen.states[0]):
        return False
    use, leaf = seen.uninterrupted.use, seen.states[0].leaf(e.path)
    if leaf.role != "scalar" or e.component != e.path:
        return True
    return is_taken(e, seen.uninterrupted) and not any(map(use.feeds_itself, holders_of(e.path)))


def _is_unset(e: Evidence, both: TwoStates) -> bool:
    """Return whether a suspect is of a variable that a resumed generator has not set yet: to read it is an error."""
    ends = [at for at, letter in enumerate(e.path) if letter == "."]
    for before, after in itertools.pairwise([*ends, len(e.path)]):
        place, variable = both.left.leaves.get(f"{e.path[:before]}.at"), e.path[:after]
        if e.got == "absent" and place is not None and place.role == "position":
            below = (f"{variable}.", f"{variable}[")
            return not any(one == variable or one.startswith(below) for one in both.right.leaves)
    return False


def _is_set_by_steps(e: Evidence, both: TwoStates) -> bool:
    """Return whether something is of a kind that many loops set where a step begins: a mode, a generator."""
    return e.component == "model.mode" or both.leaf(e.path).role == "stream"


def _is_set_next(path: str, marks: Sequence[Mark], at: int) -> bool:
    """Return whether the step after a mark of the uninterrupted run changes a value."""
    now, later = (mark.snapshot.leaves.get(path) for mark in (marks[at], marks[min(at + 1, len(marks) - 1)]))
    return now is not None and later is not None and not now.same(later)


def _decides(item: Evidence, seen: Differences, *, there: bool) -> bool:
    """Return whether what ran decides by a value; the same number in another type decides nothing by itself.

    A first batch that is kept and only asked whether it is there (`if first is None: first = x`) decides by that, and
    counts where one of the runs is without it. Of a number that nothing but errors guard, its course tells.
    """
    use, name = seen.uninterrupted.use, _last_word(item)
    if item.is_one_number or not use.decides(name, there=there):
        return False
    if use.decides(name, there=there, errors=False):
        return True
    bounds = use.error_bounds(name)
    raised = [one for one in bounds if not one.asserted]
    pairs = [(one.left.leaves.get(item.path), one.right.leaves.get(item.path)) for one in seen.states]
    # from where both are alike for good, as from a reset on that each epoch begins with, nothing of it is left
    apart = max((at for at, (one, other) in enumerate(pairs, 1) if one != other), default=len(pairs))
    sides = zip(*pairs[:apart], strict=True)
    courses = [[number for leaf in side if leaf and (number := number_of(leaf)) is not None] for side in sides]
    if not all(courses) or (raised and not all(keeps_away(one, raised) for one in courses)):
        return bool(raised)
    return any(runs_into(one, bounds) for one in courses)


def _last_word(item: Evidence) -> str:
    path = item.path.removesuffix(".len")  # every `len(...)` would be its name
    return (identifiers(path) or [path])[-1]


def _picks(item: Evidence, seen: Differences, uninterrupted: Uninterrupted) -> bool:
    """Return whether a number takes part in what picks the value of an expression, by its name so far."""
    leaf = seen.states[0].left.leaves.get(item.path)
    if leaf is None or leaf.role != "scalar" or item.is_one_number:
        return False
    return bool(choices_of(uninterrupted.use, [(identifiers(item.path) or [item.path])[-1]]))


def _at_the_end(reference: Trace, resumed: Trace) -> TwoStates:
    """Return what both runs hold when they return.

    Frames that the function delegated to, as by `yield from`, are gone by then: what they held at the last mark
    stands for what they held at their end.
    """
    ends = [trace.final for trace in (reference, resumed) if trace.final is not None]
    there = {root_of(path) for final in ends for path in final.leaves}
    whole = []
    for trace, final in zip((reference, resumed), ends, strict=True):
        last = trace.marks[-1].snapshot
        gone = {path: leaf for path, leaf in last.leaves.items() if root_of(path) not in there}
        whole.append(replace(final, leaves={**gone, **final.leaves}, dead=final.dead | last.dead))
    return TwoStates(reference.marks[-1].step + 1, *whole)

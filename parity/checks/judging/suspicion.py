"""The last word on the order of suspects: what had no effect goes last, what others were made from goes before them.

A generator that has not begun, an iterator that has skipped and what is made ahead differ at every resume.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from parity.capture import NOT_BEGUN, Leaf
from parity.checks.judging.by_key import is_taken_by_key_alone
from parity.checks.judging.caches import is_unmade
from parity.checks.judging.differences import Differences
from parity.checks.judging.evidence import RANK, Evidence, TwoStates, after_resume
from parity.checks.judging.later_steps import is_filled_otherwise, is_made_again
from parity.checks.judging.ordering import holders_of, identifiers, is_taken
from parity.checks.judging.sources import is_written_whole, made_last, what_loops_give_last

__all__ = ["is_another_type", "number_of", "of_a_beginning", "with_sources", "without_effect_last"]


def without_effect_last(found: list[Evidence], seen: Differences, *, failed: bool) -> list[Evidence]:
    """Return suspects with those last that were equal again before anything else came to differ, or feed nothing.

    Args:
        found: Suspects that differ at the resume, in order.
        seen: All that differs.
        failed: Whether the resumed run came to no end.
    """
    use = seen.uninterrupted.use
    idle = [e for e in found if seen.is_without_effect(e.path) or any(map(use.feeds_itself, holders_of(e.path)))]
    both = seen.states[0]
    ahead = [e for e in found if _is_of_a_skipped_iterator(e.path, both) or _is_of_one_to_begin(e.path, both)]
    ahead += [e for e in found if _counts_what_is_handed_on(e.path, both)]
    ahead += [e for e in found if e.when == after_resume(0) and is_made_again(e.path, seen.states)]
    if not failed:
        ahead += [e for e in found if _is_needless(e, seen)]
    ahead += [e for e in found if _is_a_default(e) or _is_a_zero_that_is_not_there(e)]
    ahead += [e for e in found if e.when == after_resume(0) and is_written_whole(e.path, use)]
    idle += [e for e in ahead if e not in idle]
    equal = [e for e in found if e.when == after_resume(0) and is_another_type(e.path, seen.states[:1])]
    of_optax = (seen.states, seen.uninterrupted.changing)
    equal += [e for e in found if e.when == after_resume(0) and is_unmade(e.path, *of_optax)]
    ordered = [e for e in [*(e for e in found if e not in idle), *idle] if e not in equal]
    here = max((at for at, e in enumerate(ordered, 1) if e.when == after_resume(0)), default=0)
    return ordered[:here] + equal + ordered[here:]  # where nothing else differs at the resume, its type is the cause


def _is_needless(e: Evidence, seen: Differences) -> bool:
    """Return whether a table holds nothing after the resume, and each key that was taken then was put there first."""
    holder = e.path if f"{e.path}.len" in seen.states[0].left.leaves else e.path[: max(e.path.rfind("["), 0)]
    now = seen.states[0].right.leaves.get(f"{holder}.len")
    if e.when != after_resume(0) or now is None or now.digest != "0":
        return False
    return is_taken_by_key_alone((identifiers(holder) or [holder])[-1], seen.uninterrupted.use.files)


def _is_a_default(e: Evidence) -> bool:
    """Return whether a value is what an optimizer gives to groups that are added: others have their own."""
    return e.component == "optimizer.defaults"


def _is_a_zero_that_is_not_there(e: Evidence) -> bool:
    """Return whether an entry of a table is zero in one run and absent in the other: counted down, or made anew.

    A `Counter` gives zero for both, and so do `get(key, 0)` and a default.
    """
    return {e.expected, e.got} in ({"0", "absent"}, {"0.0", "absent"}) and e.path.endswith("]")


def of_a_beginning(e: Evidence, seen: Differences, *, failed: bool) -> int:
    """Return whether, and how surely, every resume makes something so; 0 where it may be lost.

    A number that no step changes often tells where a process began, and a table that steps fill again as it was is a
    cache. Where training is the same, what a file shows follows from what else was lost, if from anything.
    Arguments as of `without_effect_last`.
    """
    if e.when != after_resume(0):
        return 0
    if is_another_type(e.path, seen.states[:1]) or (not failed and _is_needless(e, seen)) or _is_a_default(e):
        return 3
    if _is_a_zero_that_is_not_there(e):
        return 3
    both = e.path in seen.states[0].left.leaves and e.path in seen.states[0].right.leaves  # a lost key is no number
    is_number = both and e.component == e.path and seen.states[0].leaf(e.path).role == "scalar"
    return 2 if is_number and e.path not in seen.uninterrupted.changing else int(is_refilled(e.path, seen.states))


def with_sources(found: list[Evidence], seen: Differences) -> list[Evidence]:
    """Return suspects, each behind a list that has lost elements and that it was made from before the first step."""
    use, known, out = seen.uninterrupted.use, {e.path for e in found}, list[Evidence]()
    shorter = [e for e in seen.histories() if e.path not in known]
    for e in found:
        name = (identifiers(e.path) or [e.path])[-1]
        here = [one for one in shorter if e.when == one.when and use.made_before(name, identifiers(one.path)[-1])]
        shorter = [one for one in shorter if one not in here]
        out += [*here, e]
    out = made_last(out, seen.histories(), use)
    both, changing = seen.states[0], seen.uninterrupted.changing
    handed = [p for p in both.ranked(both.differing(), RANK) if both.is_dead(p) and p in changing and p not in known]
    begun = [both.evidence(p, after_resume(0)) for p in handed]
    return what_loops_give_last(out, begun, use, lambda e: is_taken(e, seen.uninterrupted))


def is_refilled(path: str, states: Sequence[TwoStates]) -> bool:
    """Return whether an element is of a table that steps fill again, as far as they do with the same elements.

    Args:
        path: Path of the element, or of the table's length.
        states: What both runs hold, from the resume on.
    """
    table = path.removesuffix(".len") if path.endswith(".len") else path[: max(path.rfind("["), 0)]
    if not table or is_filled_otherwise(table, states):
        return False
    begun, start = states[0].right.leaves, f"{table}["
    if any(one.startswith(start) for one in begun):
        return False  # a part of it was restored
    again = [one in both.left.leaves for both in states[1:] for one in both.right.leaves if one.startswith(start)]
    return bool(again) and all(again)  # other keys are what was lost, or follow from it


def is_another_type(path: str, states: Sequence[TwoStates]) -> bool:
    """Return whether both runs have the same number there all the time, of other types: 1 as a float, from an array.

    No condition tells them apart by comparing; where the type matters, something else comes to differ.

    Args:
        path: A path that differs at the resume.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
    """
    pairs = [(both.left.leaves.get(path), both.right.leaves.get(path)) for both in states]
    there = [(a, b) for a, b in pairs if a is not None and b is not None and not a.same(b)]
    return bool(there) and all(number_of(a) is not None and number_of(a) == number_of(b) for a, b in there)


def number_of(leaf: Leaf) -> Fraction | None:
    """Return the exact value of a plain number; None of anything else, a text of digits too."""
    if leaf.role != "scalar" or leaf.kind in ("str", "bytes"):
        return None
    try:
        return Fraction(leaf.digest)
    except (ValueError, ZeroDivisionError):
        return None


def _is_of_one_to_begin(path: str, both: TwoStates) -> bool:
    """Return whether a variable of a generator is not there yet, which another one of it is: it has not begun."""
    leaf, right = both.left.leaves.get(path), both.right.leaves
    owners = tuple(path[: at + 1] for at, letter in enumerate(path) if letter == "." and at)
    if leaf is None or leaf.role != "position" or not owners:
        return False
    if path not in right:
        return any(p.startswith(owners) and one.role == "position" for p, one in right.items())
    places = [(both.left.leaves.get(f"{owner}at"), right.get(f"{owner}at")) for owner in owners]
    if any(a is not None and b is not None and a.digest != NOT_BEGUN == b.digest for a, b in places):
        return True  # what it was given, too, such as how much it is to skip
    loops = f"{owners[-1]}for["  # what it iterates over is on its stack as soon as it has begun
    return any(p.startswith(loops) for p in both.left.leaves) and not any(p.startswith(loops) for p in right)


def _counts_what_is_handed_on(path: str, both: TwoStates) -> bool:
    """Return whether a place is that of an iterator over another one that is seen: `islice(stream, n)`, a tee.

    It counts from where the process began; where the data are, the other one says.
    """
    owner, state, _ = path.rpartition(".state")
    if not state or f"{owner}.left" in both.left.leaves:
        return False
    source, places = f"{owner}.of", (".at", ".left", ".state", ".count")
    return any(one.startswith(source) and one.endswith(places) for one in both.left.leaves)


def _is_of_a_skipped_iterator(path: str, both: TwoStates) -> bool:
    """Return whether a list under an iterator differs that has as many elements left: `iter(batches[offset:])`."""
    left = f"{path.removesuffix('.of')}.left"
    one, other = both.left.leaves.get(left), both.right.leaves.get(left)
    return path.endswith(".of") and one is not None and one.same(other)

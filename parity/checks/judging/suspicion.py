"""The last word on the order of suspects: what had no effect goes last, what others were made from goes before them.

A generator that has not begun, an iterator that has skipped and what is made ahead differ at every resume.
"""

from __future__ import annotations

from parity.capture import NOT_BEGUN
from parity.checks.judging.differences import Differences
from parity.checks.judging.evidence import Evidence, TwoStates, after_resume
from parity.checks.judging.later_steps import is_made_again
from parity.checks.judging.ordering import holders_of, identifiers

__all__ = ["with_sources", "without_effect_last"]


def without_effect_last(found: list[Evidence], seen: Differences) -> list[Evidence]:
    """Return suspects with those last that were equal again before anything else came to differ, or feed nothing."""
    use = seen.uninterrupted.use
    idle = [e for e in found if seen.is_without_effect(e.path) or any(map(use.feeds_itself, holders_of(e.path)))]
    both = seen.states[0]
    ahead = [e for e in found if _is_of_a_skipped_iterator(e.path, both) or _is_of_one_to_begin(e.path, both)]
    ahead += [e for e in found if e.when == after_resume(0) and is_made_again(e.path, seen.states)]
    idle += [e for e in ahead if e not in idle]
    return [e for e in found if e not in idle] + idle


def with_sources(found: list[Evidence], seen: Differences) -> list[Evidence]:
    """Return suspects, each behind a list that has lost elements and that it was made from before the first step."""
    use, known, out = seen.uninterrupted.use, {e.path for e in found}, list[Evidence]()
    shorter = [e for e in seen.histories() if e.path not in known]
    for e in found:
        name = (identifiers(e.path) or [e.path])[-1]
        here = [one for one in shorter if e.when == one.when and use.made_before(name, identifiers(one.path)[-1])]
        shorter = [one for one in shorter if one not in here]
        out += [*here, e]
    return out


def _is_of_one_to_begin(path: str, both: TwoStates) -> bool:
    """Return whether a variable of a generator is not there yet, which another one of it is: it has not begun."""
    leaf, right = both.left.leaves.get(path), both.right.leaves
    owners = tuple(path[: at + 1] for at, letter in enumerate(path) if letter == "." and at)
    if leaf is None or leaf.role != "position" or not owners:
        return False
    if path not in right:
        return any(p.startswith(owners) and one.role == "position" for p, one in right.items())
    if path.endswith(".at") and right[path].digest == NOT_BEGUN:
        return leaf.digest != NOT_BEGUN
    loops = f"{owners[-1]}for["  # what it iterates over is on its stack as soon as it has begun
    return any(p.startswith(loops) for p in both.left.leaves) and not any(p.startswith(loops) for p in right)


def _is_of_a_skipped_iterator(path: str, both: TwoStates) -> bool:
    """Return whether a list under an iterator differs that has as many elements left: `iter(batches[offset:])`."""
    left = f"{path.removesuffix('.of')}.left"
    one, other = both.left.leaves.get(left), both.right.leaves.get(left)
    return path.endswith(".of") and one is not None and one.same(other)

"""What code asks for being there and is made anew where it is not: `if self.ahead is None: self.ahead = self.load()`.

A batch that is loaded ahead and an observation that is made on demand are not there after a resume. The first step
makes them, and is the step that the uninterrupted run takes with its own: it has tried what was made. A best value is
another matter: it takes part in a comparison, of which many outcomes are alike.

So is a flag that asks for work to be done: `if self.dirty: self.factor = build(); self.dirty = False`. A new process
does it in its first step, while the uninterrupted run does not; where all is equal after it, it was done already.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterable, Sequence

from parity.capture import root_of
from parity.checks.judging.evidence import RANK, Evidence, TwoStates, Uninterrupted, after_resume
from parity.checks.judging.ordering import identifiers
from parity.checks.judging.syntax import in_one_way, last_name, names_in, source_tree
from parity.checks.running import BEYOND

__all__ = ["absent_with_default", "is_compared", "is_tested_alone", "tried_by"]


def absent_with_default(
    states: Sequence[TwoStates], found: Sequence[Collection[str]], uninterrupted: Uninterrupted
) -> list[Evidence]:
    """Return what is not there at the resume, is taken with a default, and is another one a step later.

    Args:
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        found: Paths that differ in each and say something.
        uninterrupted: What equal runs say.
    """
    both = states[0]
    lacking = {p for p in both.differing() if p in both.left.leaves and p not in both.right.leaves}
    later = set(found[1]) if len(found) > 1 else set()
    paths = [
        p
        for p in (lacking & later) - set(found[0]) - uninterrupted.noise
        if not both.is_dead(p) and both.leaf(p).role in ("scalar", "array", "state") and root_of(p) != p
        and uninterrupted.use.asks_for((identifiers(p) or [p])[-1])
    ]  # fmt: skip
    return [both.evidence(p, after_resume(0)) for p in both.ranked(paths, RANK)]


def tried_by(e: Evidence, both: TwoStates, files: Sequence[str]) -> str | None:
    """Return what comes before a name where it is measured whether the first step tries what it makes of a value.

    Args:
        e: What differs at the resume, and is equal one step later.
        both: What both runs hold at the resume.
        files: Source files of the trainer.

    Returns:
        None where that step proves nothing.
    """
    name = (identifiers(e.path) or [e.path])[-1]
    if e.got == "None" and not is_compared(name, files):
        return BEYOND
    sides = [state.leaves.get(e.path) for state in (both.left, both.right)]
    flag = all(leaf is not None and leaf.kind == "bool" for leaf in sides)
    return "" if flag and is_tested_alone(name, files) else None


def is_compared(name: str, files: Iterable[str]) -> bool:
    """Return whether a name takes part in a comparison, or in what picks the least or the most.

    To ask whether it is None is none.

    Args:
        name: The last name of a path.
        files: Source files of the trainer.
    """
    return any(name in _compared(file) for file in files)


@functools.lru_cache(maxsize=64)
def _compared(file: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(source_tree(file)):
        match node:
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
                continue
            case ast.Compare() | ast.Call(func=ast.Name(id="min" | "max" | "sorted")):
                found |= names_in(node)
            case ast.Match(subject=subject):
                found |= names_in(subject)
    return frozenset(found)


def is_tested_alone(name: str, files: Iterable[str]) -> bool:
    """Return whether code takes a flag for nothing but branches that depend on it alone.

    Args:
        name: The last name of a path.
        files: Source files of the trainer.
    """
    return in_one_way(name, files, _tested)


@functools.lru_cache(maxsize=64)
def _tested(file: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that are tests by themselves, or their contraries, and those that are taken otherwise."""
    nodes = list(ast.walk(source_tree(file)))
    tests = [node.test for node in nodes if isinstance(node, ast.If | ast.While | ast.IfExp)]
    bare = [
        test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test for test in tests
    ]
    known = {id(test) for test in bare}
    taken = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Load) and id(node) not in known]
    return frozenset(map(last_name, bare)) - {""}, frozenset(map(last_name, taken))

"""What suspects were made from, by the source of the function that marks: that is named before them.

A loop over `batches(annealer)` has its batch before the mark of a step, so a resumed run shows another batch at once
where the annealer was lost. A network into which each step writes a vector whole is what the vector is. An index is
made of the words before the first step. None of them is saved, and nothing in the two runs tells which came first.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping, Sequence

from parity.checks.judging.evidence import Evidence, TwoStates, Uninterrupted, after_resume
from parity.checks.judging.ordering import OUTER, identifiers
from parity.checks.judging.syntax import by_function, last_name, names_in, source_tree
from parity.checks.judging.usage import Use, is_saved
from parity.checks.running import called_name

__all__ = ["is_written_whole", "made_in_steps", "made_last", "what_loops_give_last"]

_WRITERS = frozenset(("vector_to_parameters",))
"""Functions of libraries that write all parameters of a module, which is their last argument."""


def what_loops_give_last(
    found: list[Evidence], handed: list[Evidence], use: Use, is_cause: Callable[[Evidence], bool]
) -> list[Evidence]:
    """Return suspects with what the marking loop iterates over before the variables that it sets at each turn.

    Args:
        found: Suspects, in order.
        handed: What else differs at the resume, in variables that the function itself takes no more: it has handed
            them on, as to a generator.
        use: What of the trainer's source ran.
        is_cause: Returns whether code takes a suspect, and another value than it would have.
    """
    targets = _targets(*use.marking) if use.marking[0] else {}
    out = list(found)
    for e in found:
        of = targets.get(OUTER.sub("", e.path), frozenset())
        behind = [*out[out.index(e) + 1 :], *(one for one in handed if one not in out)]
        before = [one for one in behind if one.when == e.when and _root(one) in of and is_cause(one)]
        out = [one for one in out if one not in before]
        out[out.index(e) : out.index(e)] = before
    return out


def made_last(found: list[Evidence], shorter: list[Evidence], use: Use) -> list[Evidence]:
    """Return suspects, a container that has lost elements behind another one that it is made of before the steps.

    Args:
        found: Suspects, in order.
        shorter: Containers that have lost elements.
        use: What of the trainer's source ran.
    """
    paths, out = {e.path for e in shorter}, list(found)
    for e in found:
        name = _last(e)
        of = [one for one in out if e.path in paths and one.path in paths and use.made_before(name, _last(one))]
        of = [one for one in of if out.index(one) > out.index(e) and not use.made_before(_last(one), name)]
        out = [one for one in out if one not in of]
        out[out.index(e) : out.index(e)] = of
    return out


def made_in_steps(
    states: Sequence[TwoStates], found: Sequence[Sequence[str]], uninterrupted: Uninterrupted
) -> list[Evidence]:
    """Return the generators that a step has made, differ at the resume, and do so one step later.

    As one that each epoch makes anew with its order, and whose batches draw from it: the first mark does not have it.
    One that every step makes anew is equal by then.

    Args:
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        found: Paths that differ in each.
        uninterrupted: What equal runs say.
    """
    both, drawn = states[0], uninterrupted.changing - uninterrupted.streams
    made = [p for p in found[0] if p in drawn and both.leaf(p).role == "stream" and not both.is_dead(p)]
    lasting = [p for p in made if len(found) == 1 or p in found[1]]
    return [both.evidence(p, after_resume(0)) for p in sorted(lasting)]


def is_written_whole(path: str, use: Use) -> bool:
    """Return whether a value is below a module whose parameters are all written at once, and that nothing saves.

    Args:
        path: Its path.
        use: What of the trainer's source ran.
    """
    words = identifiers(OUTER.sub("", path))[:-1]
    names = {name for file in use.files for name, line in _written_whole(file) if use.ran(file, line)}
    return any(word in names and not is_saved(word, use.files) for word in words)


def _root(e: Evidence) -> str:
    return (identifiers(OUTER.sub("", e.path)) or [e.path])[0]


def _last(e: Evidence) -> str:
    return (identifiers(e.path) or [e.path])[-1]


@functools.lru_cache(maxsize=64)
def _targets(file: str, line: int) -> Mapping[str, frozenset[str]]:
    """Return the variables of loops in one function, each with the names that the loop iterates over."""
    found: dict[str, set[str]] = {}
    made: dict[str, set[str]] = {}
    for node, of in by_function(source_tree(file)):
        if of != line:
            continue
        if isinstance(node, ast.For | ast.AsyncFor) and _marks(node):
            for name in names_in(node.target):
                found.setdefault(name, set()).update(names_in(node.iter))
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            made.setdefault(node.targets[0].id, set()).update(names_in(node.value))
    # `feed = batches(annealer)` before `for batch in feed`
    return {
        name: frozenset(of | {one for name in of for one in made.get(name, ())} - {name})
        for name, of in found.items()
    }


def _marks(loop: ast.For | ast.AsyncFor) -> bool:
    """Return whether a loop makes marks: it yields, or calls what does."""
    parts = [part for statement in loop.body for part in ast.walk(statement)]
    return any(
        isinstance(one, ast.Yield) or (isinstance(one, ast.Call) and called_name(one) == "mark") for one in parts
    )


@functools.lru_cache(maxsize=64)
def _written_whole(file: str) -> frozenset[tuple[str, int]]:
    """Return the names of modules that are written whole, each with the first line of the function that does so."""
    found: set[tuple[str, int]] = set()
    kept: set[str] = set()
    for node, line in by_function(source_tree(file)):
        if isinstance(node, ast.Attribute) and node.attr in ("state_dict", "load_state_dict"):
            kept.add(last_name(node.value))
        if isinstance(node, ast.Call) and called_name(node) in _WRITERS and len(node.args) > 1:
            given = node.args[1]  # `self.scratch.parameters()`: its last name alone, others hold more than it
            if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute):
                given = given.func.value
            found.update((name, line) for name in filter(None, [last_name(given)]))
    return frozenset((name, line) for name, line in found if name not in kept)

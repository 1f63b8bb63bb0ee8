"""Choices: expressions whose value a comparison picks, and branches that assign plain values.

`x if c < N else y`, `min(f(c), N)`, `rate * (c > 5)`, `if c > 5: rate = 0.1`: no statement is guarded that would show
what the value is for, so it is measured in a run in which they are turned (`parity.checks.running.turned`).
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterator
from typing import NamedTuple

from parity.checks.judging.deciding import flags_of
from parity.checks.judging.for_people import is_for_people
from parity.checks.judging.guards import guarded, is_plain, is_plain_statement
from parity.checks.judging.syntax import by_function, is_written_out, names_in, source_tree
from parity.checks.judging.tables import is_table
from parity.checks.judging.usage import Use
from parity.checks.running import INVERSE, Turn, place_of

__all__ = ["ValueChoice", "choices_of"]


class ValueChoice(NamedTuple):
    """One choice."""

    turn: Turn
    parts: tuple[ast.expr, ...]
    """What picks the value."""
    names: frozenset[str]
    """The names that are written there."""
    function: int
    """First line of the function that it is in; 0 is the module."""


def choices_of(use: Use, names: Collection[str]) -> list[ValueChoice]:
    """Return the choices that some names take part in, in functions that ran.

    Args:
        use: What of the trainer's source ran.
        names: Last identifiers of paths.
    """
    wanted = frozenset(names)
    found = [(file, one) for file in use.files for one in _choices(file) if one.names & wanted]
    return [one for file, one in found if use.ran(file, one.function)]


@functools.lru_cache(maxsize=64)
def _choices(file: str) -> tuple[ValueChoice, ...]:
    tree = source_tree(file)
    tests = {id(one) for node in ast.walk(tree) for part in _tests(node) for one in ast.walk(part)}
    flags = {id(one) for parts in flags_of(file).values() for part in parts for one in ast.walk(part)}
    passed = _passed_through(tree)
    found = []
    for node, line in by_function(tree):
        if id(node) in flags or (id(node) in tests and not isinstance(node, ast.IfExp)):
            continue  # what guards statements is told by what these are
        if parts := (*_picked_by(node, tree), *passed.get(id(node), ())):
            names = frozenset(name for part in parts for name in names_in(part))
            found.append(ValueChoice(Turn(file, *place_of(node)), parts, names, line))  # type: ignore[arg-type]
    return tuple(found)


def _tests(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the conditions of a node that guard whether something is done at all."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
            yield test
        case ast.comprehension(ifs=ifs):
            yield from ifs
        case ast.match_case(guard=ast.expr() as guard):
            yield guard


def _picked_by(node: ast.AST, tree: ast.Module) -> Iterator[ast.expr]:
    """Yield what a choice is made by; nothing where a node is none, or where turning it would call something."""
    match node:
        case ast.IfExp(test=test, body=body, orelse=orelse):
            if is_plain(body) and is_plain(orelse):
                yield test
        case ast.Compare(ops=[op]) if type(op) in INVERSE:
            yield node
        case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _, *_] as args):
            yield from args
        case ast.If(test=test, body=body, orelse=orelse):
            quiet = all(is_plain_statement(one, tree) for one in [*body, *orelse]) or id(node) in guarded(tree)
            if quiet and not is_table(node) and not is_for_people(node, tree):
                yield test
        case ast.Subscript(slice=index, ctx=ast.Load(), value=of) if is_plain(of) and is_plain(index):
            # another element of a table; a key that is written out picks nothing
            if not isinstance(index, ast.Slice | ast.Tuple | ast.Constant | ast.UnaryOp):
                yield index
        case ast.Call(func=ast.Attribute(attr="get", value=of), args=[key, _], keywords=[]):
            if is_plain(of) and is_plain(key) and not is_written_out(key):
                yield key
        case ast.BinOp(op=ast.FloorDiv(), left=left):
            yield left
        case ast.Call(func=ast.Name(id="int"), args=[ast.BinOp(op=ast.Div(), left=left)], keywords=[]):
            yield left
        case ast.Match(subject=subject, cases=cases):
            if len(cases) > 1 and is_plain(subject) and all(_is_plain_case(case, tree) for case in cases):
                yield subject


def _passed_through(tree: ast.Module) -> dict[int, tuple[ast.expr, ...]]:
    """Return what comparisons in comprehensions take the elements of: `any(s > 60 for s in self.strikes)`."""
    kinds = ast.GeneratorExp | ast.ListComp | ast.SetComp
    found: dict[int, tuple[ast.expr, ...]] = {}
    for node in ast.walk(tree):
        if isinstance(node, kinds) and len(node.generators) == 1 and isinstance(node.generators[0].target, ast.Name):
            name, of = node.generators[0].target.id, node.generators[0].iter
            for one in ast.walk(node.elt):
                if isinstance(one, ast.Compare) and type(one.ops[0]) in INVERSE and name in names_in(one):
                    found[id(one)] = (of,)
    return found


def _is_plain_case(case: ast.match_case, tree: ast.Module) -> bool:
    """Return whether a case is of values that are written out, none of which it keeps, and of plain statements."""
    kinds = ast.MatchValue | ast.MatchSingleton | ast.MatchOr | ast.MatchAs
    patterns = [one for one in ast.walk(case.pattern) if isinstance(one, ast.pattern)]
    written_out = all(isinstance(one, kinds) and getattr(one, "name", None) is None for one in patterns)
    return written_out and case.guard is None and all(is_plain_statement(one, tree) for one in case.body)

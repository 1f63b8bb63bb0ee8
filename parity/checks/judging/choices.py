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
from parity.checks.judging.syntax import by_function, names_in, source_tree
from parity.checks.judging.tables import is_table
from parity.checks.judging.usage import Use
from parity.checks.running import INVERSE, Turn, place_of

__all__ = ["ValueChoice", "choices_of"]

_QUIET = frozenset(("min", "max", "abs", "float", "int", "len", "round", "sum", "bool", "str"))
"""Calls of Python itself that change nothing and wait for nothing."""


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
    found = []
    for node, line in by_function(tree):
        if id(node) in flags or (id(node) in tests and not isinstance(node, ast.IfExp)):
            continue  # what guards statements is told by what these are
        if parts := tuple(_picked_by(node, tree)):
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
            if _is_plain(body) and _is_plain(orelse):
                yield test
        case ast.Compare(ops=[op]) if type(op) in INVERSE:
            yield node
        case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _, *_] as args):
            yield from args
        case ast.If(test=test, body=body, orelse=orelse):
            quiet = all(map(_assigns_plainly, [*body, *orelse]))
            if quiet and not is_table(node) and not is_for_people(node, tree):
                yield test


def _assigns_plainly(statement: ast.stmt) -> bool:
    """Return whether a statement assigns a plain value, or is one of the branches that do so."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            return _is_plain(value) and all(map(_is_plain, targets))
        case ast.AugAssign(target=target, value=value):
            return _is_plain(value) and _is_plain(target)
        case ast.If(test=test, body=body, orelse=orelse):
            return _is_plain(test) and all(map(_assigns_plainly, [*body, *orelse]))
    return isinstance(statement, ast.Pass)


def _is_plain(value: ast.expr) -> bool:
    """Return whether an expression is made of names, constants and arithmetic."""
    for one in ast.walk(value):
        if isinstance(one, ast.Call):
            if not (isinstance(one.func, ast.Name) and one.func.id in _QUIET):
                return False
        elif isinstance(one, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr | ast.Lambda | ast.comprehension):
            return False
    return True

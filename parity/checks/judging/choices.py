"""Choices: expressions whose value a comparison picks, branches of plain values, conditions that nothing measures.

`x if c < N else y`, `min(f(c), N)`, `rate * (c > 5)`, `if c > 5: rate = 0.1`: no statement is guarded that would show
what the value is for, so it is measured in a run in which they are turned (`parity.checks.running.turned`).

Of a condition that guards calls of which nothing is known, nothing measures what it decides. A number that is listed
and that such a condition takes may decide beyond the run that is checked. It is said where, by its name: that decides
nothing, and tells the reader where to look.
"""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from parity.capture import Leaf
from parity.checks.judging.deciding import decided_by, flags_behind, flags_of
from parity.checks.judging.for_people import is_for_people
from parity.checks.judging.ordering import identifiers
from parity.checks.judging.syntax import (
    by_function,
    guarded,
    is_plain,
    is_plain_statement,
    is_written_out,
    names_in,
    source_tree,
)
from parity.checks.judging.tables import is_table
from parity.checks.judging.usage import Use
from parity.checks.running import INVERSE, Turn, place_of

__all__ = ["ValueChoice", "choices_of", "say_unmeasured"]


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
            parts += flags_behind(file, node)  # `stop = wait >= 3` before `if stop: rate *= 0.5`
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
    """Yield what a choice is made by; nothing where a node is not one, or where turning it would call something."""
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
            if quiet and not is_table(node, tree) and not is_for_people(node, tree):
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


UNMEASURED = (
    "listed and, by its name, read by a condition: {found}; what that decides beyond this run is not measured: give "
    "more steps, restore it, or say that it is meant (ignore=)"
)

MOST = 4
"""Most values that are said."""


def say_unmeasured(use: Use, listed: Iterable[str], leaves: Mapping[str, Leaf]) -> list[str]:
    """Return what is to be said of numbers that are listed and that a condition takes, by their names.

    Args:
        use: What of the trainer's source ran.
        listed: Paths of what is listed, numbers and others.
        leaves: What the last mark shows.
    """
    numbers = [path for path in dict.fromkeys(listed) if path not in leaves or leaves[path].role == "scalar"]
    names = {path: (identifiers(path) or [path])[-1] for path in numbers}
    places = _unmeasured(use, set(names.values()))
    found = [f"{path} ({places[name]})" for path, name in names.items() if name in places]
    return [UNMEASURED.format(found=", ".join(found[:MOST]))] if found else []


def _unmeasured(use: Use, names: Collection[str]) -> dict[str, str]:
    """Return the names that conditions take which neither guard anything known nor can be turned, with their places.

    Args:
        use: What of the trainer's source ran.
        names: Last identifiers of paths.
    """
    wanted, found = set(names), dict[str, str]()
    turned = {(one.turn.file, one.turn.begin) for one in choices_of(use, wanted)}
    for file in use.files:
        tree = source_tree(file)
        writes = frozenset(at for of, at in use.writes if of == file)
        for node, line in by_function(tree):
            test = _guard(node)
            here = names_in(test) & wanted if test is not None else set()
            if not here or not use.ran(file, line) or is_for_people(node, tree):
                continue
            if isinstance(node, ast.If) and (is_table(node, tree) or id(node) in guarded(tree)):
                continue
            measured = decided_by(node, writes, tree, there=True, flags=flags_behind(file, node))
            begin = (node.lineno, node.col_offset) if isinstance(node, ast.stmt) else (0, 0)
            if (file, begin) not in turned:
                for name in here - measured:
                    found.setdefault(name, f"{os.path.basename(file)}:{begin[0]}")
    return found


def _guard(node: ast.AST) -> ast.expr | None:
    """Return what a statement is done by, if it is one that a condition guards."""
    match node:
        case ast.If(test=test, body=body, orelse=orelse):
            calls = any(isinstance(one, ast.Call) for part in [*body, *orelse] for one in ast.walk(part))
            return test if calls else None
        case ast.While(test=test) | ast.Match(subject=test):
            return test
        case ast.Expr(value=ast.BoolOp(values=[*tests, ast.Call()])) if tests:
            return ast.BoolOp(ast.And(), tests)
    return None

"""Conditions of which nothing measures what they decide: they guard calls of which nothing is known.

A number that is listed, and that such a condition takes, may decide beyond the run that is checked. It is said where,
by its name: that decides nothing, and tells the reader where to look.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterable, Mapping

from parity.capture import Leaf
from parity.checks.judging.choices import choices_of
from parity.checks.judging.deciding import decided_by, flags_behind
from parity.checks.judging.for_people import is_for_people
from parity.checks.judging.guards import guarded
from parity.checks.judging.ordering import identifiers
from parity.checks.judging.syntax import by_function, names_in, source_tree
from parity.checks.judging.tables import is_table
from parity.checks.judging.usage import Use

__all__ = ["say_unmeasured"]

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
            test = _test(node)
            here = names_in(test) & wanted if test is not None else set()
            if not here or not use.ran(file, line) or is_for_people(node, tree):
                continue
            if isinstance(node, ast.If) and (is_table(node) or id(node) in guarded(tree)):
                continue
            measured = decided_by(node, writes, tree, there=True, flags=flags_behind(file, node))
            begin = (node.lineno, node.col_offset) if isinstance(node, ast.stmt) else (0, 0)
            if (file, begin) not in turned:
                for name in here - measured:
                    found.setdefault(name, f"{os.path.basename(file)}:{begin[0]}")
    return found


def _test(node: ast.AST) -> ast.expr | None:
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

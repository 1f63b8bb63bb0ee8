"""Names that code takes with something else where they are not there: `getattr(cell, "gain", 1.0)`.

Most of what a step makes for itself is absent at a resume and is no loss: nobody can take it before it is made. What
is asked for with a default is taken all the same, and the default is another value.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from parity.checks.judging.syntax import by_function, last_name, source_tree

__all__ = ["taken_with_defaults"]

_ABSENCES = {"AttributeError", "KeyError", "LookupError", "NameError", "UnboundLocalError"}


@functools.lru_cache(maxsize=64)
def taken_with_defaults(file: str) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return for each function, by its first line, what it asks for with a default; 0 for the module itself.

    Args:
        file: A source file of the trainer.
    """
    found: dict[int, set[str]] = {}
    for node, line in by_function(source_tree(file)):
        if names := set(_asked_for(node)):
            found.setdefault(line, set()).update(names)
    return tuple((line, frozenset(names)) for line, names in found.items())


def _asked_for(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
            yield name
        case ast.Call(
            func=ast.Attribute(attr="get" | "setdefault" | "pop"), args=[ast.Constant(value=str(name)), *_]
        ):
            yield name
        case ast.Call(func=ast.Attribute(value=owner, attr="get")):  # a context variable has one value
            yield from filter(None, [last_name(owner)])
        case ast.Compare(left=ast.Constant(value=str(name)), ops=[ast.In() | ast.NotIn()]):
            yield name
        case ast.Try() if any(_is_of_absence(one.type) for one in node.handlers):
            for part in (inner for one in node.body for inner in ast.walk(one)):
                match part:
                    case ast.Attribute(attr=name, ctx=ast.Load()) | ast.AugAssign(target=ast.Attribute(attr=name)):
                        yield name
                    case ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Load()):
                        yield name


def _is_of_absence(caught: ast.expr | None) -> bool:
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(isinstance(kind, ast.Name) and kind.id in _ABSENCES for kind in kinds)

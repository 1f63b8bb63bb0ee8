"""Syntax of the trainer's files: their trees, the function that each node is in, and the names written there."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

__all__ = ["by_function", "first_line", "is_written_out", "names_in", "source_tree"]


@functools.lru_cache(maxsize=64)
def source_tree(file: str) -> ast.Module:
    """Return the tree of a file; an empty one where it cannot be read."""
    try:
        with open(file, encoding="utf-8") as source:
            return ast.parse(source.read())
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return ast.Module([], [])


def by_function(tree: ast.AST) -> Iterator[tuple[ast.AST, int]]:
    """Yield every node with the first line of the function that it is in; 0 stands for the module."""
    waiting: list[tuple[ast.AST, int]] = [(tree, 0)]
    while waiting:
        node, line = waiting.pop()
        yield node, line
        for child in ast.iter_child_nodes(node):
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            waiting.append((child, first_line(child) if inner else line))


def first_line(node: ast.AST) -> int:
    """Return the line that a function's code calls its first: that of its first decorator."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])  # type: ignore[attr-defined]


def is_written_out(value: ast.expr) -> bool:
    """Return whether a value is written out: what is set to it is reset."""
    if isinstance(value, ast.Tuple):
        return all(is_written_out(item) for item in value.elts)
    return isinstance(value, ast.Constant)


def names_in(node: ast.AST) -> set[str]:
    """Return the variables, attributes and keys that are written in a piece of source."""
    found = set()
    for one in ast.walk(node):
        match one:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
                found.add(name)
    return found

"""Tables that code takes by their keys alone: what it took of one, it had put there before, or would have failed.

`w[i] = value(i)` and then `w[i]`, in each step anew: after a resume that left the table empty each key that is read
was put there by the same process. So nothing was needed of what the table held before.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator

from parity.checks.judging.syntax import in_one_way, last_name, source_tree

__all__ = ["is_taken_by_key_alone"]


def is_taken_by_key_alone(name: str, files: Iterable[str]) -> bool:
    """Return whether a name is that of a plain dict which is made empty, filled and read by subscripts alone.

    Args:
        name: The last name of a path.
        files: Source files of the trainer.
    """
    return in_one_way(name, files, _tables)


@functools.lru_cache(maxsize=64)
def _tables(file: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that are made an empty dict and subscripted, and those that are taken in any other way."""
    tree = source_tree(file)
    nodes = list(ast.walk(tree))
    keyed = {id(node.value) for node in nodes if isinstance(node, ast.Subscript)}
    made = {id(target) for node in nodes for target, value in _pairs(node) if _is_empty(value)}
    alone = {last_name(node) for node in nodes if id(node) in made}
    otherwise = {last_name(node) for node in nodes if id(node) not in keyed and id(node) not in made}
    otherwise |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    if any(isinstance(node, ast.ExceptHandler) or last_name(node) == "suppress" for node in nodes):
        alone = set()  # a key that is not there need not have failed
    return frozenset(alone - {""}), frozenset(otherwise)


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what one statement assigns to what."""
    match node:
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            yield from zip(targets, values, strict=False)
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)


def _is_empty(value: ast.expr) -> bool:
    match value:
        case ast.Dict(keys=[]) | ast.Call(func=ast.Name(id="dict"), args=[], keywords=[]):
            return True
    return False

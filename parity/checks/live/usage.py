"""Use of a value: whether the trainer's source ever decides by it, or saves it, or only shows it to people."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable

from parity.checks.live.effects import SAVES, called_name

__all__ = ["decides", "is_saved"]

_SHOWS = re.compile(
    r"^(print|log\w*|info|debug|warn\w*|write|add_scalar\w*|set_\w*|update|flush|append|format|report\w*)$"
)


def decides(name: str, files: Iterable[str]) -> bool:
    """Return whether a comparison with a variable or attribute of this name guards more than a message.

    Args:
        name: Last identifier of the path.
        files: Source files of the trainer.
    """
    return any(name in _deciding(file) for file in files)


def is_saved(name: str, files: Iterable[str]) -> bool:
    """Return whether a call that saves takes a variable or attribute of this name.

    Args:
        name: An identifier of the path.
        files: Source files of the trainer.
    """
    return any(name in _saved(file) for file in files)


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module:
    try:
        with open(file, encoding="utf-8") as source:
            return ast.parse(source.read())
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return ast.Module([], [])


@functools.lru_cache(maxsize=64)
def _deciding(file: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.If | ast.While):
            names = _identifiers(node.test)
            if any(_matters(child, names) for child in [*node.body, *node.orelse]):
                found |= names
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for compared in ast.walk(node.value):
                if isinstance(compared, ast.Compare):  # is_best = value < best
                    found |= set() if _with_constant(compared) else _identifiers(compared)
                elif isinstance(compared, ast.Call) and called_name(compared) in ("min", "max", "minimum", "maximum"):
                    found.update(*map(_identifiers, compared.args))
    return frozenset(found)


@functools.lru_cache(maxsize=64)
def _saved(file: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Call) and SAVES.search(called_name(node)):
            found.update(*map(_identifiers, [*node.args, *(k.value for k in node.keywords)]))
    return frozenset(found)


def _matters(statement: ast.stmt, names: set[str]) -> bool:
    """Return whether a statement under a condition does more than show or reset something."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Break | ast.Continue | ast.Return | ast.Raise):
            return True
        if isinstance(node, ast.Call) and not _SHOWS.match(called_name(node)):
            called = called_name(node)
            if SAVES.search(called) or called in ("step", "load_state_dict", "copy_", "deepcopy", "clone"):
                return True
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            assigned = {name for target in targets for name in _identifiers(target)}
            if assigned & names and not _is_constant(node.value):
                return True
    return False


def _with_constant(compared: ast.Compare) -> bool:
    """Return whether something is compared with a number that is written out: a first time, not a record."""
    return any(_is_constant(side) or isinstance(side, ast.UnaryOp) for side in (compared.left, *compared.comparators))


def _is_constant(value: ast.expr) -> bool:
    """Return whether a value is written out: what is set to it is reset."""
    if isinstance(value, ast.Tuple):
        return all(_is_constant(item) for item in value.elts)
    return isinstance(value, ast.Constant)


def _identifiers(node: ast.AST) -> set[str]:
    """Return the variables, attributes and keys that are written in a piece of source."""
    found = set()
    for one in ast.walk(node):
        match one:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
                found.add(name)
    return found

"""Conditions for people alone: what they guard is printed, or kept for the next time that it is printed.

As a progress bar that prints every so many steps: `if self.step - self.last >= 5: self.last = self.step; print(...)`.
"""

from __future__ import annotations

import ast
import functools

from parity.checks.judging.messages import QUIET, is_message, showing_nodes

__all__ = ["is_for_people", "is_only_shown"]

NameUse = tuple[type[ast.AST], str]
"""Whether it is a variable or an attribute, and its name."""


def is_for_people(node: ast.AST, tree: ast.Module) -> bool:
    """Return whether a condition guards nothing but prints and values that nothing else takes, or all around it does.

    Args:
        node: A statement.
        tree: The module that it is in.
    """
    if id(node) in showing_nodes(tree):
        return True
    if not isinstance(node, ast.If):
        return False
    places: set[NameUse] = set()
    for statement in [*node.body, *node.orelse]:
        match statement:
            case ast.Assign(targets=[ast.Name() | ast.Attribute() as target]):
                places.add(_place(target))
            case ast.AugAssign(target=ast.Name() | ast.Attribute() as target):
                places.add(_place(target))
            case ast.Expr(value=ast.Call() as call) if is_message(call, tree):
                continue
            case _:
                return False
        calls = [one.func for one in ast.walk(statement) if isinstance(one, ast.Call)]
        if any(_name(call) not in QUIET for call in calls):
            return False
    inside = {id(one) for one in ast.walk(node)}
    return not any(place in places and id(one) not in inside for one, place in _taken(tree))


def is_only_shown(target: ast.expr, tree: ast.Module) -> bool:
    """Return whether a variable or an attribute is taken for nothing but messages and a new value of itself.

    As the highest loss of a process: `peak = max(peak, loss)`.

    Args:
        target: What is assigned.
        tree: The module that it is in.
    """
    if isinstance(target, ast.Subscript):
        return (key := _key(target)) is not None and key in _keys_only_shown(tree)
    return isinstance(target, ast.Name | ast.Attribute) and _place(target) in _only_shown(tree)


def _key(node: ast.AST) -> tuple[str, str] | None:
    """Return the variable and the key of an element that is written out: `stats["worst"]`."""
    match node:
        case ast.Subscript(value=ast.Name(id=base), slice=ast.Constant(value=str(key))):
            return base, key
    return None


@functools.lru_cache(maxsize=64)
def _keys_only_shown(tree: ast.Module) -> frozenset[tuple[str, str]]:
    """Return the keys of tables that are taken in messages and in their own assignments alone.

    A table that is taken as a whole is taken with all its keys: it may be saved, or handed to anybody.
    """
    own: dict[tuple[str, str], set[int]] = {}
    elements: dict[int, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and (key := _key(node)) is not None:
            elements[id(node.value)] = key
        targets = node.targets if isinstance(node, ast.Assign) else []
        for key in filter(None, map(_key, [*targets, node.target] if isinstance(node, ast.AugAssign) else targets)):
            own.setdefault(key, set()).update(map(id, ast.walk(node)))
    taken: set[tuple[str, str]] = set()
    whole: set[str] = set()
    for one, (kind, name) in _taken(tree):
        key = elements.get(id(one))
        if kind is ast.Name and key is None:
            whole.add(name)
        elif key is not None and id(one) not in own.get(key, ()):
            taken.add(key)
    return frozenset(key for key in own if key not in taken and key[0] not in whole)


@functools.lru_cache(maxsize=64)
def _only_shown(tree: ast.Module) -> frozenset[NameUse]:
    """Return the variables and attributes that are taken in messages and in their own assignments alone."""
    own: dict[NameUse, set[int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name | ast.Attribute):
                    own.setdefault(_place(target), set()).update(map(id, ast.walk(node)))
    taken = {place for one, place in _taken(tree) if id(one) not in own.get(place, ())}
    return frozenset(own.keys() - taken)


def _name(call: ast.expr) -> str:
    return call.id if isinstance(call, ast.Name) else call.attr if isinstance(call, ast.Attribute) else ""


def _place(target: ast.Name | ast.Attribute) -> NameUse:
    return type(target), target.id if isinstance(target, ast.Name) else target.attr


@functools.lru_cache(maxsize=64)
def _taken(tree: ast.Module) -> tuple[tuple[ast.AST, NameUse], ...]:
    """Return the variables and attributes that a module takes for anything but a message."""
    found: list[tuple[ast.AST, NameUse]] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if id(node) in showing_nodes(tree) or (isinstance(node, ast.Call) and is_message(node, tree)):
            continue
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.append((node, _place(node)))
        waiting.extend(ast.iter_child_nodes(node))
    return tuple(found)

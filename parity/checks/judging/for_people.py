"""Conditions for people alone: what they guard is printed, or kept for the next time that it is printed.

As a progress bar that prints every so many steps: `if self.step - self.last >= 5: self.last = self.step; print(...)`.
"""

from __future__ import annotations

import ast
import functools

__all__ = ["is_for_people", "is_message", "is_only_shown"]

_QUIET = frozenset(
    ("print", "float", "int", "len", "max", "min", "round", "str", "sum", "time", "perf_counter", "monotonic")
)
"""Calls that change nothing: of Python itself, and of its clocks."""

NameUse = tuple[type[ast.AST], str]
"""Whether it is a variable or an attribute, and its name."""


def is_for_people(node: ast.AST, tree: ast.Module) -> bool:
    """Return whether a condition guards nothing but prints and values that nothing else takes.

    Args:
        node: A statement.
        tree: The module that it is in.
    """
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
        if any(_name(call) not in _QUIET for call in calls):
            return False
    inside = {id(one) for one in ast.walk(node)}
    return not any(place in places and id(one) not in inside for one, place in _taken(tree))


def is_message(call: ast.Call, tree: ast.Module) -> bool:
    """Return whether a call shows something to people: print, warning, Python's own logger, a bar of tqdm.

    Args:
        call: The call.
        tree: The module that it is in.
    """
    match call.func:
        case ast.Name(id="print"):
            return True
        case ast.Attribute(value=ast.Name(id="warnings"), attr="warn"):
            return True
        case ast.Attribute(value=ast.Name(id=name), attr=level) if level in _LEVELS:
            return name == "logging" or name in _set_by(tree, ("logging.getLogger", "getLogger"))
        case ast.Attribute(value=ast.Name(id=name), attr=method) if method in _BAR:
            return name in _set_by(tree, _bars(tree))
    return False


_LEVELS = ("debug", "info", "warning", "error", "critical", "exception")
_BAR = ("set_postfix", "set_postfix_str", "set_description", "set_description_str", "write")
"""Methods of a progress bar of tqdm that show what they are given."""


@functools.lru_cache(maxsize=64)
def _bars(tree: ast.Module) -> tuple[str, ...]:
    """Return how a module calls what makes a progress bar of tqdm, as it imports it."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tqdm" and not node.level:
            found += [one.asname or one.name for one in node.names if one.name in ("tqdm", "trange")]
        elif isinstance(node, ast.Import):
            modules = [one.asname or one.name for one in node.names if one.name.partition(".")[0] == "tqdm"]
            found += [f"{module}.{name}" for module in modules for name in ("tqdm", "trange")]
    return tuple(found)


@functools.lru_cache(maxsize=64)
def _set_by(tree: ast.Module, makers: tuple[str, ...]) -> frozenset[str]:
    """Return the variables that are set to what a call of one of these gives, and to nothing else."""
    found: dict[str, set[bool]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.NamedExpr):
            called = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, set()).add(called in makers)
    return frozenset(name for name, made in found.items() if made == {True})


def is_only_shown(target: ast.expr, tree: ast.Module) -> bool:
    """Return whether a variable or an attribute is taken for nothing but messages and a new value of itself.

    As the highest loss of a process: `peak = max(peak, loss)`.

    Args:
        target: What is assigned.
        tree: The module that it is in.
    """
    return isinstance(target, ast.Name | ast.Attribute) and _place(target) in _only_shown(tree)


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
        if isinstance(node, ast.Call) and is_message(node, tree):
            continue
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.append((node, _place(node)))
        waiting.extend(ast.iter_child_nodes(node))
    return tuple(found)

"""Conditions: by which names a statement decides, and what it has to guard for that."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence

from parity.checks.judging.bounds import bound_of
from parity.checks.judging.for_people import is_only_shown
from parity.checks.judging.messages import is_message
from parity.checks.judging.syntax import (
    by_function,
    guarded,
    is_plain_statement,
    is_written_out,
    names_in,
    source_tree,
)
from parity.checks.judging.tables import is_table
from parity.checks.running import called_name

__all__ = ["decided_by", "flags_behind", "flags_of", "taken_for"]

_ACTS = frozenset(("step", "backward", "load_state_dict", "copy_", "deepcopy", "clone", "replace", "rename"))
"""Calls of PyTorch and of the standard library that change what is trained or saved."""

_EXTREMES = ("min", "max", "minimum", "maximum")


def decided_by(
    node: ast.AST,
    writes: frozenset[int],
    tree: ast.Module,
    *,
    there: bool,
    flags: Sequence[ast.expr] = (),
    errors: bool = True,
) -> set[str]:
    """Return the names by which one statement decides.

    Args:
        node: The statement.
        writes: Lines of its file during which files were written.
        tree: The module that it is in.
        there: Whether it counts that something is there at all, which `is None` asks.
        flags: What flags in its condition were set to: `done = c >= N` before `if done:`.
        errors: Whether statements count that raise at a bound, and do nothing else.
    """
    bound = bound_of(node)
    if isinstance(node, ast.Assert) or (bound is not None and not errors):
        return {bound.name} if bound is not None and errors else set()
    if isinstance(node, ast.If) and (is_table(node, tree) or id(node) in guarded(tree)):
        return set()  # what a guard of plain statements is for is measured (`choices`)
    if isinstance(node, ast.If | ast.While):
        names, body = names_in(node.test).union(*map(names_in, flags)), [*node.body, *node.orelse]
        # What is made anew where it is too short, or is not there, decides nothing by what is in it: rotary
        # embeddings, masks, a first batch. If anything else happens then, it does.
        anew = taken_for(node.test, sizes=True, presence=not there)
        if anew and _assigned(body) <= anew and not _acts(body, writes if there else frozenset()):
            names -= anew
        # what it would do beyond the run where it moves plain values alone is measured (`choices`)
        turned = isinstance(node, ast.If) and all(is_plain_statement(one, tree) for one in body)
        return names if any(_matters(child, names, writes, tree, moves=not turned) for child in body) else set()
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.BoolOp):  # c > N and f()
        *tests, last = node.value.values
        names = {name for test in tests for name in names_in(test)}
        return names if _matters(ast.copy_location(ast.Expr(last), node), names, writes, tree) else set()
    found: set[str] = set()
    if isinstance(node, ast.Return) and node.value is not None and id(node) not in _shown_returns(tree):
        # a mean that is guarded against nothing to divide by; what it is for is measured (`choices`)
        picks = {id(one.test) for one in ast.walk(node.value) if isinstance(one, ast.IfExp)}
        compared = [one for one in ast.walk(node.value) if isinstance(one, ast.Compare)]
        kept = [one for one in compared if not (id(one) in picks and _with_constant(one))]
        found = {name for one in kept for name in names_in(one)}
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if all(is_only_shown(target, tree) for target in targets):
            return set()  # the highest loss so far, for people
        kept_in = set(map(ast.unparse, targets))
        for one in ast.walk(node.value):
            if isinstance(one, ast.Compare):  # is_best = value < best
                found |= set() if _with_constant(one) else names_in(one)
            elif isinstance(one, ast.Call) and called_name(one) in _EXTREMES:  # best = min(best, value)
                found.update(*map(names_in, one.args if kept_in & set(map(ast.unparse, one.args)) else ()))
    return found


def flags_behind(file: str, node: ast.AST) -> tuple[ast.expr, ...]:
    """Return what the flags in a condition were set to: comparisons.

    Args:
        file: The file.
        node: A statement in it.
    """
    at = (node.lineno, node.col_offset) if isinstance(node, ast.If | ast.While) else (0, 0)
    return flags_of(file).get(at, ())


@functools.lru_cache(maxsize=64)
def flags_of(file: str) -> Mapping[tuple[int, int], tuple[ast.expr, ...]]:
    """Return for each condition, by its line and column, what the flags in it were set to.

    A variable is known in the function that sets it; an attribute or a key only where one place of the file sets it.

    Args:
        file: The file.
    """
    nodes = list(by_function(source_tree(file)))
    variables: dict[tuple[int, str], list[ast.expr]] = {}
    inside: dict[str, list[ast.expr]] = {}
    for node, line in nodes:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None or is_written_out(node.value):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            match target:
                case ast.Name(id=name):
                    variables.setdefault((line, name), []).append(node.value)
                case ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
                    inside.setdefault(name, []).append(node.value)
    found = {}
    for node, line in nodes:
        if isinstance(node, ast.If | ast.While):
            values: list[ast.expr] = []
            for one in ast.walk(node.test):
                match one:
                    case ast.Name(id=name):
                        values += variables.get((line, name), [])
                    case ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
                        values += inside[name] if len(inside.get(name, ())) == 1 else []
            if flags := tuple(value for value in values if _is_flag(value)):
                found[node.lineno, node.col_offset] = flags
    return found


def _is_flag(value: ast.expr) -> bool:
    """Return whether a value is that of a comparison, or of several."""
    match value:
        case ast.Compare():
            return True
        case ast.BoolOp(values=values):
            return any(map(_is_flag, values))
        case ast.UnaryOp(op=ast.Not(), operand=inner) | ast.Call(func=ast.Name(id="bool"), args=[inner]):
            return _is_flag(inner)
    return False


def taken_for(test: ast.expr, *, sizes: bool, presence: bool) -> set[str]:
    """Return the names of which a condition takes nothing but their number of elements, or whether they are None."""
    parts: list[ast.expr] = []
    for one in ast.walk(test):
        match one:
            case ast.Attribute(value=value, attr="shape" | "size" | "numel" | "ndim") if sizes:
                parts.append(value)
            case ast.Call(func=ast.Name(id="len"), args=[value]) if sizes:
                parts.append(value)
            case ast.Compare(left=value, ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]) if (
                presence
            ):
                parts.append(value)
    inside = {id(part) for one in parts for part in ast.walk(one)}
    elsewhere = [one for one in ast.walk(test) if id(one) not in inside and isinstance(one, ast.Name | ast.Attribute)]
    others = {one.id if isinstance(one, ast.Name) else one.attr for one in elsewhere}
    return {name for one in parts for name in names_in(one)} - others


def _assigned(body: list[ast.stmt]) -> set[str]:
    """Return the names that statements assign to; of an element those of its container."""
    targets = [
        target
        for statement in body
        for one in ast.walk(statement)
        if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (one.targets if isinstance(one, ast.Assign) else [one.target])
    ]
    return {name for target in targets for name in names_in(_container(target))}


def _kept_names(target: ast.expr) -> set[str]:
    """Return the names of what an assignment sets, without those of the objects that these are in."""
    match _container(target):
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return {name}
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return set().union(*map(_kept_names, parts))
    return names_in(target)


def _container(target: ast.expr) -> ast.expr:
    """Return what an assignment to an element changes; a key that is written out is a name of its own."""
    while isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
        target = target.value
    return target


def _acts(body: list[ast.stmt], writes: frozenset[int]) -> bool:
    """Return whether statements leave the loop or the function, or write files."""
    if any(statement.lineno <= line <= (statement.end_lineno or 0) for statement in body for line in writes):
        return True
    leaving = ast.Break | ast.Continue | ast.Return | ast.Raise
    return any(isinstance(one, leaving) for statement in body for one in ast.walk(statement))


def _matters(
    statement: ast.stmt, names: set[str], writes: frozenset[int], tree: ast.Module, *, moves: bool = True
) -> bool:
    """Return whether a statement under a condition does more than show or reset something."""
    if any(statement.lineno <= line <= (statement.end_lineno or statement.lineno) for line in writes):
        return True
    for node in ast.walk(statement):
        if isinstance(node, ast.Break | ast.Continue | ast.Return | ast.Raise):
            return True
        if isinstance(node, ast.Call) and called_name(node) in _ACTS | _movers(tree):
            return True
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            # `self` in both is no value that both have
            assigned = {name for target in targets for name in (names_in(target) if moves else _kept_names(target))}
            if assigned & names and not is_written_out(node.value):
                return True
            if moves and _moves(node):
                return True
    return False


@functools.lru_cache(maxsize=64)
def _shown_returns(tree: ast.Module) -> frozenset[int]:
    """Return the returns, by their identity, of functions that are called for messages alone: a report of health."""
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    names = [one.name for one in functions]
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    shown = {id(part) for one in calls if is_message(one, tree) for part in ast.walk(one)}
    others = {called_name(one) for one in calls if id(one) not in shown}
    called = {called_name(one) for one in calls} - others
    return frozenset(
        id(part)
        for one in functions
        if one.name in called and names.count(one.name) == 1 and not one.decorator_list
        for part in ast.walk(one)
        if isinstance(part, ast.Return)
    )


def _moves(node: ast.Assign | ast.AugAssign) -> bool:
    """Return whether a statement makes a new value of an old one: `lr *= 0.1`, `lr = max(lr * 0.1, least)`."""
    if isinstance(node, ast.AugAssign):
        return not isinstance(node.op, ast.Add)
    assigned = {name for target in node.targets for name in names_in(target)}
    match node.value:
        case ast.BinOp():
            return bool(assigned & names_in(node.value))
        case ast.Call(args=args) if called_name(node.value) in _EXTREMES:
            return any(isinstance(one, ast.BinOp) and assigned & names_in(one) for one in args)
    return False


@functools.lru_cache(maxsize=64)
def _movers(tree: ast.Module) -> frozenset[str]:
    """Return the names of the functions of a module that move a value, or end by an error.

    As `reduce()`, which lowers a rate, and `stop()`, which raises whenever it is called.
    """
    found: set[str] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        parts = [one for statement in function.body for one in ast.walk(statement)]
        raises = any(isinstance(statement, ast.Raise) for statement in function.body)
        if raises or any(isinstance(one, ast.Assign | ast.AugAssign) and _moves(one) for one in parts):
            found.add(function.name)
    names = [one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    return frozenset(name for name in found if names.count(name) == 1)


def _with_constant(compared: ast.Compare) -> bool:
    """Return whether something is compared with a number that is written out: a first time, not a record."""
    return any(
        is_written_out(side) or isinstance(side, ast.UnaryOp) for side in (compared.left, *compared.comparators)
    )

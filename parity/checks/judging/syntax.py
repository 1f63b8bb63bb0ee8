"""Syntax of the trainer's files: their trees, functions and names, and which statements are plain.

Plain are assignments of names, constants and arithmetic, and elements put into containers or taken out: a branch of
nothing else can be run where it would not have been, as it waits for nothing and calls none of the trainer's code.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = [
    "bound_names",
    "by_function",
    "first_line",
    "guarded",
    "in_loops",
    "in_one_way",
    "is_plain",
    "is_plain_statement",
    "is_written_out",
    "last_name",
    "names_in",
    "source_tree",
]

_QUIET = frozenset(("min", "max", "abs", "float", "int", "len", "round", "sum", "bool", "str"))
"""Calls of Python itself that change nothing and wait for nothing."""

_OF_CONTAINERS = frozenset(
    ("add", "append", "appendleft", "clear", "discard", "extend", "fill", "insert", "pop", "popleft", "remove")
)
"""Methods of Python's containers and of arrays that change what is in them."""


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


def last_name(node: ast.AST) -> str:
    """Return the variable, attribute or key that an expression is, as the last name of a path; "" of any other."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return ""


def names_in(node: ast.AST) -> set[str]:
    """Return the variables, attributes and keys that are written in a piece of source."""
    return {name for one in ast.walk(node) if (name := last_name(one))}


def in_one_way(
    name: str, files: Iterable[str], names_of: Callable[[str], tuple[frozenset[str], frozenset[str]]]
) -> bool:
    """Return whether code takes a name in one way, and nowhere in another.

    Args:
        name: The last name of a path.
        files: Source files of the trainer.
        names_of: Returns the names that a file takes in that way, and those that it takes otherwise.
    """
    found = [names_of(file) for file in files]
    return any(name in so for so, _ in found) and not any(name in otherwise for _, otherwise in found)


@functools.lru_cache(maxsize=64)
def in_loops(tree: ast.Module) -> frozenset[ast.AST]:
    """Return what lies in the loops of a module, these among it.

    Args:
        tree: A module.
    """
    loops = (one for one in ast.walk(tree) if isinstance(one, _LOOPS))
    return frozenset(part for loop in loops for part in ast.walk(loop))


_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@functools.lru_cache(maxsize=64)
def bound_names(tree: ast.Module) -> Mapping[int, frozenset[str]]:
    """Return, by its first line, the parameters and variables of its own of each function.

    Args:
        tree: A module.
    """
    found: dict[int, set[str]] = {}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        inside = list(ast.walk(function))
        shared = {name for one in inside if isinstance(one, ast.Nonlocal | ast.Global) for name in one.names}
        own = {one.arg for one in inside if isinstance(one, ast.arg)}
        own |= {one.id for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        found.setdefault(first_line(function), set()).update(own - shared)
    return {line: frozenset(names) for line, names in found.items()}


def is_plain(value: ast.expr) -> bool:
    """Return whether an expression is made of names, constants and arithmetic."""
    for one in ast.walk(value):
        if isinstance(one, ast.Call):
            if not (isinstance(one.func, ast.Name) and one.func.id in _QUIET):
                return False
        elif isinstance(one, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr | ast.Lambda | ast.comprehension):
            return False
    return True


def is_plain_statement(statement: ast.stmt, tree: ast.Module) -> bool:
    """Return whether a statement assigns a plain value or changes a container by one, or is of branches that do so.

    Args:
        statement: The statement.
        tree: The module that it is in: a method that is defined there may be any code.
    """
    match statement:
        case ast.Assign(targets=targets, value=value):
            return is_plain(value) and all(map(is_plain, targets))
        case ast.AugAssign(target=target, value=value):
            return is_plain(value) and is_plain(target)
        case ast.If(test=test, body=body, orelse=orelse):
            return is_plain(test) and all(is_plain_statement(one, tree) for one in [*body, *orelse])
        case ast.For(
            target=ast.Name(), iter=ast.Name() | ast.Attribute() | ast.Subscript() as of, body=body, orelse=[]
        ):
            return is_plain(of) and all(is_plain_statement(one, tree) for one in body)  # as over groups of parameters
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=of, attr=method), args=args, keywords=[])):
            known = method in _OF_CONTAINERS and method not in _defined(tree)
            return known and is_plain(of) and all(map(is_plain, args))
        case ast.Expr(value=ast.Call(func=ast.Name() | ast.Attribute() as func, args=args, keywords=keywords)):
            name = func.id if isinstance(func, ast.Name) else func.attr
            given = [*args, *(one.value for one in keywords)]
            return name in _plain_functions(tree) and is_plain(func) and all(map(is_plain, given))
    return isinstance(statement, ast.Pass)


@functools.lru_cache(maxsize=64)
def _plain_functions(tree: ast.Module) -> frozenset[str]:
    """Return the functions and methods of a module, of names of their own, that are made of plain assignments."""
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    names = [one.name for one in functions]
    return frozenset(
        one.name
        for one in functions
        if names.count(one.name) == 1 and not one.decorator_list and all(map(_is_assignment, one.body))
    )


def _is_assignment(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=targets, value=value):
            return is_plain(value) and all(map(is_plain, targets))
        case ast.AugAssign(target=target, value=value):
            return is_plain(value) and is_plain(target)
        case ast.For(target=ast.Name(), iter=ast.Name() | ast.Attribute() as of, body=body, orelse=[]):
            return is_plain(of) and all(map(_is_assignment, body))
        case ast.Expr(value=ast.Constant()):  # what it says of itself
            return True
    return isinstance(statement, ast.Pass)


@functools.lru_cache(maxsize=64)
def _defined(tree: ast.Module) -> frozenset[str]:
    return frozenset(one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


@functools.lru_cache(maxsize=64)
def guarded(tree: ast.Module) -> Mapping[int, tuple[ast.stmt, ...]]:
    """Return what conditions guard that leave early, by their identity: the rest of the function or of the loop.

    As `if len(self.free) >= 32: return` before `self.free.append(buffer)`. Only those whose rest is plain.

    Args:
        tree: A module.
    """
    found: dict[int, tuple[ast.stmt, ...]] = {}
    for body, leaves in _bodies(tree):
        for at, statement in enumerate(body):
            if isinstance(statement, ast.If) and not statement.orelse and len(statement.body) == 1:
                rest = body[at + 1 :]
                last = rest[-1:]
                rest = rest[:-1] if last and _is_end(last[0], leaves) else rest
                if _is_end(statement.body[0], leaves) and all(is_plain_statement(one, tree) for one in rest):
                    found[id(statement)] = tuple(rest)
    return found


def _bodies(tree: ast.Module) -> Iterator[tuple[list[ast.stmt], type[ast.stmt]]]:
    """Yield the bodies of functions and loops, with the statement that leaves each of them early."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.body, ast.Return
        elif isinstance(node, _LOOPS):
            yield node.body, ast.Continue


def _is_end(statement: ast.stmt, kind: type[ast.stmt]) -> bool:
    if isinstance(statement, ast.Return):
        return kind is ast.Return and (statement.value is None or ast.unparse(statement.value) == "None")
    return isinstance(statement, kind)

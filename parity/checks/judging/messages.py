"""Messages: calls that show something to people and do nothing else, by what is called.

Those of Python itself and of tqdm are known by their names, which are theirs. What the trainer's own file defines is
known by what it does: a function, or a method of an object that the file makes, counts if it prints, writes to the
standard streams, and keeps nothing that anything but its own class takes.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

__all__ = ["QUIET", "is_message", "showing_nodes"]

QUIET = frozenset(
    ("print", "float", "int", "len", "max", "min", "round", "str", "sum", "time", "perf_counter", "monotonic")
)
"""Calls that change nothing: of Python itself, and of its clocks."""

_WORDING = QUIET | frozenset(
    ("abs", "bool", "dict", "divmod", "enumerate", "format", "get", "getattr", "isatty", "items", "join", "keys",
     "list", "ljust", "range", "repr", "rjust", "sorted", "strftime", "tuple", "values", "zip")
)  # fmt: skip
"""The same with what words a text."""

_STREAMS = ("sys.stderr", "sys.stdout")
_LEVELS = ("debug", "info", "warning", "error", "critical", "exception")
_BAR = ("set_postfix", "set_postfix_str", "set_description", "set_description_str", "write")
"""Methods of a progress bar of tqdm that show what they are given."""


def is_message(call: ast.Call, tree: ast.Module) -> bool:
    """Return whether a call shows something to people: print, a warning, Python's logger, a bar of tqdm or one's own.

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
            if name == "logging" or name in _set_by(tree, ("logging.getLogger", "getLogger")):
                return True
        case ast.Attribute(value=ast.Name(id=name), attr=method) if method in _BAR:
            if name in _set_by(tree, _bars(tree)):
                return True
    if _writes_to_a_stream(call):
        return True
    given = [*call.args, *(one.value for one in call.keywords)]
    return _place(call, tree) in {key for key, _ in _showing(tree)} and all(map(_is_quiet, given))


@functools.lru_cache(maxsize=64)
def showing_nodes(tree: ast.Module) -> frozenset[int]:
    """Return the identities of all nodes inside of functions of a module that show something and do nothing else."""
    return frozenset(id(one) for _, function in _showing(tree) for one in ast.walk(function))


def _writes_to_a_stream(call: ast.Call) -> bool:
    """Return whether a call writes to the standard output or to that of errors."""
    match call.func:
        case ast.Attribute(value=stream, attr="write" | "flush" | "writelines"):
            return ast.unparse(stream) in _STREAMS
    return False


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
    for target, value in _assignments(tree):
        if isinstance(target, ast.Name):
            found.setdefault(target.id, set()).add(_maker(value) in makers)
    return frozenset(name for name, made in found.items() if made == {True})


def _assignments(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield what a module sets, with the value; None where that is no value of its own."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Tuple | ast.List):
                        same = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
                        values = value.elts if same and isinstance(value, ast.Tuple) else [None] * len(target.elts)
                        yield from zip(target.elts, values, strict=True)
                    else:
                        yield target, value
            case ast.AnnAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
                yield target, value
            case ast.For(target=target) | ast.AugAssign(target=target) | ast.comprehension(target=target):
                yield target, None
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
                yield target, value
            case ast.arg(arg=name):
                yield ast.Name(name, ast.Store()), None


def _maker(value: ast.expr | None) -> str:
    return ast.unparse(value.func) if isinstance(value, ast.Call) else ""


Shown = tuple[str, str]
"""Class, or an empty text, and the function in it."""


def _place(call: ast.Call, tree: ast.Module) -> Shown:
    """Return which function of its own module a call is of; empty where that is not known."""
    match call.func:
        case ast.Name(id=name):
            return "", name
        case ast.Attribute(value=ast.Name(id=owner), attr=method):
            return _classes(tree).get((False, owner), ""), method
        case ast.Attribute(value=ast.Attribute(attr=owner), attr=method):
            return _classes(tree).get((True, owner), ""), method
        case ast.Attribute(value=ast.Call(func=ast.Name(id=owner)), attr=method):
            return owner, method
    return "", ""


@functools.lru_cache(maxsize=64)
def _classes(tree: ast.Module) -> dict[tuple[bool, str], str]:
    """Return of which class of the module each variable and attribute is, where all that is set there is of one."""
    own = {one.name for one in ast.walk(tree) if isinstance(one, ast.ClassDef)}
    found: dict[tuple[bool, str], set[str]] = {}
    for target, value in _assignments(tree):
        if isinstance(target, ast.Name | ast.Attribute):
            name = target.id if isinstance(target, ast.Name) else target.attr
            found.setdefault((isinstance(target, ast.Attribute), name), set()).add(_maker(value))
    return {key: next(iter(of)) for key, of in found.items() if len(of) == 1 and of <= own}


@functools.lru_cache(maxsize=64)
def _showing(tree: ast.Module) -> frozenset[tuple[Shown, ast.FunctionDef]]:
    """Return the functions of a module, and the methods of its classes, that show something and do nothing else.

    A class may have no base but `object`: a method of another one may be called in the place of its own.
    """
    kinds = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    inside = {id(one) for kind in kinds for one in kind.body}
    times = Counter([one.name for one in kinds] + [one.name for one in functions if id(one) not in inside])
    parts: list[tuple[Shown, ast.FunctionDef, ast.ClassDef | None]] = [
        (("", one.name), one, None) for one in functions if id(one) not in inside and times[one.name] == 1
    ]
    for kind in kinds:
        if times[kind.name] == 1 and all(ast.unparse(base) == "object" for base in kind.bases):
            parts += [((kind.name, one.name), one, kind) for one in kind.body if isinstance(one, ast.FunctionDef)]
    while True:  # what one keeps may be taken by another that turns out to do more
        found = {key for key, _, _ in parts}
        kept = [part for part in parts if _only_shows(part[1], part[2], tree, found)]
        if len(kept) == len(parts):
            return frozenset((key, one) for key, one, _ in parts)
        parts = kept


def _only_shows(
    function: ast.FunctionDef, kind: ast.ClassDef | None, tree: ast.Module, known: Collection[Shown]
) -> bool:
    """Return whether a function shows something, and keeps nothing that is taken outside of its class."""
    shown = False
    waiting: list[ast.stmt] = list(function.body)
    me = function.args.args[0].arg if kind is not None and function.args.args else ""
    if function.decorator_list:
        return False
    while waiting:
        statement = waiting.pop()
        match statement:
            case ast.Expr(value=ast.Call() as call):
                own = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == me
                place = (kind.name, call.func.attr) if own and kind and isinstance(call.func, ast.Attribute) else None
                if not (place in known or _is_plain_message(call, tree) or _place(call, tree) in known):
                    return False
                shown = True
                expressions: Sequence[ast.expr] = [*call.args, *(one.value for one in call.keywords)]
            case ast.Assign(value=value, targets=targets):
                if not all(_is_kept(one, me, kind, tree, known) for one in targets):
                    return False
                shown = shown or any(isinstance(one, ast.Attribute) for one in targets)
                expressions = [value]
            case ast.AugAssign(value=value, target=target) | ast.AnnAssign(value=ast.expr() as value, target=target):
                if not _is_kept(target, me, kind, tree, known):
                    return False
                expressions = [value]
            case ast.If(test=test, body=body, orelse=orelse):
                waiting += [*body, *orelse]
                expressions = [test]
            case ast.For(iter=of, body=body, orelse=orelse, target=ast.Name()):
                waiting += [*body, *orelse]
                expressions = [of]
            case ast.Pass() | ast.Return(value=None) | ast.Expr(value=ast.Constant()):
                continue
            case _:
                return False
        if not all(map(_is_quiet, expressions)):
            return False
    return shown


def _is_plain_message(call: ast.Call, tree: ast.Module) -> bool:
    """Return whether a call is a message by what is called, without a look into functions of the module."""
    match call.func:
        case ast.Name(id="print") | ast.Attribute(value=ast.Name(id="warnings"), attr="warn"):
            return True
        case ast.Attribute(value=ast.Name(id=name), attr=level) if level in _LEVELS:
            return name == "logging" or name in _set_by(tree, ("logging.getLogger", "getLogger"))
    return _writes_to_a_stream(call)


def _is_kept(
    target: ast.expr, me: str, kind: ast.ClassDef | None, tree: ast.Module, known: Collection[Shown]
) -> bool:
    """Return whether an assignment keeps a variable, or an attribute that only what shows something takes."""
    match target:
        case ast.Name():
            return True
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == me and kind is not None:
            methods = [one for one in kind.body if isinstance(one, ast.FunctionDef)]
            showing = [one for one in methods if one.name == "__init__" or (kind.name, one.name) in known]
            inside = {id(part) for one in showing for part in ast.walk(one)} | _of_others(tree, kind.name)
            return not any(
                isinstance(one, ast.Attribute) and one.attr == name and isinstance(one.ctx, ast.Load)
                for one in ast.walk(tree)
                if id(one) not in inside
            )
    return False


@functools.lru_cache(maxsize=256)
def _of_others(tree: ast.Module, kind: str) -> set[int]:
    """Return the attributes that methods of other classes, with no base of the module, take of their own object."""
    own = {one.name for one in ast.walk(tree) if isinstance(one, ast.ClassDef)}
    found: set[int] = set()
    for other in ast.walk(tree):
        if not isinstance(other, ast.ClassDef) or other.name == kind or own & set(map(ast.unparse, other.bases)):
            continue
        for method in other.body:
            if isinstance(method, ast.FunctionDef) and method.args.args and not method.decorator_list:
                me = method.args.args[0].arg
                parts = [one for one in ast.walk(method) if isinstance(one, ast.Attribute)]
                found |= {id(one) for one in parts if isinstance(one.value, ast.Name) and one.value.id == me}
    return found


def _is_quiet(value: ast.expr) -> bool:
    """Return whether an expression calls nothing but what words a text."""
    for one in ast.walk(value):
        if isinstance(one, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr):
            return False
        if isinstance(one, ast.Call):
            name = getattr(one.func, "attr", getattr(one.func, "id", ""))
            if name not in _WORDING:
                return False
    return True

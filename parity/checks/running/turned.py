"""Turned choices: one more run in which some expressions of the trainer give their other value.

`lr = a if bad > 5 else b` decides by a count that may pass its limit only beyond the run that is checked. Whether
that would change what is trained is measured: the run is made with the two values exchanged, or with the comparison
the other way round. Only the functions' code is exchanged, for that one run, and nothing that calls anything is
turned: no branch of the trainer runs that would not have run, but for assignments of plain values.
"""

from __future__ import annotations

import ast
import gc
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from types import CellType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

__all__ = ["INVERSE", "TooLong", "Turn", "TurnDeadline", "place_of", "turned"]

INVERSE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
"""Comparisons and what they are when they are turned."""


class Turn(NamedTuple):
    """An expression or a statement that is turned, by its place in a file."""

    file: str
    begin: tuple[int, int]
    """Line and column, as `ast` counts them."""
    end: tuple[int, int]
    never: bool = False
    """Whether its branch is not taken at all, in place of the other one."""


class _Turner(ast.NodeTransformer):
    """Exchanges the values of conditional expressions, branches, cases, comparisons, and `min` with `max`."""

    def __init__(self, turns: Collection[Turn]) -> None:
        self._never = {(turn.begin, turn.end): turn.never for turn in turns}

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        if not isinstance(node, ast.expr | ast.If | ast.Match) or place_of(node) not in self._never:
            return node
        if self._never[place_of(node)]:
            return _not_taken(node)
        match node:
            case ast.IfExp():
                node.body, node.orelse = node.orelse, node.body
            case ast.Compare(ops=[op]) if type(op) in INVERSE:
                node.ops = [INVERSE[type(op)]()]
            case ast.Call(func=ast.Name(id=("min" | "max") as name)):
                node.func = ast.copy_location(ast.Name("max" if name == "min" else "min", ast.Load()), node.func)
            case ast.Subscript(slice=index):
                # the element as far from the other end: a valid index stays one
                node.slice = _copied(node, f"~({ast.unparse(index)})")
            case ast.Call(func=ast.Attribute(value=of), args=[_, default]):
                first = f"next(iter(({ast.unparse(of)}).values()), {ast.unparse(default)})"
                return _copied(node, first)
            case ast.BinOp(op=ast.FloorDiv()) | ast.Call(func=ast.Name(id="int")):
                return _copied(node, f"({ast.unparse(node)}) + 1")
            case ast.Match(cases=cases):
                bodies = [case.body for case in cases]
                for case, body in zip(cases, [*bodies[1:], bodies[0]], strict=True):
                    case.body = body
            case ast.If(test=test):
                node.test = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
        return node


def _copied(place: ast.expr, source: str) -> ast.expr:
    """Return an expression of its source, at the place of another one."""
    made = ast.parse(source, mode="eval").body
    for one in ast.walk(made):
        ast.copy_location(one, place)
    return made


def _not_taken(node: ast.expr | ast.stmt) -> ast.AST:
    """Return a condition or a branch as if its comparison were never true; what else a node is stays as it is."""
    part = node.test if isinstance(node, ast.If | ast.IfExp) else node
    if not isinstance(part, ast.expr) or not isinstance(node, ast.If | ast.IfExp | ast.Compare):
        return node
    never = ast.copy_location(ast.BoolOp(ast.And(), [ast.copy_location(ast.Constant(False), part), part]), part)
    if isinstance(node, ast.If | ast.IfExp):
        node.test = never
        return node
    return never


def place_of(node: ast.expr | ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return where a node begins and ends: line and column each."""
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)


@contextmanager
def turned(turns: Collection[Turn], *others: Any) -> Iterator[None]:
    """Give the functions of some files the code in which choices are turned, and their own when the context ends.

    A function whose code was made otherwise, as by a compiler, keeps it.

    Args:
        turns: What is turned.
        others: Functions that may be in none of the modules that are imported.
    """
    exchanged: list[tuple[FunctionType, CodeType]] = []
    try:
        for file in {turn.file for turn in turns}:
            codes = _turned_codes(file, [turn for turn in turns if turn.file == file])
            for function in _functions(file, others):
                code = function.__code__
                new = codes.get((code.co_qualname, code.co_firstlineno))
                if new is not None and new.co_freevars == code.co_freevars:
                    exchanged.append((function, code))
                    function.__code__ = new
        yield
    finally:
        for function, code in exchanged:
            function.__code__ = code


def _functions(file: str, others: Collection[Any]) -> list[FunctionType]:
    """Return the functions that were made of a file's code: those that the collector knows, or modules lead to.

    The collector does not say what it was told to leave alone (`gc.freeze`).
    """
    modules = [one for one in list(sys.modules.values()) if getattr(one, "__file__", None) == file]
    waiting: list[Any] = [one for one in gc.get_objects() if type(one) is FunctionType]
    waiting += _leading([*others, *(value for module in modules for value in vars(module).values())])
    known: set[FunctionType] = set()  # a hundred thousand beside two frameworks, and `id` raises an audit event
    seen: set[int] = set()  # of what may say of itself how it is compared
    found: list[FunctionType] = []
    while waiting:
        one = waiting.pop()
        if type(one) is FunctionType:
            if one not in known:
                known.add(one)
                if one.__code__.co_filename == file:
                    found.append(one)
                if one.__closure__:
                    waiting += _leading(cell.cell_contents for cell in one.__closure__ if _is_filled(cell))
                if attributes := one.__dict__:
                    waiting += _leading(attributes.values())
        elif (identity := id(one)) not in seen:
            seen.add(identity)
            if isinstance(one, type):
                waiting += _leading(vars(one).values())
            elif isinstance(one, staticmethod | classmethod | MethodType):
                waiting += _leading([one.__func__])
            elif isinstance(one, property):
                waiting += _leading([one.fget, one.fset])
    return found


_LEADING = (FunctionType, MethodType, type, staticmethod, classmethod, property)


def _leading(values: Iterable[Any]) -> list[Any]:
    """Return the functions among some values, and what leads to functions."""
    return [one for one in values if issubclass(type(one), _LEADING)]


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _turned_codes(file: str, turns: Collection[Turn]) -> dict[tuple[str, int], CodeType]:
    """Return the turned code of each function of a file, by its name and first line, where these tell it."""
    try:
        with open(file, encoding="utf-8") as source:
            tree = _Turner(turns).visit(ast.parse(source.read()))
        waiting = [compile(tree, file, "exec", dont_inherit=True)]
    except (OSError, SyntaxError, ValueError):
        return {}
    found: dict[tuple[str, int], CodeType] = {}
    twice: set[tuple[str, int]] = set()
    while waiting:
        code = waiting.pop()
        key = (code.co_qualname, code.co_firstlineno)
        twice |= {key} & found.keys()
        found[key] = code
        waiting.extend(one for one in code.co_consts if isinstance(one, CodeType))
    return {key: code for key, code in found.items() if key not in twice}


class TooLong(BaseException):
    """A turned run that does not come to its end: what it would show is not known."""


class TurnDeadline:
    """Ends a turned run that waits for what does not come any more.

    Args:
        turns: What is turned.
        seconds: Longest time between two marks.
    """

    def __init__(self, turns: Collection[Turn], seconds: float = 30.0) -> None:
        self._files, self._seconds = {turn.file for turn in turns}, seconds
        self.renew()

    def renew(self) -> None:
        """Count from now on."""
        self._end = time.monotonic() + self._seconds

    def enter(self, frame: FrameType) -> Any:
        """Watch a frame from now on, if its file is turned."""
        return self.trace if frame.f_code.co_filename in self._files else None

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace function of a frame: raises `TooLong`."""
        if event == "line" and time.monotonic() > self._end:
            raise TooLong
        return self.trace

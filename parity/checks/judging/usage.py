"""Use of a value: whether code that really ran decides by it, or only shows it to people.

A number that was lost and has no effect in this run may have one in another: a count of evaluations that would have
stopped it, a best value. Whether it is such a one is read from the source of the functions that were executed while
the run went, by what a comparison with the value guards; what a function is called says nothing.

Tables that are filled on demand are told apart: a dict of masks by their length, of rotary embeddings, of compiled
functions. A condition on one decides when an element is made, not what is trained: a resumed run makes again what it
needs. That it makes the same is measured: another value would make something differ.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from parity.checks.judging.for_people import is_for_people
from parity.checks.running import SAVES, called_name, nested_locals

__all__ = ["INSIDE", "VARIABLE", "Use", "by_function", "decided_by", "is_saved", "is_table", "source_tree"]


def is_table(node: ast.If) -> bool:
    """Return whether a condition asks for a key of a dict, and guards nothing but making or taking that element.

    As `if n not in tables: tables[n] = make(n)` and `if n in tables: return tables[n]`. What else is assigned there
    has to be that element, or to be put there; or it counts how often that was.

    Args:
        node: The condition with its branches.
    """
    match node.test:
        case ast.Compare(left=key, ops=[ast.NotIn() | ast.In()], comparators=[table]):
            element = ast.unparse(ast.Subscript(table, key, ast.Load()))
        case _:
            return _is_masked(node)
    found = False
    kept: set[str] = set()
    assigned: set[str] = set()
    for statement in [*node.body, *node.orelse]:
        match statement:
            case ast.Assign(targets=targets, value=value):
                names = {ast.unparse(target) for target in targets}
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                names = {ast.unparse(target)}
            case ast.Return(value=ast.expr() as value) if ast.unparse(value) == element:
                found = True
                continue
            case ast.AugAssign(target=ast.Name() | ast.Attribute(), op=ast.Add(), value=ast.Constant()):
                continue  # how often an element was there, or was made: a condition on that decides by itself
            case _:
                return False
        if element in names | {ast.unparse(value)}:
            found = True
            kept |= names | {ast.unparse(value)}
        assigned |= names
    return found and assigned <= kept


def _is_masked(node: ast.If) -> bool:
    """Return whether a condition asks for an element of an array, and guards nothing but making the elements there.

    As `if not known[i]: table[i] = make(i); known[i] = True`, a table of distances with its mask.

    Args:
        node: The condition with its branches.
    """
    match node.test:
        case (
            ast.UnaryOp(op=ast.Not(), operand=ast.Subscript() as asked)
            | ast.Compare(left=ast.Subscript() as asked, ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant()])
            | ast.Call(args=[ast.Subscript() as asked], keywords=[])
            | (ast.Subscript() as asked)
        ):
            place = ast.unparse(asked.slice)
        case _:
            return False
    made: set[str] = set()
    names: set[str] = set()
    values: set[str] = set()
    for statement in [*node.body, *node.orelse]:
        match statement:
            case ast.Assign(targets=[ast.Subscript() as element], value=value) if ast.unparse(element.slice) == place:
                made.add(ast.unparse(element))
                values.add(ast.unparse(value))
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
            case ast.Return(value=ast.Subscript(slice=of)) if ast.unparse(of) == place:
                continue
            case ast.AugAssign(target=ast.Name() | ast.Attribute(), op=ast.Add(), value=ast.Constant()):
                continue
            case _:
                return False
    return ast.unparse(asked) in made and names <= values


VARIABLE = "$"
"""Before a name: it is that of a variable alone."""
INSIDE = "."
"""Before a name: it is that of an attribute or a key."""

_ACTS = frozenset(("step", "backward", "load_state_dict", "copy_", "deepcopy", "clone", "replace", "rename"))
"""Calls of PyTorch and of the standard library that change what is trained or saved."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """What of a trainer's source ran in an uninterrupted run."""

    files: tuple[str, ...] = ()
    """Source files of the trainer."""
    executed: frozenset[tuple[str, int]] = frozenset()
    """File and first line of each function that was called; empty where that was not seen, and all count."""
    writes: frozenset[tuple[str, int]] = frozenset()
    """File and line of code during which files were written."""

    def decides(self, name: str, *, there: bool = True) -> bool:
        """Return whether a comparison with a variable, attribute or key of this name guards more than a message.

        Args:
            name: The last name of a path.
            there: Whether it counts that something is there at all, which `is None` asks, and not its value. It
                counts in any case where the name is taken for anything else.
        """
        there = there or self._takes_otherwise(name)
        return any(
            name in names and self.ran(file, line)
            for file in self.files
            for line, names in _deciding(file, frozenset(at for of, at in self.writes if of == file), there)
        )

    def _takes_otherwise(self, name: str) -> bool:
        """Return whether code takes a name beside conditions that ask whether it is there, and their bodies."""
        return any(
            name in names and self.ran(file, line)
            for file in self.files
            for line, names in _reading(file, beside_presence=True)
        )

    def reads(self, name: str) -> bool:
        """Return whether a variable, attribute or key of this name is taken for more than a message.

        Args:
            name: The name; after `VARIABLE` or `INSIDE` it is one of a variable alone, or of an attribute or a key.
        """
        return any(name in names and self.ran(file, line) for file in self.files for line, names in _reading(file))

    def fills(self, name: str) -> bool:
        """Return whether a table or a mask of this name is filled on demand: orders suspects."""
        return any(name in names and self.ran(file, line) for file in self.files for line, names in _filling(file))

    def indexes(self, name: str) -> bool:
        """Return whether a name tells which part of something is taken, in a function that ran: orders suspects."""
        return any(name in names and self.ran(file, line) for file in self.files for line, names in _indexing(file))

    def ran(self, file: str, line: int) -> bool:
        """Return whether a function was called, by its file and first line; 0 is the module itself."""
        return not self.executed or line == 0 or (file, line) in self.executed


def is_saved(name: str, files: Iterable[str]) -> bool:
    """Return whether a call that seems to save takes a variable or attribute of this name: orders suspects.

    Args:
        name: An identifier of the path.
        files: Source files of the trainer.
    """
    return any(name in _saved(file) for file in files)


@functools.lru_cache(maxsize=64)
def source_tree(file: str) -> ast.Module:
    try:
        with open(file, encoding="utf-8") as source:
            return ast.parse(source.read())
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return ast.Module([], [])


@functools.lru_cache(maxsize=64)
def _deciding(file: str, writes: frozenset[int], there: bool) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return for each function, by its first line, the names by which it decides; 0 for the module itself."""
    found: dict[int, set[str]] = {}
    for node, line in by_function(source_tree(file)):
        if not is_for_people(node, source_tree(file)):
            found.setdefault(line, set()).update(decided_by(node, writes, there=there))
    return tuple((line, frozenset(names)) for line, names in found.items() if names)


@functools.lru_cache(maxsize=64)
def _reading(file: str, *, beside_presence: bool = False) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return for each function, by its first line, the names that it reads outside of `print`; 0 for the module.

    With `beside_presence`, conditions that ask whether a name is there say nothing of it, nor do their bodies.
    """
    found: dict[int, set[str]] = {}
    waiting: list[tuple[ast.AST, int]] = [(source_tree(file), 0)]
    nested = nested_locals(source_tree(file))
    while waiting:
        node, line = waiting.pop()
        if isinstance(node, ast.Call) and called_name(node) == "print":
            continue
        if is_for_people(node, source_tree(file)):
            continue
        if beside_presence and isinstance(node, ast.If):
            asked = _taken_for(node.test, sizes=False, presence=True)
            if asked:
                inside = {name for part in [node.test, *node.body] for name in _identifiers(part)}
                found.setdefault(line, set()).update(inside - asked)
                waiting.extend((child, line) for child in node.orelse)
                continue
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                # a variable of a closure, such as `write.packed`, has its path inside of the function
                closed = (INSIDE + name,) if name not in nested.get(line, (name,)) else ()
                found.setdefault(line, set()).update((name, VARIABLE + name, *closed))
            case (
                ast.Attribute(attr=name, ctx=ast.Load())
                | ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Load())
            ):
                found.setdefault(line, set()).update((name, INSIDE + name))
        for child in ast.iter_child_nodes(node):
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            waiting.append((child, _first_line(child) if inner else line))
    return tuple((line, frozenset(names)) for line, names in found.items())


def _first_line(node: ast.AST) -> int:
    """Return the line that a function's code calls its first: that of its first decorator."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])  # type: ignore[attr-defined]


def decided_by(node: ast.AST, writes: frozenset[int], *, there: bool) -> set[str]:
    """Return the names by which one statement decides."""
    if isinstance(node, ast.If) and is_table(node):
        return set()
    if isinstance(node, ast.If | ast.While):
        names, body = _identifiers(node.test), [*node.body, *node.orelse]
        # What is made anew where it is too short, or is not there, decides nothing by what is in it: rotary
        # embeddings, masks, a first batch. If anything else happens then, it does.
        anew = _taken_for(node.test, sizes=True, presence=not there)
        if anew and _assigned(body) <= anew and not _acts(body, writes if there else frozenset()):
            names -= anew
        return names if any(_matters(child, names, writes) for child in body) else set()
    found: set[str] = set()
    if isinstance(node, ast.Return) and node.value is not None:
        found = {name for one in ast.walk(node.value) if isinstance(one, ast.Compare) for name in _identifiers(one)}
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        for compared in ast.walk(node.value):
            if isinstance(compared, ast.Compare):  # is_best = value < best
                found |= set() if _with_constant(compared) else _identifiers(compared)
            elif isinstance(compared, ast.Call) and called_name(compared) in ("min", "max", "minimum", "maximum"):
                found.update(*map(_identifiers, compared.args))
    return found


@functools.lru_cache(maxsize=64)
def _saved(file: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(source_tree(file)):
        if isinstance(node, ast.Call) and SAVES.search(called_name(node)):
            found.update(*map(_identifiers, [*node.args, *(k.value for k in node.keywords)]))
    return frozenset(found)


@functools.lru_cache(maxsize=64)
def _filling(file: str) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return for each function, by its first line, the names of tables that it fills; 0 for the module."""
    found: dict[int, set[str]] = {}
    for node, line in by_function(source_tree(file)):
        if isinstance(node, ast.If) and is_table(node):
            elements = [one.value for one in ast.walk(node) if isinstance(one, ast.Subscript)]
            found.setdefault(line, set()).update(
                one.attr if isinstance(one, ast.Attribute) else one.id
                for one in elements
                if isinstance(one, ast.Attribute | ast.Name)
            )
    return tuple((line, frozenset(names)) for line, names in found.items())


@functools.lru_cache(maxsize=64)
def _indexing(file: str) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return for each function, by its first line, the names in subscripts that it takes; 0 for the module."""
    found: dict[int, set[str]] = {}
    for node, line in by_function(source_tree(file)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            found.setdefault(line, set()).update(_identifiers(node.slice))
    return tuple((line, frozenset(names)) for line, names in found.items())


def by_function(tree: ast.AST) -> Iterator[tuple[ast.AST, int]]:
    """Yield every node with the first line of the function that it is in; 0 stands for the module."""
    waiting: list[tuple[ast.AST, int]] = [(tree, 0)]
    while waiting:
        node, line = waiting.pop()
        yield node, line
        for child in ast.iter_child_nodes(node):
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            waiting.append((child, _first_line(child) if inner else line))


def _taken_for(test: ast.expr, *, sizes: bool, presence: bool) -> set[str]:
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
    return {name for one in parts for name in _identifiers(one)} - others


def _assigned(body: list[ast.stmt]) -> set[str]:
    """Return the names that statements assign to; of an element those of its container."""
    targets = [
        target
        for statement in body
        for one in ast.walk(statement)
        if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (one.targets if isinstance(one, ast.Assign) else [one.target])
    ]
    return {name for target in targets for name in _identifiers(_container(target))}


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


def _matters(statement: ast.stmt, names: set[str], writes: frozenset[int]) -> bool:
    """Return whether a statement under a condition does more than show or reset something."""
    if any(statement.lineno <= line <= (statement.end_lineno or statement.lineno) for line in writes):
        return True
    for node in ast.walk(statement):
        if isinstance(node, ast.Break | ast.Continue | ast.Return | ast.Raise):
            return True
        if isinstance(node, ast.Call) and called_name(node) in _ACTS:
            return True
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            assigned = {name for target in targets for name in _identifiers(target)}
            if assigned & names and not _is_constant(node.value):
                return True
            if isinstance(node, ast.AugAssign) and not isinstance(node.op, ast.Add):  # lr *= 0.1
                return True
            if isinstance(node.value, ast.BinOp) and assigned & _identifiers(node.value):  # lr = lr * 0.1
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

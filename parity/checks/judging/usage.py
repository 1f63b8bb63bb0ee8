"""Use of a value: whether code that really ran decides by it, or only shows it to people.

A number that was lost and has no effect in this run may have one in another: a count of evaluations that would have
stopped it, a best value. Whether it is such a one is read from the source of the functions that were executed while
the run went, by what a comparison with the value guards; what a function is called says nothing.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from parity.checks.judging.bounds import ErrorBound, bounds_in
from parity.checks.judging.closed import is_closed
from parity.checks.judging.deciding import decided_by, flags_behind, taken_for
from parity.checks.judging.defaults import taken_with_defaults
from parity.checks.judging.for_people import is_for_people
from parity.checks.judging.messages import is_message
from parity.checks.judging.syntax import (
    bound_names,
    by_function,
    first_line,
    in_loops,
    last_name,
    names_in,
    source_tree,
)
from parity.checks.judging.tables import is_table
from parity.checks.running import INSIDE, SAVES, called_name, nested_locals

__all__ = ["INSIDE", "VARIABLE", "Use", "is_saved"]


VARIABLE = "$"
"""Before a name: it is that of a variable alone."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """What of a trainer's source ran in an uninterrupted run."""

    files: tuple[str, ...] = ()
    """Source files of the trainer."""
    executed: frozenset[tuple[str, int]] = frozenset()
    """File and first line of each function that was called; empty where that was not seen, and all count."""
    writes: frozenset[tuple[str, int]] = frozenset()
    """File and line of code during which files were written."""
    marking: tuple[str, int] = ("", 0)
    """File and first line of the function that makes the marks."""

    def decides(self, name: str, *, there: bool = True, errors: bool = True) -> bool:
        """Return whether a comparison with a variable, attribute or key of this name guards more than a message.

        Args:
            name: The last name of a path.
            there: Whether it counts that something is there at all, which `is None` asks, and not its value. It
                counts in any case where the name is taken for anything else.
            errors: Whether statements count that raise at a bound, and do nothing else.
        """
        there = there or self._takes_otherwise(name)
        return any(
            name in names and self.ran(file, line)
            for file in self.files
            for line, names in _deciding(
                file, self.files, frozenset(at for of, at in self.writes if of == file), there, errors
            )
        )

    def error_bounds(self, name: str) -> list[ErrorBound]:
        """Return the bounds at which a variable, attribute or key of this name raises."""
        return [
            one for file in self.files for line, one in bounds_in(file) if one.name == name and self.ran(file, line)
        ]

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

    def hands(self, path: str) -> bool:
        """Return whether code may hand a value to a function, whose parameter has its name: it takes it otherwise.

        A variable is taken where it is one: in the function that makes the marks, or where it is no other's own.

        Args:
            path: Path of the value, without the function or module that it is in.
        """
        words = re.findall(r"\w+", path) or [path]
        if not path.isidentifier():
            name = INSIDE + words[-1]
            spread = any(not _spread(file).isdisjoint(words[:-1]) for file in self.files)
            further = any(name in more and self.ran(of, line) for of in self.files for line, _, more in _feeding(of))
            return spread or further or (self.reads(name) and not self.sets(words[-1]))
        return any(
            VARIABLE + path in others
            and self.ran(file, line)
            and ((file, line) == self.marking or path not in bound_names(source_tree(file)).get(line, ()))
            for file in self.files
            for line, _, others in _feeding(file)
        )

    def uses(self, name: str) -> bool:
        """Return whether code takes what a container of this name holds, beside changing it: orders suspects."""
        return any(name in names and self.ran(file, line) for file in self.files for line, names in _using(file))

    def feeds_itself(self, name: str) -> bool:
        """Return whether code takes a name for its own next value alone, as the last rows used.

        Args:
            name: The name; after `VARIABLE` or `INSIDE` it is one of a variable alone, or of an attribute or a key.
        """
        found = [one for file in self.files for line, *one in _feeding(file) if self.ran(file, line)]
        return any(name in own for own, _ in found) and not any(name in others for _, others in found)

    def fills(self, name: str) -> bool:
        """Return whether a table or a mask of this name is filled on demand: orders suspects."""
        return any(name in names and self.ran(file, line) for file in self.files for line, names in _filling(file))

    def asks_for(self, name: str) -> bool:
        """Return whether an attribute or key of this name is taken with a default where it is not there: orders."""
        found = (one for file in self.files for one in taken_with_defaults(file) if self.ran(file, one[0]))
        return any(name in names for _, names in found)

    def indexes(self, name: str) -> bool:
        """Return whether a name tells which part of something is taken, in a function that ran: orders suspects."""
        return any(name in names and self.ran(file, line) for file in self.files for line, names in _indexing(file))

    def resets(self, name: str, value: str) -> bool:
        """Return whether a name is set to a value that is written out, and in no loop to anything that is not.

        A count that comes to be 0 in a step was set to it, and was not found in a file that the step reads.

        Args:
            name: The last name of a path.
            value: The value as a leaf shows it.
        """
        found = [
            one for file in self.files for line, one in _assigned_in_loops(file).get(name, ()) if self.ran(file, line)
        ]
        return value in found and "" not in found

    def made_before(self, name: str, other: str) -> bool:
        """Return whether the function with the marks sets a name from another outside its loops: orders suspects.

        As `rest = set(range(60)) - set(taken)`. What a loop sets follows from steps, and either may be the cause.

        Args:
            name: The last name of a path.
            other: That of what it may have been made from.
        """
        file, line = self.marking
        return (name, other) in _made_before(file, line) if file else False

    def sets(self, name: str) -> bool:
        """Return whether a function sets an attribute or key of this name: orders suspects."""
        return any(name in names and self.ran(file, line) for file in self.files for line, names in _setting(file))

    def ran(self, file: str, line: int) -> bool:
        """Return whether a function was called, by its file and first line; 0 is the module itself."""
        return not self.executed or line == 0 or (file, line) in self.executed


@functools.lru_cache(maxsize=64)
def _assigned_in_loops(file: str) -> dict[str, list[tuple[int, str]]]:
    """Return what names are set to in loops and in methods, by function: what is written out, else an empty text."""
    found: dict[str, list[tuple[int, str]]] = {}
    tree = source_tree(file)
    methods = [one for kind in ast.walk(tree) if isinstance(kind, ast.ClassDef) for one in kind.body]
    inside = in_loops(tree).union(*map(ast.walk, methods))
    for node, line in by_function(tree):
        if not isinstance(node, ast.Assign) or node not in inside:
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for one, value in pairs:
                shown = repr(value.value) if isinstance(value, ast.Constant) else ""
                for name in names_in(one) if isinstance(one, ast.Tuple) else filter(None, [last_name(one)]):
                    found.setdefault(name, []).append((line, shown))
    return found


@functools.lru_cache(maxsize=64)
def _made_before(file: str, line: int) -> frozenset[tuple[str, str]]:
    """Return which names a function sets outside its loops, each with every other name that the value is made of."""
    found: set[tuple[str, str]] = set()
    tree = source_tree(file)
    for node, of in by_function(tree):
        if of == line and node not in in_loops(tree):
            pairs = ((last_name(target), names_in(value)) for target, value in _assignments(node))
            found.update((name, one) for name, names in pairs if name and name not in names for one in names)
    return frozenset(found)


def is_saved(name: str, files: Iterable[str]) -> bool:
    """Return whether a call that seems to save takes a variable or attribute of this name: orders suspects.

    Args:
        name: An identifier of the path.
        files: Source files of the trainer.
    """
    return any(name in _saved(file) for file in files)


@functools.lru_cache(maxsize=64)
def _deciding(
    file: str, files: tuple[str, ...], writes: frozenset[int], there: bool, errors: bool
) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return for each function, by its first line, the names by which it decides; 0 for the module itself."""
    found: dict[int, set[str]] = {}
    for node, line in by_function(source_tree(file)):
        if not is_for_people(node, source_tree(file)):
            flags = flags_behind(file, node)
            names = decided_by(node, writes, source_tree(file), there=there, flags=flags, errors=errors)
            if names and not is_closed(node, file, files):
                found.setdefault(line, set()).update(names)
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
        if isinstance(node, ast.Call) and is_message(node, source_tree(file)):
            continue
        if is_for_people(node, source_tree(file)):
            continue
        if beside_presence and isinstance(node, ast.If):
            asked = taken_for(node.test, sizes=False, presence=True)
            if asked:
                inside = {name for part in [node.test, *node.body] for name in names_in(part)}
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
            waiting.append((child, first_line(child) if inner else line))
    return tuple((line, frozenset(names)) for line, names in found.items())


@functools.lru_cache(maxsize=64)
def _saved(file: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(source_tree(file)):
        if isinstance(node, ast.Call) and SAVES.search(called_name(node)):
            found.update(*map(names_in, [*node.args, *(k.value for k in node.keywords)]))
    return frozenset(found)


@functools.lru_cache(maxsize=64)
def _filling(file: str) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return for each function, by its first line, the names of tables that it fills; 0 for the module."""
    found: dict[int, set[str]] = {}
    for node, line in by_function(source_tree(file)):
        if isinstance(node, ast.If) and is_table(node, source_tree(file)):
            elements = [one.value for one in ast.walk(node) if isinstance(one, ast.Subscript)]
            found.setdefault(line, set()).update(
                one.attr if isinstance(one, ast.Attribute) else one.id
                for one in elements
                if isinstance(one, ast.Attribute | ast.Name)
            )
    return tuple((line, frozenset(names)) for line, names in found.items())


@functools.lru_cache(maxsize=64)
def _setting(file: str) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return for each function, by its first line, the attributes and keys that it sets; 0 for the module."""
    found: dict[int, set[str]] = {}
    for node, line in by_function(source_tree(file)):
        match node:
            case (
                ast.Attribute(attr=name, ctx=ast.Store())
                | ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Store())
            ):
                found.setdefault(line, set()).add(name)
    return tuple((line, frozenset(names)) for line, names in found.items())


@functools.lru_cache(maxsize=64)
def _using(file: str) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return for each function, by its first line, the names that it takes for more than to set or add an element."""
    found: dict[int, set[str]] = {}
    changed: set[int] = set()
    for node, line in by_function(source_tree(file)):
        if isinstance(node, ast.Call) and is_message(node, source_tree(file)):
            changed.update(map(id, ast.walk(node)))
        match node:
            case (
                ast.Subscript(value=base, ctx=ast.Store()) | ast.Expr(value=ast.Call(func=ast.Attribute(value=base)))
            ):
                changed.add(id(base))
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                if id(node) not in changed:
                    found.setdefault(line, set()).add(name)
    return tuple((line, frozenset(names)) for line, names in found.items())


@functools.lru_cache(maxsize=64)
def _feeding(file: str) -> tuple[tuple[int, frozenset[str], frozenset[str]], ...]:
    """Return for each function, by its first line, the names taken for their own next value, and those for more."""
    tree = source_tree(file)
    own: dict[int, set[str]] = {}
    others: dict[int, set[str]] = {}
    inside: set[int] = set()
    for node, line in by_function(tree):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and is_message(node, tree)):
            inside.update(map(id, ast.walk(node)))  # what stands in a text is no number any more
        for target, value in _assignments(node):
            name = last_name(target)
            taken = [one for one in ast.walk(value) if name and name in _taken_name(one)]
            calls = [one for one in ast.walk(value) if isinstance(one, ast.Call) and called_name(one) not in _PLAIN]
            given = {id(part) for one in calls for part in ast.walk(one)}
            if name and not any(id(one) in given for one in taken) and (taken or isinstance(node, ast.AugAssign)):
                own.setdefault(line, set()).update((name, _prefix(target) + name))
                inside.update(map(id, taken))
    for node, line in by_function(tree):
        if id(node) not in inside:
            others.setdefault(line, set()).update(_taken_name(node))
    return tuple((at, frozenset(own.get(at, ())), frozenset(others.get(at, ()))) for at in {*own, *others})


def _assignments(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """Return what one statement assigns to what; of several values at once each pair."""
    match node:
        case ast.AugAssign(target=target, value=value):
            return [(target, value)]
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            return list(zip(targets, values, strict=False))
        case ast.Assign(targets=[target], value=value):
            return [(target, value)]
    return []


def _taken_name(node: ast.AST) -> list[str]:
    """Return the variable, attribute or key that an expression takes."""
    if not isinstance(node, ast.expr) or not isinstance(getattr(node, "ctx", None), ast.Load):
        return []
    name = last_name(node)
    return [name, _prefix(node) + name] if name else []


def _prefix(node: ast.expr) -> str:
    return VARIABLE if isinstance(node, ast.Name) else INSIDE


_PLAIN = ("min", "max", "abs", "float", "int", "round")
"""Calls that give a value of their arguments and keep nothing."""


@functools.lru_cache(maxsize=64)
def _spread(file: str) -> frozenset[str]:
    """Return the names of what calls take by its keys: `step(**settings)` names none of them."""
    calls = (one for one in ast.walk(source_tree(file)) if isinstance(one, ast.Call))
    tables = [keyword.value for call in calls for keyword in call.keywords if keyword.arg is None]
    return frozenset(name for table in tables for name in names_in(table))


@functools.lru_cache(maxsize=64)
def _indexing(file: str) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return for each function, by its first line, the names in subscripts that it takes; 0 for the module."""
    found: dict[int, set[str]] = {}
    for node, line in by_function(source_tree(file)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            found.setdefault(line, set()).update(names_in(node.slice))
    return tuple((line, frozenset(names)) for line, names in found.items())

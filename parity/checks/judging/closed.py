"""Closed state: what a condition decides reaches nothing but itself and messages.

A tail of lines for a crash report that is cut when it is long, a histogram that widens its range, a message that is
shown three times per process: each decides by numbers of its own, and what it decides is taken again by itself and by
what is shown. It is followed through assignments, containers and the results of functions, in all files of the
trainer. Whatever is not known ends it: a call of anything else, a statement that leaves a loop, a value that is
handed out.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from parity.checks.judging.for_people import is_for_people
from parity.checks.judging.messages import is_message, showing_nodes
from parity.checks.judging.syntax import bound_names, by_function, source_tree
from parity.checks.running import called_name

__all__ = ["is_closed"]


class KeptPlace(NamedTuple):
    """Where a value is kept, or the function that gives it."""

    kind: str
    """`inside` of an object by an attribute or a key, `variable`, or `call`."""
    name: str
    where: tuple[str, int] = ("", 0)
    """File and first line of the function that a variable is of."""


class Reaches(Exception):
    """What was followed comes to something that is not closed, or to what is not known."""


_PURE = frozenset(
    ("abs", "bool", "dict", "divmod", "enumerate", "float", "format", "getattr", "int", "isinstance", "len", "list",
     "max", "min", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip", "any", "all")
)  # fmt: skip
"""Functions of Python itself that give a value of their arguments and do nothing else."""

_LIBRARIES = frozenset(("math", "numpy", "statistics", "time", "datetime"))
"""Modules whose functions give values, unless they are told where to put them."""

_FILLS = frozenset(("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"))
"""Functions of NumPy that change what they are given."""

_READS = frozenset(
    ("abs", "argmax", "argmin", "clone", "copy", "count", "cpu", "detach", "endswith", "float", "format", "get",
     "getMessage", "index", "item", "items", "join", "keys", "ljust", "lower", "max", "mean", "median", "min",
     "most_common", "norm", "numel", "numpy", "rjust", "split", "sqrt", "square", "startswith", "std", "strftime",
     "strip", "sum", "tolist", "upper", "values", "var")
)  # fmt: skip
"""Methods of containers, texts and arrays that change nothing; one that the trainer defines may be any code."""

_CHANGES = frozenset(
    ("add", "append", "appendleft", "clear", "discard", "extend", "fill", "insert", "pop", "popleft", "remove",
     "setdefault", "sort", "update")
)  # fmt: skip
"""Methods of containers and arrays that change what is in them."""

_DRAWS = frozenset(
    ("choice", "choices", "gauss", "integers", "normal", "permutation", "randint", "random", "randrange", "sample",
     "shuffle", "standard_normal", "uniform")
)  # fmt: skip
"""Methods of generators: what they give and what they are afterwards follows from what they are asked for."""

_OF_LOGGING = ("logging.Handler", "logging.Filter", "logging.Formatter")
_BASES = ("object", "ABC", "abc.ABC", *_OF_LOGGING)
_ATTRIBUTES_OF_LOGGING = ("level", "filters", "formatter", "lock", "name", "nlen", "datefmt")
_TEXTS = ("__str__", "__repr__", "__format__")

_EXPRESSIONS = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr, ast.FormattedValue, ast.Tuple,
    ast.List, ast.Dict, ast.Set, ast.Starred, ast.Slice, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.comprehension, ast.keyword, ast.Attribute,
)  # fmt: skip
"""What a value stays in."""


def is_closed(node: ast.AST, file: str, files: tuple[str, ...]) -> bool:
    """Return whether all that a statement decides is closed.

    Args:
        node: A condition, a comparison that is returned, or one that is assigned.
        file: The file that it is in.
        files: All files of the trainer.
    """
    follow = _Follow(files)
    if id(node) not in _index(files).trees:  # of a tree that was read once more
        return False
    try:
        match node:
            case ast.If(body=body, orelse=orelse) | ast.While(body=body, orelse=orelse):
                waiting = follow.done([*body, *orelse])
            case ast.Return():
                waiting = {follow.given(node)}
            case ast.Assign() | ast.AnnAssign():
                waiting = follow.done([node])
            case _:
                return False
        known: set[KeptPlace] = set()
        while waiting:
            place = waiting.pop()
            known.add(place)
            waiting |= {one for load in follow.loads(place) for one in follow.taken(load)} - known
    except (Reaches, RecursionError):
        return False
    return True


class _SourceIndex(NamedTuple):
    """What the files of a trainer hold, by what is asked of it."""

    parents: Mapping[int, ast.AST]
    trees: Mapping[int, tuple[str, ast.Module, int]]
    """Identity of a node to its file, the tree, and the first line of its function."""
    loads: Mapping[tuple[str, str], Sequence[ast.expr]]
    """Kind and name to where it is taken."""
    defined: frozenset[str]
    """Functions and methods of the trainer."""
    foreign: frozenset[str]
    """Attributes of classes whose bases are in no file: code that is not seen may take them."""


@functools.lru_cache(maxsize=8)
def _index(files: tuple[str, ...]) -> _SourceIndex:
    parents: dict[int, ast.AST] = {}
    trees: dict[int, tuple[str, ast.Module, int]] = {}
    loads: dict[tuple[str, str], list[ast.expr]] = {}
    foreign: set[str] = set()
    known = {one.name for file in files for one in ast.walk(source_tree(file)) if isinstance(one, ast.ClassDef)}
    for file in files:
        tree = source_tree(file)
        for node, line in by_function(tree):
            trees[id(node)] = (file, tree, line)
            parents |= {id(child): node for child in ast.iter_child_nodes(node)}
            match node:
                case ast.Name(id=name, ctx=ast.Load()):
                    loads.setdefault(("variable", name), []).append(node)
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    loads.setdefault(("inside", name), []).append(node)
                case ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Load()):
                    loads.setdefault(("inside", name), []).append(node)
                case ast.Call():
                    loads.setdefault(("call", called_name(node)), []).append(node)
                    for one in node.args:  # `d.get("best")`, `getattr(self, "best")`
                        if isinstance(one, ast.Constant) and isinstance(one.value, str):
                            loads.setdefault(("inside", one.value), []).append(node)
                case ast.ClassDef(bases=bases):
                    if any(ast.unparse(base) not in {*known, *_BASES} for base in bases):
                        foreign |= {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
                    elif any(ast.unparse(base) in _OF_LOGGING for base in bases):
                        foreign |= {*_ATTRIBUTES_OF_LOGGING}
    defined = {one.name for file in files for one in ast.walk(source_tree(file)) if isinstance(one, ast.FunctionDef)}
    return _SourceIndex(parents, trees, loads, frozenset(defined), frozenset(foreign))


@functools.lru_cache(maxsize=64)
def _imported(tree: ast.Module) -> frozenset[str]:
    """Return the names that a file gives such modules; one that it also sets otherwise is none."""
    found = {
        one.asname or one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for one in node.names
        if one.name in _LIBRARIES
    }
    return frozenset(found.difference(*bound_names(tree).values()))


class _Follow:
    """Follows values through the source of a trainer; raises `Reaches` where they come to anything else."""

    def __init__(self, files: tuple[str, ...]) -> None:
        self._index = _index(files)
        self._whole: set[int] = set()
        """Functions and loops of which it was asked whether all that they do is closed."""

    def loads(self, place: KeptPlace) -> list[ast.expr]:
        """Return where a value is taken."""
        index = self._index
        if place.kind == "inside":
            if place.name in index.foreign:
                raise Reaches
            return [*index.loads.get(("inside", place.name), ())]
        if place.kind == "call":
            calls = [*index.loads.get(("call", place.name), ())]
            named = [*index.loads.get(("inside", place.name), ()), *index.loads.get(("variable", place.name), ())]
            if any(one is not getattr(index.parents[id(one)], "func", None) for one in named):
                raise Reaches  # a function that is handed on, or a property
            return calls
        found = []
        for load in index.loads.get(("variable", place.name), ()):
            file, tree, line = index.trees[id(load)]
            own = place.name in bound_names(tree).get(line, ())
            if (file, line) == place.where or not own:
                found.append(load)
        return found

    def taken(self, load: ast.expr) -> set[KeptPlace]:
        """Return where a value comes to that is taken somewhere."""
        index, node, found = self._index, load, set[KeptPlace]()
        _, tree, _ = index.trees[id(load)]
        while True:
            if id(node) in showing_nodes(tree):
                return found
            parent = index.parents.get(id(node))
            match parent:
                case ast.Call() if is_message(parent, tree):
                    return found
                case ast.Call(func=func) if func is node:
                    if not isinstance(func, ast.Attribute) or not self._is_known(func, _READS | _CHANGES | _DRAWS):
                        raise Reaches
                case ast.Call():
                    if isinstance(parent.func, ast.Attribute) and self._is_known(parent.func, _CHANGES | _DRAWS):
                        found.add(self.place(parent.func.value))
                    elif not self._is_pure(parent):
                        raise Reaches
                case ast.Subscript(ctx=ast.Load()):
                    pass
                case ast.Subscript(value=base):
                    return found if base is node else found | {self.place(base)}
                case ast.NamedExpr(target=target):
                    found.add(self.place(target))
                case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                    return found | self.targets(parent)
                case ast.Expr():
                    return found
                case ast.If(body=body, orelse=orelse) | ast.While(body=body, orelse=orelse):
                    return found if is_for_people(parent, tree) else found | self.done([*body, *orelse])
                case ast.For(target=target, body=body, orelse=orelse):
                    return found | {self.place(target)} | self.done([*body, *orelse])
                case ast.Return():
                    return found | {self.given(parent)}
                case _:
                    if not isinstance(parent, _EXPRESSIONS):
                        raise Reaches
            node = parent  # type: ignore[assignment]

    def done(self, statements: Iterable[ast.stmt]) -> set[KeptPlace]:
        """Return what statements set, if that is all that they do."""
        found: set[KeptPlace] = set()
        for statement in statements:
            _, tree, _ = self._index.trees[id(statement)]
            inner: list[ast.stmt] = []
            values: list[ast.expr] = []
            match statement:
                case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                    found |= self.targets(statement)
                    values = [statement.value] if statement.value is not None else []
                case ast.Expr(value=ast.Call(func=func, args=args, keywords=keywords) as call):
                    if not is_message(call, tree):
                        if not isinstance(func, ast.Attribute) or not self._is_known(func, _CHANGES):
                            raise Reaches
                        found.add(self.place(func.value))
                        values = [*args, *(one.value for one in keywords)]
                case ast.Delete(targets=targets) if all(isinstance(one, ast.Subscript) for one in targets):
                    found |= {self.place(one) for one in targets}
                case ast.If(test=test, body=body, orelse=orelse) | ast.While(test=test, body=body, orelse=orelse):
                    values, inner = [test], [*body, *orelse]
                case ast.For(iter=of, target=target, body=body, orelse=orelse):
                    found.add(self.place(target))
                    values, inner = [of], [*body, *orelse]
                case ast.Return(value=value):
                    found |= self._around(statement, (ast.FunctionDef,))
                    if value is not None:
                        found.add(self.given(statement))
                        values = [value]
                case ast.Continue() | ast.Break():
                    found |= self._around(statement, (ast.For, ast.While))
                case ast.Pass() | ast.Global() | ast.Nonlocal() | ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    raise Reaches
            for one in (part for value in values for part in ast.walk(value)):
                match one:
                    case ast.NamedExpr(target=target):
                        found.add(self.place(target))
                    case ast.Call(func=ast.Attribute(value=of) as method) if self._is_known(method, _DRAWS):
                        found.add(self.place(of))
                    case ast.Call() if not self._is_pure(one):
                        raise Reaches
            found |= self.done(inner)
        return found

    def _around(self, statement: ast.stmt, kinds: tuple[type[ast.AST], ...]) -> set[KeptPlace]:
        """Return what the function or loop sets that a statement leaves early: what is not done then."""
        node: ast.AST = statement
        while not isinstance(node, kinds):
            if id(node) not in self._index.parents:
                raise Reaches
            node = self._index.parents[id(node)]
        if id(node) in self._whole:
            return set()
        self._whole.add(id(node))
        return self.done(node.body)  # type: ignore[attr-defined]

    def given(self, statement: ast.stmt) -> KeptPlace:
        """Return the function that a statement returns from, if all calls of it are known."""
        node: ast.AST = statement
        while not isinstance(node, ast.FunctionDef):
            if isinstance(node, ast.Lambda | ast.AsyncFunctionDef) or id(node) not in self._index.parents:
                raise Reaches
            node = self._index.parents[id(node)]
        owner = self._index.parents.get(id(node))
        bases = [ast.unparse(base) for base in owner.bases] if isinstance(owner, ast.ClassDef) else []
        of_logging = any(base in _OF_LOGGING for base in bases)
        unseen = not of_logging and (
            not self._index.loads.get(("call", node.name)) or any(base not in _BASES for base in bases)
        )
        special = node.name.startswith("__") and node.name not in _TEXTS
        if node.decorator_list or special or (unseen and node.name not in _TEXTS):
            raise Reaches
        return KeptPlace("call", node.name)

    def targets(self, statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> set[KeptPlace]:
        """Return what an assignment sets."""
        waiting = [*statement.targets] if isinstance(statement, ast.Assign) else [statement.target]
        found: set[KeptPlace] = set()
        while waiting:
            target = waiting.pop()
            if isinstance(target, ast.Tuple | ast.List):
                waiting += target.elts
                continue
            found.add(self.place(target))
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                found.add(self.place(target.value))  # it may be taken with all its keys
        return found

    def place(self, target: ast.expr) -> KeptPlace:
        """Return where a value is kept that is assigned to something, or put into it."""
        match target:
            case ast.Name(id=name):
                file, tree, line = self._index.trees[id(target)]
                return KeptPlace(
                    "variable", name, (file, line) if name in bound_names(tree).get(line, ()) else ("", 0)
                )
            case ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
                return KeptPlace("inside", name)
            case ast.Subscript(value=base):
                return self.place(base)
        raise Reaches

    def _is_known(self, method: ast.Attribute, names: frozenset[str]) -> bool:
        """Return whether a method is one of some of Python's own and of arrays: none that the trainer defines."""
        return method.attr in names and method.attr not in self._index.defined

    def _is_pure(self, call: ast.Call) -> bool:
        """Return whether a call gives a value of its arguments and does nothing else, by what is called."""
        match call.func:
            case ast.Name(id=name):
                return name in _PURE and name not in self._index.defined
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in _imported(
                self._index.trees[id(call)][1]
            ):
                return name not in _FILLS and not any(one.arg in ("out", None) for one in call.keywords)
            case ast.Attribute() as method:
                return self._is_known(method, _READS)
        return False

"""Tables that steps fill on demand: a function for each shape of a batch, a mask for each length.

After a resume such a table is empty, `if key not in table: table[key] = make(key)` makes an entry again, and what it
makes is what the uninterrupted run had. Keys that no later step asks for are not made again. That an entry was asked
for is a branch, and branches decide; but here the resumed run went through the branch that the uninterrupted one
passed by, and nothing came to differ. Of what was visited, or was best so far, something does.

How many entries there are may decide too, as where a search ends after so many: so does code that takes the table
for anything but one of its entries.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

from parity.capture import Leaf
from parity.checks.judging.evidence import TwoStates
from parity.checks.judging.ordering import identifiers
from parity.checks.judging.syntax import in_one_way, last_name, source_tree

__all__ = ["is_cache", "is_unmade"]


def is_cache(path: str, states: Sequence[TwoStates], changing: Collection[str], files: Iterable[str]) -> bool:
    """Return whether a path is of a table that a resumed run found empty, and in part made again as it was.

    Args:
        path: The table's length, or a path below an element.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        changing: Paths that change in an uninterrupted run: an entry that does is no function of its key.
        files: Source files of the trainer.
    """
    table = path.removesuffix(".len") if path.endswith(".len") else path[: max(path.find("["), 0)]
    first, last = states[0], states[-1]
    begun, now = _length(table, first.right.leaves), _length(table, last.right.leaves)
    then, end = _length(table, first.left.leaves), _length(table, last.left.leaves)
    # more entries than the uninterrupted run added: some that it had already were made a second time
    if not table or begun != 0 or now is None or then is None or end is None or not 0 <= end - then < now:
        return False
    start = f"{table}["
    return in_one_way((identifiers(table) or [table])[-1], files, _by_entry) and all(
        leaf.same(both.left.leaves.get(one)) and one not in changing
        for both in states
        for one, leaf in both.right.leaves.items()
        if one.startswith(start)
    )


def is_unmade(path: str, states: Sequence[TwoStates], changing: Collection[str]) -> bool:
    """Return whether a setting or a constant is not there at the resume, with what has it, and is so when it is made.

    A transformation of Optax for each shape of a batch, or a module for each rate of sampling with its kernel as a
    buffer: what is not made again was not needed. A value that changes in a run, or is another one when it is made,
    may be lost; so may one of something of which the resumed run has the rest.

    Args:
        path: A path that differs at the resume.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        changing: Paths that change in an uninterrupted run.
    """
    leaf, right = states[0].left.leaves.get(path), [both.right.leaves.get(path) for both in states]
    if leaf is None or right[0] is not None or path in changing or any(not leaf.same(one) for one in right if one):
        return False
    if leaf.component in _SETTINGS:
        return ".update" in path
    owner = path[: max(path.rfind("."), path.rfind("["), 0)]
    begun = (f"{owner}.", f"{owner}[")
    return leaf.component in _CONSTANTS and not any(one.startswith(begun) for one in states[0].right.leaves)


_SETTINGS = ("optimizer.hyperparameters", "schedule.lr")
"""Components of the numbers in the functions of a transformation."""

_CONSTANTS = ("model.buffers", "model.hyperparameters")
"""Components of what a module is made with, apart from its parameters."""


def _length(table: str, leaves: Mapping[str, Leaf]) -> int | None:
    leaf = leaves.get(f"{table}.len")
    return int(leaf.digest) if leaf is not None and leaf.role == "structure" else None


_OF_ONE_ENTRY = ("get", "setdefault", "add")
"""Methods that take a key."""


@functools.lru_cache(maxsize=64)
def _by_entry(file: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a file takes an entry of, and those that it takes in any other way."""
    tree = source_tree(file)
    nodes = list(ast.walk(tree))
    taken = {id(node) for node in nodes for node in _by_key(node)}
    handed = {id(one) for node in nodes if isinstance(node, ast.Call) for one in _handed_on(node, tree)}
    loads = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Load)]
    by_entry = {last_name(node) for node in loads if id(node) in taken}
    return frozenset(by_entry - {""}), frozenset(last_name(node) for node in loads if id(node) not in taken | handed)


def _by_key(node: ast.AST) -> list[ast.expr]:
    """Return what a piece of source takes one entry of."""
    match node:
        case ast.Subscript(value=table) if not isinstance(node.ctx, ast.Del):
            return [table]
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[table]):
            return [table]
        case ast.Call(func=ast.Attribute(value=table, attr=name)) if name in _OF_ONE_ENTRY:
            return [table]
    return []


def _handed_on(call: ast.Call, tree: ast.Module) -> list[ast.expr]:
    """Return the arguments of a call that a function of the same file takes by the names that they have."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
        case _:
            found = []
    if len(found) != 1:
        return []
    order = [one.arg for one in found[0].args.args if one.arg != "self"]
    pairs = [*zip(call.args, order, strict=False), *((one.value, one.arg or "") for one in call.keywords)]
    return [value for value, name in pairs if last_name(value) == name]

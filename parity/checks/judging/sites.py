"""Sites of decisions: where in a trainer's source a name decides, and what stands before it there."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from parity.checks.judging.choices import ValueChoice
from parity.checks.judging.closed import is_closed
from parity.checks.judging.deciding import decided_by, flags_behind
from parity.checks.judging.for_people import is_for_people
from parity.checks.judging.ordering import OUTER, identifiers
from parity.checks.judging.syntax import by_function, source_tree
from parity.checks.judging.usage import Use
from parity.checks.running import Decision, DecisionSite, Mark

__all__ = ["is_decided", "sites_of", "sites_of_choice"]


def sites_of(use: Use, names: Collection[str]) -> frozenset[DecisionSite]:
    """Return where some names decide, in functions that ran.

    Args:
        use: What of the trainer's source ran.
        names: Last identifiers of paths.
    """
    found: set[DecisionSite] = set()
    for file in use.files:
        writes = frozenset(at for of, at in use.writes if of == file)
        for node, function in by_function(source_tree(file)):
            flags = flags_behind(file, node)
            here = decided_by(node, writes, source_tree(file), there=True, flags=flags) & set(names)
            closed = is_for_people(node, source_tree(file)) or (here and is_closed(node, file, use.files))
            if here and not closed and use.ran(file, function):
                part = (
                    node.test if isinstance(node, ast.If | ast.While | ast.Assert) else getattr(node, "value", None)
                )
                found |= set(_sites(file, getattr(node, "lineno", 0), part, here))
                for flag in flags:
                    found |= set(_sites(file, flag.lineno, flag, here))
    return frozenset(found)


def sites_of_choice(choice: ValueChoice, names: Collection[str]) -> frozenset[DecisionSite]:
    """Return where some names take part in a choice.

    Args:
        choice: The choice.
        names: Last identifiers of paths.
    """
    return frozenset(site for part in choice.parts for site in _sites(choice.turn.file, part.lineno, part, names))


def _sites(file: str, line: int, part: ast.expr | None, names: Collection[str]) -> Iterator[DecisionSite]:
    for one in ast.walk(part) if part is not None else ():
        match one:
            case ast.Name(id=name) if name in names:
                yield DecisionSite(file, line, name, "")
            case (
                ast.Attribute(attr=name, value=base) | ast.Subscript(slice=ast.Constant(value=str(name)), value=base)
            ) if name in names:
                yield DecisionSite(file, line, name, ast.unparse(base) if _is_plain(base) else None)


def _is_plain(node: ast.expr) -> bool:
    """Return whether an expression is looked up and calls nothing: names, attributes, keys."""
    match node:
        case ast.Name():
            return True
        case ast.Attribute(value=base):
            return _is_plain(base)
        case ast.Subscript(value=base, slice=ast.Constant() | ast.Name()):
            return _is_plain(base)
    return False


def is_decided(path: str, decisions: Collection[Decision], marks: Sequence[Mark], use: Use) -> bool:
    """Return whether a condition took the value at a path.

    Args:
        path: The path.
        decisions: What conditions took, in a run of the same steps.
        marks: Marks of that run, or of an equal one.
        use: What of the trainer's source ran.
    """
    path = path.removesuffix(".len")
    inner = OUTER.sub("", path)
    name = (identifiers(path) or [path])[-1]

    def is_it(one: Decision) -> bool:
        if one.how == "path":
            return any(p == one.what or p.startswith((f"{one.what}.", f"{one.what}[")) for p in (path, inner))
        return one.how == "name" and one.what == name

    def was_it(one: Decision) -> bool:
        around = [mark.snapshot.leaves.get(path) for mark in marks[max(one.at - 1, 0) : one.at + 1]]
        return any(leaf is not None and leaf.digest == one.value for leaf in around)

    # what is handed to a function has the name of its parameter there: it is the same value each time, not by chance
    known = [one for one in decisions if one.how == "value" and one.what == name]
    if not use.hands(inner):  # else it is one of its own there, and equal by chance, as two counts of the same steps
        known = [one for one in known if one.site is None or one.site.base]
    values = list(map(was_it, known))
    return any(map(is_it, decisions)) or 2 * sum(values) > len(values)

"""Tables that are filled on demand: what a condition on them decides is when an element is made, not what is trained.

A dict of masks by their length, of rotary embeddings, of compiled functions: a resumed run begins it anew and makes
again what it needs. That it makes the same is measured: another value would make something differ.
"""

from __future__ import annotations

import ast

__all__ = ["is_table"]


def is_table(node: ast.If) -> bool:
    """Return whether a condition asks for a key of a dict, and guards nothing but making or taking that element.

    As `if n not in tables: tables[n] = make(n)` and `if n in tables: return tables[n]`. What else is assigned there
    has to be that element, or to be put there.

    Args:
        node: The condition with its branches.
    """
    match node.test:
        case ast.Compare(left=key, ops=[ast.NotIn() | ast.In()], comparators=[table]):
            element = ast.unparse(ast.Subscript(table, key, ast.Load()))
        case _:
            return False
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
            case _:
                return False
        if element in names | {ast.unparse(value)}:
            found = True
            kept |= names | {ast.unparse(value)}
        assigned |= names
    return found and assigned <= kept

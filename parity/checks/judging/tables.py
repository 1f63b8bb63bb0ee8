"""Tables that are filled on demand: a dict of masks by their length, of rotary embeddings, of compiled functions.

A condition on one decides when an element is made, not what is trained: a resumed run makes again what it needs. That
it makes the same is measured: another value would make something differ.
"""

from __future__ import annotations

import ast

__all__ = ["is_table"]


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
            return _is_masked(node) or _is_keyed(node) or _is_pool(node)
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
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=of))) if ast.unparse(of) == ast.unparse(table):
                continue  # which element was taken last, and which is to go
            case ast.AugAssign(target=ast.Name() | ast.Attribute(), op=ast.Add(), value=ast.Constant()):
                continue  # how often an element was there, or was made: a condition on that decides by itself
            case _:
                return False
        if element in names | {ast.unparse(value)}:
            found = True
            kept |= names | {ast.unparse(value)}
        assigned |= names
    return found and assigned <= kept


def _is_keyed(node: ast.If) -> bool:
    """Return whether a condition asks if what is kept is of the key in question, and guards nothing but its making.

    As `if kept != n // 6: kept = n // 6; order = make(kept)`, the order of an epoch. What is made has to be assigned.

    Args:
        node: The condition with its branches.
    """
    match node.test:
        case ast.Compare(left=left, ops=[ast.NotEq() | ast.IsNot()], comparators=[right]) if not node.orelse:
            sides = ast.unparse(left), ast.unparse(right)
        case _:
            return False
    kept, names = False, 0
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name() | ast.Attribute() | ast.Tuple() as target], value=value):
                pairs: list[tuple[ast.expr, ast.expr]] = [(target, value)]
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs = list(zip(target.elts, value.elts, strict=False))
                texts = [(ast.unparse(one), ast.unparse(made)) for one, made in pairs]
                kept = kept or any(pair in (sides, sides[::-1]) for pair in texts)
                names += len(texts)
            case ast.AugAssign(target=ast.Name() | ast.Attribute(), op=ast.Add(), value=ast.Constant()):
                continue
            case _:
                return False
    return kept and names > 1


def _is_pool(node: ast.If) -> bool:
    """Return whether a condition asks if a pool has anything, and guards nothing but taking it, or making another.

    As `if self.free: return self.free.pop()` before `return np.empty(n)`, buffers that are used again.

    Args:
        node: The condition with its branches.
    """
    match node.test:
        case (
            ast.Call(func=ast.Name(id="len"), args=[pool])
            | ast.Compare(left=ast.Call(func=ast.Name(id="len"), args=[pool]), ops=[ast.Gt()])
            | (ast.Name() | ast.Attribute() as pool)
        ):
            takes = tuple(f"{ast.unparse(pool)}.{method}(" for method in ("pop", "popleft"))
        case _:
            return False
    names: set[str] = set()
    made: set[str] = set()
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if ast.unparse(value).startswith(takes):
                names.add(name)
            case ast.Return(value=ast.expr() as value) if ast.unparse(value).startswith(takes) and not node.orelse:
                names.add("")
            case ast.AugAssign(target=ast.Name() | ast.Attribute(), op=ast.Add(), value=ast.Constant()):
                continue
            case _:
                return False
    for statement in node.orelse:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]):
                made.add(name)
            case ast.AugAssign(target=ast.Name() | ast.Attribute(), op=ast.Add(), value=ast.Constant()):
                continue
            case _:
                return False
    return bool(names) and made <= names


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

"""Tables that are filled on demand: a dict of masks by their length, of rotary embeddings, of compiled functions.

A condition on one decides when an element is made, not what is trained: a resumed run makes again what it needs. That
it makes the same is measured: another value would make something differ.
"""

from __future__ import annotations

import ast
import functools

__all__ = ["is_table"]


def is_table(node: ast.If, tree: ast.Module | None = None) -> bool:
    """Return whether a condition asks for a key of a dict, and guards nothing but making or taking that element.

    As `if n not in tables: tables[n] = make(n)` and `if n in tables: return tables[n]`. What else is assigned there
    has to be that element, to be put there, or to be what it is made of, as the path of the file that it is read
    from, which may have to be written first; or it counts how often that was.

    Args:
        node: The condition with its branches.
        tree: The module that it is in: functions that it imports may be called by the way.
    """
    match node.test:
        case ast.Compare(left=key, ops=[ast.NotIn() | ast.In()], comparators=[table]):
            making = _Making(ast.unparse(table), ast.unparse(ast.Subscript(table, key, ast.Load())), _imported(tree))
            return making.takes([*node.body, *node.orelse]) and making.is_whole()
        case _:
            return _is_masked(node) or _is_keyed(node) or _is_pool(node)


class _Making:
    """Statements that make or take one element of a table.

    Args:
        table: The table, as it is written.
        element: The element, as it is written.
        imported: Names that the module imports.
    """

    def __init__(self, table: str, element: str, imported: frozenset[str]) -> None:
        self.table, self.element, self.imported = table, element, imported
        self.found = False
        self.kept: set[str] = set()
        self.assigned: set[str] = set()
        self.parts: set[str] = set()
        """Variables that are set to something else than they were."""
        self.used: set[str] = set()
        """Variables that the element, a condition or a file on the way to it is made of."""

    def takes(self, body: list[ast.stmt]) -> bool:
        """Return whether statements do nothing else, as far as each one tells.

        Args:
            body: The statements.
        """
        return all(map(self._takes, body))

    def is_whole(self) -> bool:
        """Return whether they do it at all, and each value that they set is for it."""
        return self.found and self.assigned <= self.kept | (self.parts & self.used)

    def _takes(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Assign(targets=targets, value=value):
                self._assign(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign([target], value)
            case ast.Return(value=ast.expr() as value) if ast.unparse(value) == self.element:
                self.found = True
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=of))) if ast.unparse(of) == self.table:
                pass  # which element was taken last, and which is to go
            case ast.AugAssign(target=ast.Name() | ast.Attribute(), op=ast.Add(), value=ast.Constant()):
                pass  # how often an element was there, or was made: a condition on that decides by itself
            case ast.If(test=test, body=body, orelse=orelse):  # whether a file holds it, of another process
                self.used |= _variables(test)
                return self.takes([*body, *orelse])
            case ast.With(items=items, body=body):
                self.used |= {name for item in items for name in _variables(item.context_expr)}
                self.parts |= {item.optional_vars.id for item in items if isinstance(item.optional_vars, ast.Name)}
                return self.takes(body)
            case ast.Expr(value=ast.Call() as call) if _root(call.func) in self.imported | self.parts:
                self.used |= _variables(call)  # what it does to the process or its files is compared
            case _:
                return False
        return True

    def _assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        names = {ast.unparse(target) for target in targets}
        if self.element in names | {ast.unparse(value)}:
            self.found = True
            self.kept |= names | {ast.unparse(value)}
            self.used |= _variables(value)
        else:
            own = [target.id for target in targets if isinstance(target, ast.Name)]
            self.parts |= set(own) - _variables(value)  # one that is made of itself moves
            self.used |= _variables(value)
        self.assigned |= names


def _variables(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _root(node: ast.expr) -> str:
    """Return the variable that an expression begins with: `np` of `np.linalg.norm`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@functools.lru_cache(maxsize=64)
def _imported(tree: ast.Module | None) -> frozenset[str]:
    """Return the names that the imports of a module give."""
    names: set[str] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.update(one.asname or one.name.partition(".")[0] for one in node.names)
    return frozenset(names)


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

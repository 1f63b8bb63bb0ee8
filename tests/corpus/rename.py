"""Renaming a module of loops at random: own names, keys of own dictionaries, names of files; nothing else changes.

Every name has one new name in the whole module, so scopes stay what they are. What others define keeps its name:
imports, builtins, members of classes that others call, keywords of others, and the keys of `OTHERS`.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["load_renamed", "renamed"]

OTHERS = {
    "params", "lr", "weight_decay", "betas", "momentum", "state", "step", "exp_avg", "exp_avg_sq", "train", "val",
    "dropout", "learning_rate", "batch_stats", "weight", "bias", "cpu",
}  # fmt: skip
"""Keys of which others decide the name."""
KEPT = {"steps", "save_every", "validate_every", "resume", "LOOPS", "self", "cls", "_", "__all__"}
"""Arguments by which a check knows intervals, and the table."""


class _Names(ast.NodeVisitor):
    """Collects names that a module binds, and those that it must not lose."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.fixed: set[str] = {*dir(builtins), *KEPT}
        self.keys: set[str] = set()
        self._classes = 0

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bound.add(node.name)
        for part in node.body:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                self.fixed.add(part.name)
                self.fixed |= {one.arg for one in (*part.args.args, *part.args.kwonlyargs)}
            elif isinstance(part, ast.AnnAssign | ast.Assign):
                targets = [part.target] if isinstance(part, ast.AnnAssign) else part.targets
                self.fixed |= {one.id for one in targets if isinstance(one, ast.Name)}
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.bound.add(node.name)
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        self.bound.add(node.arg)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)

    def visit_alias(self, node: ast.alias) -> None:
        self.fixed.add((node.asname or node.name).partition(".")[0])

    def visit_Dict(self, node: ast.Dict) -> None:
        self.keys |= {k.value for k in node.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)}
        self.generic_visit(node)


class _Renamer(ast.NodeTransformer):
    def __init__(self, names: dict[str, str], keys: dict[str, str], files: dict[str, str]) -> None:
        self.names, self.keys, self.files = names, keys, files

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.names.get(node.arg, node.arg)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        node.names = [self.names.get(one, one) for one in node.names]
        return node

    visit_Global: Any = visit_Nonlocal

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in self.names:
            for keyword in node.keywords:
                keyword.arg = self.names.get(keyword.arg or "", keyword.arg)
        return self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        for key in node.keys:
            self._key(key)
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self._key(node.slice)
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        right = node.right
        if isinstance(node.op, ast.Div) and isinstance(right, ast.Constant) and right.value in self.files:
            right.value = self.files[right.value]
        return self.generic_visit(node)

    def _key(self, node: ast.AST | None) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = self.keys.get(node.value, node.value)


def renamed(source: str, seed: int) -> str:
    """Return the source of a module of loops under random names.

    Args:
        source: A whole module.
        seed: Of the names.
    """
    tree = ast.parse(source)
    names = _Names()
    names.visit(tree)
    draws = random.Random(seed)
    used: set[str] = set()

    def word() -> str:
        while True:
            made = draws.choice("bcdfghjkmpqrvwz") + "".join(draws.choices("aeioubdgklmnprstvz", k=5))
            if made not in used and made not in source:
                used.add(made)
                return made

    own = {one: word() for one in sorted(names.bound - names.fixed) if not one.startswith("__")}
    # A key that is also a keyword of somebody, as in dict(w=w) or np.savez(w=w), is read under that name.
    keywords = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg}
    keywords |= {part.value for node in ast.walk(tree) if isinstance(node, ast.Tuple) for part in ast.walk(node)
                 if isinstance(part, ast.Constant) and isinstance(part.value, str)}  # fmt: skip
    # One that becomes an attribute, as in vars(self).update(saved), is read under that name too.
    calls = {
        node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    if calls & {"vars", "setattr", "getattr"}:
        keywords |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    keys = {one: word() for one in sorted(names.keys - OTHERS - keywords) if one.isidentifier()}
    files = {
        node.right.value: word() + Path(node.right.value).suffix
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant)
        and isinstance(node.right.value, str)
    }  # fmt: skip
    return ast.unparse(ast.fix_missing_locations(_Renamer(own, keys, files).visit(tree)))


def load_renamed(module: str, seed: int, folder: Path) -> ModuleType:
    """Write and import a module of `loops/` under random names; its `LOOPS` are in the same order.

    Args:
        module: Name of the module.
        seed: Of the names.
        folder: Directory for the source.
    """
    source = (Path(__file__).parent / "loops" / f"{module}.py").read_text(encoding="utf-8")
    name = f"{module.partition('_')[0]}_renamed_{module.partition('_')[2]}_{seed}"
    path = folder / f"{name}.py"
    path.write_text(renamed(source, seed), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made

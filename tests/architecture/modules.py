"""Every module of the product as a syntax tree, and the packages of `parity` in layers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["BELOW_THE_SIDES", "FRAMEWORKS", "LAYERS", "MODULES", "PARITY", "SIDES", "Module", "Rule", "layer",
           "offences", "package", "planted", "public_names"]  # fmt: skip

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = {"jax", "jaxlib", "flax", "optax", "orbax", "torch"}
SIDES = {"jax_side", "torch_side"}
PARITY = "parity"


@dataclass(frozen=True)
class Module:
    """A module of the product, or one that a test makes up."""

    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax; read where it is asked for: all of them take 5 s, of every process that collects tests."""
        return ast.parse(self.text)

    @property
    def top(self) -> str:
        """The package on the top level: parity, jax_side or torch_side."""
        return self.name.split(".")[0]

    def nodes(self, kind: type[ast.AST]) -> Iterator[ast.AST]:
        """Yield the nodes of one kind, at any depth."""
        return (node for node in ast.walk(self.tree) if isinstance(node, kind))

    def absolute(self, node: ast.ImportFrom) -> str:
        """Return the module that a from-import names, a relative one resolved."""
        if not node.level:
            return node.module or ""
        own = self.name.split(".") if self.path.name == "__init__.py" else self.name.split(".")[:-1]
        kept = own[: len(own) - node.level + 1]
        return ".".join([*kept, *([node.module] if node.module else [])])

    def imports(self) -> set[str]:
        """Return the dotted names that are imported, in functions and for type checkers too."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = self.absolute(node)
                found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        return found

    def tops(self) -> set[str]:
        """Return the top-level packages that are imported."""
        return {name.split(".")[0] for name in self.imports()}


Rule = Callable[[Module], Iterable[str]]
"""Yields what is wrong with a module."""


def _read(path: Path) -> Module:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return Module(name, path, path.read_text(encoding="utf-8"))


def planted(name: str, text: str) -> Module:
    """Return a module that a test makes up."""
    return Module(name, ROOT / (name.replace(".", "/") + ".py"), text)


MODULES = {
    module.name: module
    for top in (PARITY, *sorted(SIDES))
    for module in map(_read, sorted((ROOT / top).rglob("*.py")))
}

LAYERS = (
    {"errors", "environment", "threefry"},
    {"storage", "forks"},
    {"policy", "schedules", "formats", "capture"},
    {"state"},
    {"contract", "mapping"},
    {"spec"},
    {"checkpoints", "results", "sides"},
    {"twins"},
    {"convert"},
    {"runs", "report"},
    {"trackers", "checks"},
    {"reference"},
    {"cli", "pytest_plugin"},
)
"""The packages and modules directly in parity/, lowest first: each imports from lower layers only."""

BELOW_THE_SIDES = set().union(*LAYERS[:10])
"""What the sides' packages may import: they stand beside the checks."""


def package(name: str) -> str:
    """Return the package, or the module, directly in parity/ that a module belongs to; "" for others."""
    return name.split(".")[1] if name.startswith("parity.") and name != "parity.__main__" else ""


def layer(name: str) -> int:
    """Return the number of the layer of a package, from 0."""
    return next(number for number, packages in enumerate(LAYERS) if name in packages)


def public_names(name: str) -> set[str]:
    """Return the names in a module's `__all__`, empty for one that is not of the product."""
    found = (
        node.value
        for node in (MODULES[name].tree.body if name in MODULES else [])
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return {str(word) for value in found for word in ast.literal_eval(value)}


def offences(rule: Rule) -> list[str]:
    """Return what a rule finds in the product, each with its module."""
    return [f"{module.name}: {what}" for module in MODULES.values() for what in rule(module)]

"""A type name has one meaning: it is defined in one module, or once on each side."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.architecture.modules import MODULES, SIDES, Module, planted

ON_BOTH_SIDES = {
    "BatchNorm", "Block", "Checkpoints", "CheckpointManager", "Cnn", "Dropout", "Dtypes", "Gpt", "Linear", "Mlp",
    "Placed", "Placement", "Snapshot",
}  # fmt: skip
"""Names that both sides have on purpose, as the two mirror each other; some have the base of both in `parity`."""

BASES = {"Checkpoints": "parity.checkpoints.saving", "CheckpointManager": "parity.checkpoints.trees.manager"}
"""Where the base of both sides' class is."""

STILL_TWICE = {"Linear": "parity.schedules.decays"}
"""A layer on both sides and PyTorch's schedule of that name."""


def type_names(module: Module) -> Iterator[str]:
    """Yield the classes, aliases and type variables that a module defines; constants are in capitals."""
    for node in module.tree.body:
        targets = (
            [node.name]
            if isinstance(node, ast.ClassDef)
            else [target.id for target in node.targets if isinstance(target, ast.Name)]
            if isinstance(node, ast.Assign)
            else [node.target.id]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            else []
        )
        for name in targets:
            plain = name.lstrip("_")
            if plain[:1].isupper() and not plain.isupper():
                yield plain


def with_several_meanings(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Return names that are defined in several modules, other than on purpose, with these."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for name in type_names(module):
            if name in ON_BOTH_SIDES and module.top in SIDES:
                continue
            if module.name not in (BASES.get(name), STILL_TWICE.get(name)):
                homes[name].append(module.name)
    return {name: found for name, found in homes.items() if len(found) > 1 or name in ON_BOTH_SIDES}


def test_a_name_has_one_meaning() -> None:
    assert with_several_meanings(MODULES.values()) == {}


def test_what_both_sides_have_is_there_on_both() -> None:
    for name in ON_BOTH_SIDES:
        found = {module.top for module in MODULES.values() if name in type_names(module)}
        assert found >= SIDES, name
    for name, module in {**BASES, **STILL_TWICE}.items():
        assert name in type_names(MODULES[module])


def test_a_second_meaning_is_found() -> None:
    first, second = planted("parity.a", "class Leaf: ..."), planted("parity.b", "Leaf = str | int")
    assert with_several_meanings([first]) == {}
    assert with_several_meanings([first, second]) == {"Leaf": ["parity.a", "parity.b"]}
    assert with_several_meanings([planted("parity.b", "class _Gpt: ...")]) == {"Gpt": ["parity.b"]}

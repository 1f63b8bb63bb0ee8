"""Packages in layers, no circle of imports, and what an import loads."""

from __future__ import annotations

import importlib
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.architecture.modules import FRAMEWORKS, LAYERS, MODULES, ROOT, SIDES

PACKAGES = [name for name, module in MODULES.items() if module.path.name == "__init__.py" and module.top == "parity"]


def test_every_package_is_in_a_layer() -> None:
    entries = {
        path.stem for path in (ROOT / "parity").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert entries - {"__init__", "__main__"} == set().union(*LAYERS)
    assert len(entries) <= 27


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_names_what_it_offers_and_says_what_it_is(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert len(set(module.__all__)) == len(module.__all__)
    assert [word for word in module.__all__ if not hasattr(module, word)] == []


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of an import circle, if there is one."""
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.takes_seconds
def test_no_module_needs_itself() -> None:
    """Imports for type checkers and those in functions count too."""
    graph = {name: {used for used in one.imports() if used in MODULES} - {name} for name, one in MODULES.items()}
    for name, others in graph.items():  # a submodule is imported after its packages began
        graph[name] = {other for other in others if not name.startswith(f"{other}.")}
    assert set(graph) == set(MODULES)
    assert circle(graph) == []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}


def loaded_by(code: str) -> set[str]:
    """Return the top-level packages that an interpreter has loaded after a line of code."""
    code = f"import sys; {code}; print(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return set(done.stdout.split())


@pytest.mark.takes_seconds
@pytest.mark.parametrize("imported", ["parity", "parity.cli", "parity, parity.cli, parity.checks, parity.report"])
def test_importing_the_harness_loads_no_framework(imported: str) -> None:
    loaded = loaded_by(f"import {imported}")
    assert loaded & (FRAMEWORKS | SIDES | {"grain", "sklearn", "pytest", "tensorboard", "crc32c", "wandb"}) == set()
    assert "parity" in loaded


@pytest.mark.takes_seconds
@pytest.mark.parametrize(
    ("side", "foreign"), [("jax_side", {"torch"}), ("torch_side", {"jax", "flax", "optax", "orbax"})]
)
def test_importing_a_side_loads_its_own_framework_only_and_starts_no_device(side: str, foreign: set[str]) -> None:
    devices = "import jax._src.xla_bridge as b; assert not b._backends" if side == "jax_side" else "pass"
    assert loaded_by(f"import {side}; {devices}") & (foreign | SIDES - {side}) == set()

"""The rules of the product's modules: each yields what is wrong with one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.modules import (
    BELOW_THE_SIDES,
    FRAMEWORKS,
    MODULES,
    PARITY,
    ROOT,
    SIDES,
    Module,
    layer,
    package,
    public_names,
)

__all__ = ["framework_in_parity", "import_past_public_names", "names_a_side", "not_readable", "other_side",
           "reads_pickles", "spec_in_what_takes_any_trainer", "torch_load_may_run_code", "training_in_the_report",
           "upward"]  # fmt: skip

MOST_LINES = 400

DYNAMIC = {
    "parity.sides": ({"_side"}, {"importlib.import_module"}),
    "parity": (set(), {"import_module"}),
    "parity.checks.running.child": (set(), {"importlib.import_module"}),
    "parity.cli.commands": (set(), {"import_module"}),
}
"""Modules that import by a name they build: the registry of sides; `parity` its own packages, when one of its names
is first used; the command line the command that is asked for; the server of forks the modules of other packages that
a run has imported."""

TRAINING = {
    f"parity.{name}" for name in ("runs.process", "runs.loop", "runs.directory", "twins.twin", "twins.prefetch")
}
TAKES_ANY_TRAINER = {"contract", "policy", "storage", "checkpoints", "results", "runs", "report", "trackers", "sides"}
"""Packages that know a run by its plan and identity only. So do two of the checks."""

RUNS_FILES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
"""Modules that run what a file tells them to."""


def framework_in_parity(module: Module) -> Iterator[str]:
    """A framework, or a side, that the harness imports."""
    if module.top == PARITY:
        yield from sorted(module.tops() & (FRAMEWORKS | SIDES))


def names_a_side(module: Module) -> Iterator[str]:
    """The name of a side's package in a text, or an import by a name that is computed, outside of the registry."""
    if module.top != PARITY:
        return
    docstrings = {
        id(node.value)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    texts = {
        node.value
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    }
    calls = {ast.unparse(node.func) for node in ast.walk(module.tree) if isinstance(node, ast.Call)}
    named = {text for text in texts if "jax_side" in text or "torch_side" in text or text == "_side"}
    dynamic = {call for call in calls if call.split(".")[-1] in ("import_module", "__import__")}
    if (named, dynamic) != DYNAMIC.get(module.name, (set(), set())):
        yield f"names {sorted(named)}, imports by {sorted(dynamic)}"


def other_side(module: Module) -> Iterator[str]:
    """The other side, or its framework, that a side imports."""
    foreign = {"jax_side": {"torch_side", "torch"}, "torch_side": {"jax_side"} | FRAMEWORKS - {"torch"}}
    yield from sorted(module.tops() & foreign.get(module.top, set()))


def _packages(module: Module) -> set[str]:
    return {package(name) for name in module.imports() if name in MODULES} - {""}


def upward(module: Module) -> Iterator[str]:
    """A package of a higher layer, or of the same one, that is imported."""
    own = package(module.name)
    for used in sorted(_packages(module) - {own, "__main__"}):
        if (module.top in SIDES and used not in BELOW_THE_SIDES) or (own and layer(used) >= layer(own)):
            yield f"imports parity.{used}"


def import_past_public_names(module: Module) -> Iterator[str]:
    """A module inside another package that is imported, rather than what that package offers."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            offered = public_names(node.module or "")
            found |= {node.module or ""} | {f"{node.module}.{a.name}" for a in node.names if a.name not in offered}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    inner = {name for name in found if name in MODULES and MODULES[name].path.name != "__init__.py"}
    yield from sorted(
        name
        for name in inner
        if name.startswith("parity.") and name.count(".") > 1
        if not f"{module.name}.".startswith(name.rpartition(".")[0] + ".")
    )


def training_in_the_report(module: Module) -> Iterator[str]:
    """A trainer, a side or the directory of a run in the report, which renders records."""
    if module.name.startswith("parity.report"):
        yield from sorted(module.imports() & TRAINING)


def spec_in_what_takes_any_trainer(module: Module) -> Iterator[str]:
    """A spec or a twin in what takes any trainer."""
    if package(module.name) in TAKES_ANY_TRAINER or module.name.startswith(
        ("parity.reference.planned", "parity.reference.policy")
    ):
        yield from sorted(_packages(module) & {"spec", "twins"})
        if "RunSpec" in module.text:
            yield "names RunSpec"


def _keywords(module: Module) -> list[ast.keyword]:
    return [node for node in ast.walk(module.tree) if isinstance(node, ast.keyword)]


def reads_pickles(module: Module) -> Iterator[str]:
    """What runs a file: checkpoints are arrays and JSON, or are read by readers that run nothing."""
    yield from sorted(module.tops() & RUNS_FILES)
    lenient = (ast.unparse(node) for node in _keywords(module) if node.arg == "allow_pickle")
    yield from (text for text in lenient if text != "allow_pickle=False")


def torch_load_may_run_code(module: Module) -> Iterator[str]:
    """A `torch.load`, by whatever name, that does not say `weights_only=True` at the call.

    The default was the other one up to torch 2.5, and an environment variable can turn it back.
    """
    names = {"torch.load", "torch.serialization.load", "torch.jit.load"}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("torch", "torch.serialization", "torch.jit"):
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "load"}
        if isinstance(node, ast.Import):
            names |= {f"{a.asname}.load" for a in node.names if a.asname and a.name.startswith("torch")}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in names:
            said = {k.arg: ast.unparse(k.value) for k in node.keywords}
            if said.get("weights_only") != "True":
                yield ast.unparse(node)
    for k in _keywords(module):
        if k.arg == "weights_only" and ast.unparse(k.value) != "True":
            yield ast.unparse(k)


def not_readable(module: Module) -> Iterator[str]:
    """Too many lines, a drawer for everything, packages too deep, no word on what it is for."""
    if (lines := len(module.text.splitlines())) > MOST_LINES:
        yield f"{lines} lines, at most {MOST_LINES}"
    if module.path.name == "utils.py":
        yield "utils.py says nothing of what is in it"
    if len(module.path.relative_to(ROOT).parts) > 4:
        yield "more than two levels deep inside a package"
    if not ast.get_docstring(module.tree):
        yield "no docstring"

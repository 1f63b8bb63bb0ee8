"""Who may import whom, and how large a module may grow."""

import ast
import importlib
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("parity", "jax_side", "torch_side")
FRAMEWORKS = {"jax", "jaxlib", "flax", "optax", "orbax", "torch"}
SIDES = {"jax_side", "torch_side"}
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
each_module = pytest.mark.parametrize("module", FILES)
LIMIT = 400


def absolute(module: str, node: ast.ImportFrom) -> str:
    """Return the module a from-import names, a relative one resolved."""
    if not node.level:
        return node.module or ""
    package = module.split(".") if FILES[module].name == "__init__.py" else module.split(".")[:-1]
    kept = package[: len(package) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def imports(module: str, nodes: list[ast.AST]) -> set[str]:
    """Return the dotted names that statements import: modules, and the names taken from them."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = absolute(module, node)
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def all_imports(module: str) -> set[str]:
    return imports(module, list(ast.walk(TREES[module])))


def tops(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def texts(module: str) -> set[str]:
    """Return the string constants of a module, docstrings left out."""
    tree = TREES[module]
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    }


@each_module
def test_the_harness_imports_no_framework_and_no_side(module: str) -> None:
    if module.split(".")[0] == "parity":
        assert tops(all_imports(module)) & (FRAMEWORKS | SIDES) == set()


@each_module
def test_only_the_registry_names_the_sides_packages(module: str) -> None:
    """parity/sides.py builds the name and imports it; no other module could."""
    if module.split(".")[0] != "parity":
        return
    named = {text for text in texts(module) if "jax_side" in text or "torch_side" in text or text == "_side"}
    dynamic = {
        ast.unparse(node.func)
        for node in ast.walk(TREES[module])
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__")
    }
    if module == "parity.sides":
        assert (named, dynamic) == ({"_side"}, {"importlib.import_module"})
    elif module == "parity":  # imports its own rooms, when a name is first used
        assert (named, dynamic) == (set(), {"import_module"})
    elif module == "parity.checks.live.fork_server":  # imports modules of other packages that a run has imported
        assert (named, dynamic) == (set(), {"importlib.import_module"})
    else:
        assert (named, dynamic) == (set(), set())


@each_module
def test_the_sides_never_import_each_other_nor_the_other_framework(module: str) -> None:
    side = module.split(".")[0]
    foreign = {"jax_side": {"torch_side", "torch"}, "torch_side": {"jax_side"} | FRAMEWORKS - {"torch"}}
    assert tops(all_imports(module)) & foreign.get(side, set()) == set()


FLOORS = (
    {"errors", "environment", "threefry"},
    {"storage"},
    {"policy", "schedules", "formats"},
    {"contract"},
    {"spec"},
    {"checkpoints", "results", "sides"},
    {"twins"},
    {"convert"},
    {"runs", "report"},
    {"trackers", "checks"},
    {"cli", "pytest_plugin"},
)
"""The rooms of parity/, from the ground up: each imports from lower floors only."""

BELOW_THE_SIDES = set().union(*FLOORS[:9])
"""What the sides' packages may import: they stand beside the checks."""


def room(module: str) -> str:
    """Return the name of a module's room: a file or a package directly in parity/."""
    return module.split(".")[1] if module.startswith("parity.") and module != "parity.__main__" else ""


def floor(name: str) -> int:
    return next(level for level, rooms in enumerate(FLOORS) if name in rooms)


def rooms_of(names: set[str]) -> set[str]:
    return {room(name) for name in names if name in FILES and room(name)}


def test_every_room_is_on_a_floor() -> None:
    entries = {
        path.stem for path in (ROOT / "parity").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert entries - {"__init__", "__main__"} == set().union(*FLOORS)
    assert len(entries) <= 22


@each_module
def test_arrows_point_downward_only(module: str) -> None:
    """Also those for type checkers, and those in functions."""
    used = rooms_of(all_imports(module))
    if module.split(".")[0] in SIDES:
        assert used <= BELOW_THE_SIDES
    elif own := room(module):
        upward = {name for name in used - {own, "__main__"} if floor(name) >= floor(own)}
        assert upward == set()


def offers(door: str) -> set[str]:
    """Return the names in a package's `__all__`; a function may have the name of its module."""
    named = (
        node.value
        for node in (TREES[door].body if door in TREES else [])
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return {str(name) for value in named for name in ast.literal_eval(value)}


def doors_passed_by(module: str, tree: ast.AST) -> set[str]:
    """Return the inner modules of other packages that a module imports, or imports from."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            offered = offers(node.module or "")
            found |= {node.module or ""} | {f"{node.module}.{a.name}" for a in node.names if a.name not in offered}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    inner = {name for name in found if name in FILES and FILES[name].name != "__init__.py" and name.count(".") > 1}
    return {name for name in inner if not f"{module}.".startswith(name.rpartition(".")[0] + ".")}


@each_module
def test_packages_are_entered_by_their_doors(module: str) -> None:
    assert {name for name in doors_passed_by(module, TREES[module]) if name.startswith("parity.")} == set()


@pytest.mark.parametrize(
    "source",
    [
        "from parity.storage.atomic import move",
        "from parity.storage import atomic",
        "import parity.storage.atomic",
        "def f():\n    from parity.checks.resume.judge import judge",
    ],
)
def test_an_import_past_a_door_is_found(source: str) -> None:
    assert doors_passed_by("parity.cli.check", ast.parse(source))
    assert not doors_passed_by("parity.cli.check", ast.parse("from parity.storage import move"))


@pytest.mark.parametrize(
    "name", [name for name, path in FILES.items() if path.name == "__init__.py" and name.startswith("parity")]
)
def test_a_door_names_what_it_offers_and_says_what_the_package_is(name: str) -> None:
    door = importlib.import_module(name)
    assert door.__doc__
    assert len(set(door.__all__)) == len(door.__all__)
    assert [word for word in door.__all__ if not hasattr(door, word)] == []


@each_module
def test_the_report_renders_and_never_trains(module: str) -> None:
    """Records in, text out: no trainer, no side, no run directory."""
    if module.startswith("parity.report"):
        used = {name for name in all_imports(module) if name in FILES}
        training = {"runs.process", "runs.loop", "runs.directory", "twins.twin", "twins.prefetch"}
        assert used & {f"parity.{name}" for name in training} == set()


ANY_TRAINER = ("contract", "policy", "storage", "checkpoints", "results", "runs", "report", "trackers", "sides")
"""Rooms that take any trainer: they know a run by its plan and identity. So do two of the checks."""


@each_module
def test_what_takes_any_trainer_knows_no_spec_and_no_twin(module: str) -> None:
    if room(module) in ANY_TRAINER or module.startswith(("parity.checks.resume", "parity.checks.policy")):
        assert rooms_of(all_imports(module)) & {"spec", "twins"} == set()
        assert "RunSpec" not in FILES[module].read_text(encoding="utf-8")


PICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
"""Modules that run what a file tells them to."""


@each_module
def test_no_module_reads_pickles(module: str) -> None:
    """Loading a pickle runs it: checkpoints are arrays and JSON, read by readers that run nothing."""
    assert tops(all_imports(module)) & PICKLERS == set()
    lenient = [ast.unparse(node) for node in keywords(module) if node.arg == "allow_pickle"]
    assert [text for text in lenient if text != "allow_pickle=False"] == []


def keywords(module: str) -> list[ast.keyword]:
    return [node for node in ast.walk(TREES[module]) if isinstance(node, ast.keyword)]


def torch_loads(tree: ast.AST) -> list[ast.Call]:
    """Return the calls of torch.load, by whatever name the function was brought in."""
    names = {"torch.load", "torch.serialization.load", "torch.jit.load"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("torch", "torch.serialization", "torch.jit"):
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "load"}
        if isinstance(node, ast.Import):
            names |= {f"{a.asname}.load" for a in node.names if a.asname and a.name.startswith("torch")}
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) in names]


def loads_weights_only(call: ast.Call) -> bool:
    return any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in call.keywords)


def test_every_load_of_pytorch_says_that_it_runs_no_code() -> None:
    """Said at the call: PyTorch's own default was the other one up to 2.5, and a variable can turn it back."""
    calls = {module: torch_loads(tree) for module, tree in TREES.items()}
    assert calls["torch_side.formats.content"], "the loader of checkpoints is among them"
    assert [ast.unparse(call) for found in calls.values() for call in found if not loads_weights_only(call)] == []
    for module in FILES:
        assert not [k for k in keywords(module) if k.arg == "weights_only" and ast.unparse(k.value) != "True"]


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.load(file)",
        "import torch\ntorch.load(file, weights_only=False)",
        "import torch\ntorch.load(file, weights_only=safe)",
        "import torch as t\nt.load(file, map_location='cpu')",
        "from torch import load as read\nread(file)",
        "from torch.serialization import load\nload(file)",
        "def f():\n    return torch.jit.load(file)",
    ],
)
def test_a_load_that_may_run_code_is_found(source: str) -> None:
    assert [loads_weights_only(call) for call in torch_loads(ast.parse(source))] == [False]


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of an import circle, if there is one."""
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_needs_itself() -> None:
    """Imports for type checkers and those in functions count too."""
    graph = {name: {other for other in all_imports(name) if other in FILES} - {name} for name in FILES}
    for name, others in graph.items():  # a submodule is imported after its packages began
        graph[name] = {other for other in others if not name.startswith(f"{other}.")}
    assert set(graph) == set(FILES)
    assert circle(graph) == []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}


@pytest.mark.parametrize("imported", ["parity", "parity.cli", "parity, parity.cli, parity.checks, parity.report"])
def test_importing_the_harness_loads_no_framework(imported: str) -> None:
    code = f"import sys, {imported}; print(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(done.stdout.split())
    assert loaded & (FRAMEWORKS | SIDES | {"grain", "sklearn", "pytest", "tensorboard", "crc32c", "wandb"}) == set()
    assert "parity" in loaded


@pytest.mark.parametrize(
    ("side", "foreign"), [("jax_side", {"torch"}), ("torch_side", {"jax", "flax", "optax", "orbax"})]
)
def test_importing_a_side_loads_its_own_framework_only_and_starts_no_device(side: str, foreign: set[str]) -> None:
    devices = "import jax._src.xla_bridge as b; assert not b._backends;" if side == "jax_side" else ""
    code = f"import sys, {side}; {devices} print(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(done.stdout.split())
    assert loaded & (foreign | SIDES - {side}) == set()


@each_module
def test_a_module_stays_readable(module: str) -> None:
    path = FILES[module]
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LIMIT
    assert path.name != "utils.py"
    assert len(path.relative_to(ROOT).parts) <= 4, "at most two levels deep inside a package"
    assert ast.get_docstring(TREES[module]), "says what it is for"

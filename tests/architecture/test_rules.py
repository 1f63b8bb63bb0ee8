"""No module of the product breaks a rule, and each rule finds a module that does."""

from __future__ import annotations

import pytest

from tests.architecture import rules
from tests.architecture.modules import MODULES, Rule, offences, planted

LONG = '"""Too long."""\n' + "x = 1\n" * rules.MOST_LINES

PLANTS: dict[Rule, list[tuple[str, str]]] = {
    rules.framework_in_parity: [
        ("parity.checks.new", "import torch"),
        ("parity.checks.new", "def f():\n    from jax import numpy"),
        ("parity.checks.new", "import jax_side.optim"),
    ],
    rules.names_a_side: [
        ("parity.cli.new", "side = 'jax_side'"),
        ("parity.cli.new", "import importlib\nimportlib.import_module(name)"),
        ("parity.cli.new", "__import__(name)"),
        ("parity.sides", "import importlib\nimportlib.import_module('torch_side')"),
    ],
    rules.other_side: [
        ("jax_side.new", "import torch.nn"),
        ("torch_side.new", "from jax_side import optim"),
        ("torch_side.new", "def f():\n    import optax"),
    ],
    rules.upward: [
        ("parity.storage.new", "from parity.checkpoints import list_checkpoints"),
        ("parity.runs.new", "from parity import report"),
        ("parity.contract.new", "if TYPE_CHECKING:\n    from parity.spec import RunSpec"),
        ("jax_side.new", "from parity.checks import suite"),
    ],
    rules.import_past_public_names: [
        ("parity.cli.check", "from parity.storage.atomic import move"),
        ("parity.cli.check", "from parity.storage import atomic"),
        ("parity.cli.check", "import parity.storage.atomic"),
        ("parity.cli.check", "def f():\n    from parity.reference.planned.judge import judge"),
    ],
    rules.training_in_the_report: [("parity.report.new", "from parity.runs import process")],
    rules.spec_in_what_takes_any_trainer: [
        ("parity.runs.new", "from parity.twins import data"),
        ("parity.reference.planned.new", "from parity import spec"),
        ("parity.report.new", "def f(spec: 'RunSpec'): ..."),
    ],
    rules.reads_pickles: [
        ("torch_side.new", "import pickle"),
        ("parity.formats.new", "def f():\n    from marshal import loads"),
        ("jax_side.new", "numpy.load(file, allow_pickle=True)"),
        ("jax_side.new", "numpy.load(file, allow_pickle=trusted)"),
    ],
    rules.torch_load_may_run_code: [
        ("torch_side.new", "import torch\ntorch.load(file)"),
        ("torch_side.new", "import torch\ntorch.load(file, weights_only=False)"),
        ("torch_side.new", "import torch\ntorch.load(file, weights_only=safe)"),
        ("torch_side.new", "import torch as t\nt.load(file, map_location='cpu')"),
        ("torch_side.new", "from torch import load as read\nread(file)"),
        ("torch_side.new", "from torch.serialization import load\nload(file)"),
        ("torch_side.new", "def f():\n    return torch.jit.load(file)"),
        ("torch_side.new", "options = dict(weights_only=False)"),
    ],
    rules.not_readable: [
        ("parity.new", LONG),
        ("parity.utils", '"""All kinds of things."""'),
        ("parity.checks.running.deep.new", '"""Deep."""'),
        ("parity.new", "x = 1"),
    ],
}


@pytest.mark.parametrize("rule", PLANTS, ids=lambda rule: rule.__name__)
def test_no_module_breaks_it(rule: Rule) -> None:
    assert offences(rule) == []


@pytest.mark.parametrize(
    ("rule", "name", "text"), [(rule, *plant) for rule, plants in PLANTS.items() for plant in plants]
)
def test_a_module_that_breaks_it_is_found(rule: Rule, name: str, text: str) -> None:
    assert list(rule(planted(name, text)))


def test_every_rule_is_held() -> None:
    assert {rule.__name__ for rule in PLANTS} == set(rules.__all__)


def test_the_loader_of_checkpoints_is_among_the_modules_that_are_looked_at() -> None:
    assert "torch.load(" in MODULES["torch_side.formats.content"].text


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (rules.import_past_public_names, "parity.cli.check", "from parity.storage import move"),
        (rules.upward, "parity.checkpoints.new", "from parity.storage import move"),
        (rules.torch_load_may_run_code, "torch_side.new", "import torch\ntorch.load(file, weights_only=True)"),
        (rules.reads_pickles, "parity.new", "numpy.load(file, allow_pickle=False)"),
    ],
)
def test_a_module_that_keeps_it_passes(rule: Rule, name: str, text: str) -> None:
    assert list(rule(planted(name, text))) == []

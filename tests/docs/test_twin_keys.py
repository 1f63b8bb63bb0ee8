"""The keys of a spec on docs/commands.md name every kind, the example is a spec, the recipe of an optimizer holds."""

import re
from pathlib import Path

from parity.schedules import RULES
from parity.spec import OPTIMIZER_SPECS, from_toml, to_toml
from parity.state import OPTIMIZERS
from tests.docs.pages import ROOT, read

SECTION = (
    read("docs/commands.md")
    .split("### Optimizers, parameter groups and schedules")[1]
    .split("Several JAX processes")[0]
)


def test_every_kind_of_optimizer_and_of_rule_is_named() -> None:
    named = set(re.findall(r"`(\w+)`", SECTION))
    assert named >= {*OPTIMIZER_SPECS, *RULES}


def test_the_example_is_a_spec() -> None:
    spec = from_toml(SECTION.split("```toml\n")[1].split("```")[0])
    assert from_toml(to_toml(spec)) == spec
    assert (spec.optimizer.kind, len(spec.optimizer.groups), spec.schedule.kind) == ("rmsprop", 1, "rule")


WHERE = ("parity/spec", "parity/twins", "jax_side", "torch_side")
FORMER = {"Adam", "AdamW", "SGD"}


def test_an_optimizer_is_named_by_its_row_its_rule_and_a_class_that_torch_lacks_alone() -> None:
    """The recipe: no module of specs, of twins or of a side decides by its name, but for Muon's second optimizer."""
    files = [path for folder in WHERE for path in sorted((ROOT / folder).rglob("*.py"))]
    naming: dict[str, set[str]] = {name: set() for name in OPTIMIZERS if name not in FORMER}
    for path in files:
        code = re.sub(r'"""(?s:.*?)"""|#.*', "", path.read_text(encoding="utf-8"))
        for name in naming:
            if re.search(rf'"{name}"|"{name.lower()}"', code):
                naming[name].add(str(path.relative_to(ROOT)))
    lists = {"jax_side/optim/__init__.py", "torch_side/optim/__init__.py", "jax_side/optim/obvious.py"}
    rules = {name: {file for file in found - lists if "/optim/" not in file} for name, found in naming.items()}
    assert {name: found for name, found in rules.items() if found} == {
        "Muon": {"jax_side/optimizer.py", "parity/twins/slots.py"}
    }
    for name in naming:
        inside = {file for file in naming[name] - lists if file.startswith(("jax_side/optim/", "torch_side/optim/"))}
        assert 1 <= len(inside) <= 3, (name, inside)
    assert Path(ROOT, "parity/state/optimizers.py").read_text(encoding="utf-8").count('name="') >= len(OPTIMIZERS)

"""The page on ports, compared with the code; its examples run."""

import ast
import subprocess
import sys
from collections.abc import Callable

import pytest

from parity.checks.criteria import ENVELOPE_LIMIT, FLOAT64_LIMIT, FLOAT64_NOISE_FLOOR
from parity.checks.noise import SEEDS
from parity.checks.ports.judge import ARRAY_LIMIT
from parity.checks.ports.noise import FLOAT64_SEEDS
from parity.checks.ports.session import advise_port
from tests.docs import pages
from tests.docs.pages import ROOT, expect_failure, table

PORT = "docs/your-port.md"
EXAMPLES = ROOT / "docs" / "examples"


def between(name: str) -> str:
    """Return what stands between two comments of the page, without the fence."""
    text = pages.read(PORT).split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]
    return "\n".join(line for line in text.strip().splitlines() if not line.startswith("```"))


def test_the_tests_of_the_page_are_the_examples() -> None:
    shown, kept = (ast.parse(text) for text in (between("port"), (EXAMPLES / "test_port.py").read_text()))
    wanted = [ast.unparse(node) for node in kept.body if not isinstance(node, ast.Expr)]
    assert [ast.unparse(node) for node in shown.body] == wanted


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    rows = {cells[0]: cells[1:] for cells in table(PORT, "precision", "the loss").rows}
    words = {3.0: "three times", 10.0: "ten times"}
    assert f"{FLOAT64_LIMIT:.0e} relative" in rows["float64"][0]
    assert f"move it by {FLOAT64_NOISE_FLOOR:.0e}" in rows["float64"][0]
    assert f"{FLOAT64_LIMIT:.0e} of its largest element" in rows["float64"][1]
    assert {words[limit] for limit in ENVELOPE_LIMIT.values()} == {rows["below"][0][: len("three times")]}
    assert rows["below"][1].startswith(words[ARRAY_LIMIT])
    runs = f"2 runs of each side where these show already that both agree, else 4, 8 or {SEEDS}; in float64"
    assert f"{runs} always {FLOAT64_SEEDS};" in " ".join(pages.read(PORT).split())


def test_every_component_of_the_page_has_its_advice() -> None:
    for cells in table(PORT, "first", "usual cause").rows:
        assert advise_port(cells[0].strip("`"), "after 3 steps"), cells[0]


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import parity, port_torch, port_optax
settings = dict(steps=40, mode="inline", seeds=1)
print(parity.twins_agree(port_torch.train, port_optax.train, **settings).text())
handed = parity.hands_over(port_torch.train, port_optax.train, convert=port_optax.convert, stop_at=25, **settings)
print(handed.text())
import optax
port_optax.TX = optax.adamw(1e-2)
port_optax.train_step.clear_cache()
print(parity.twins_agree(port_torch.train, port_optax.train, **settings).text())
"""


@pytest.mark.takes_seconds
def test_the_examples_hold_and_the_default_of_optax_is_named() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, EXAMPLES], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    sound, _, faulty = run.stdout.partition("the two do not train alike")
    assert sound.startswith("the two train alike: ")
    assert "the run is handed over exactly: " in sound
    shown = between("red").splitlines()
    assert ("the two do not train alike" + faulty).splitlines()[: len(shown)] == shown


PLANTS: dict[Callable[[], None], list[tuple[str, str, str]]] = {
    test_the_tests_of_the_page_are_the_examples: [
        (PORT, "stop_at=25)", "stop_at=26)"),
    ],
    test_the_limits_of_the_page_are_those_of_the_code: [
        (PORT, "ten times its own noise", "twelve times its own noise"),
    ],
    test_every_component_of_the_page_has_its_advice: [
        (PORT, "| `data.batch` |", "| `batch.data` |"),
    ],
}
"""What the page might say instead: by the test that must notice, the page, its words and others."""


@pytest.mark.parametrize(("claim", "plant"), [(claim, plant) for claim, some in PLANTS.items() for plant in some])
def test_a_page_that_says_something_else_is_noticed(
    claim: Callable[[], None], plant: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_failure(claim, *plant, monkeypatch)

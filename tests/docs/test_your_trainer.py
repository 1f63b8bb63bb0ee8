"""The pages on a trainer of one's own and on CI, compared with the code; their examples run."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.checks.resume import SCENARIOS
from parity.checks.scenarios import QUICK
from parity.results import EXIT_CODES
from tests.docs import pages
from tests.docs.pages import ROOT, expect_failure, table
from tests.faults.live.page import PAGE, render

TRAINER, CI = "docs/your-trainer.md", "docs/ci.md"
EXAMPLES = ROOT / "docs" / "examples"


def between(page: str, name: str) -> str:
    """Return what stands between two comments of a page, without the fence."""
    text = pages.read(page).split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]
    return "\n".join(line for line in text.strip().splitlines() if not line.startswith("```"))


def test_the_scenarios_of_the_page_are_those_of_the_check() -> None:
    shown = {cells[0].strip("`"): cells[1] for cells in table(TRAINER, "scenario", "what happens in it").rows}
    assert shown == dict(SCENARIOS)
    assert '`scenarios="quick"` takes `kill`, `again`, `third` and `intervals`' in pages.read(TRAINER)
    assert QUICK == ("kill", "again", "third", "intervals")


def test_the_verdicts_of_the_page_are_those_of_records() -> None:
    shown = {cells[0].strip("`") for cells in table(TRAINER, "verdict", "meaning").rows}
    assert shown == {"holds", "broken", "inconclusive"}
    assert shown <= set(EXIT_CODES)


def test_the_tests_of_the_page_are_the_examples_that_run() -> None:
    for name in ("torch", "nnx"):
        shown, kept = (ast.parse(text) for text in (between(CI, name), (EXAMPLES / f"test_{name}.py").read_text()))
        wanted = [ast.unparse(node) for node in kept.body if not isinstance(node, ast.Expr)]
        assert sorted(ast.unparse(node) for node in shown.body) == sorted(wanted)
        assert len(between(CI, name).splitlines()) <= 10


@pytest.mark.parametrize("name", ["torch", "nnx"])
def test_one_line_is_added_to_a_loop(name: str) -> None:
    lines = (EXAMPLES / f"loop_{name}.py").read_text().splitlines()
    assert [line.strip() for line in lines if "the line that was added" in line] == [
        "yield step  # the line that was added: the number of completed steps"
    ]
    assert not [line for line in lines if "parity" in line]


@pytest.mark.takes_seconds
@pytest.mark.parametrize("name", ["torch", "nnx"])
def test_the_examples_hold_and_an_optimizer_that_is_not_loaded_is_named(name: str, tmp_path: Path) -> None:
    source = (EXAMPLES / f"loop_{name}.py").read_text()
    lost = {
        "torch": ('        optimizer.load_state_dict(state["optimizer"])\n', ""),
        "nnx": ("nnx.update((model, optimizer), state)", "nnx.update(model, state[0])"),
    }[name]
    assert lost[0] in source
    for file, text in (("sound.py", source), ("faulty.py", source.replace(*lost))):
        (tmp_path / file).write_text(text)
    program = (
        "import sys, parity; sys.path.insert(0, sys.argv[1]); import sound, faulty\n"
        "for module in (sound, faulty):\n"
        "    print(parity.resumes(module.train, steps=60, stop_at=35, mode='inline', scenarios='kill').text())\n"
    )
    run = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    sound, _, faulty = run.stdout.partition("resume is broken")
    assert sound.startswith("resumes exactly: train: 60 steps, killed at 35, inline")
    first = "optimizer.step" if name == "torch" else "schedule.step, optimizer.step"  # Optax has its schedule inside
    assert f"lost: {first}, optimizer.first_moment" in faulty
    if name == "torch":
        shown = between(TRAINER, "red").splitlines()
        got = ("resume is broken" + faulty).splitlines()
        assert got[: len(shown)] == shown


@functools.cache
def help_of_pytest() -> str:
    command = [sys.executable, "-m", "pytest", "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.mark.takes_seconds
def test_the_options_of_the_plugin_are_those_of_the_page() -> None:
    shown_by_pytest = help_of_pytest()
    options = set(re.findall(r"--parity-\w+", shown_by_pytest))
    shown = table(CI, "option", "ini")
    assert {cells[0].strip("`") for cells in shown.rows} == options
    for cells in shown.rows:
        assert not cells[1] or cells[1].strip("`") in shown_by_pytest


def test_the_page_of_bugs_is_the_one_of_the_catalogue() -> None:
    assert pages.read(str(PAGE.relative_to(ROOT))) == render()


def test_the_kinds_of_the_page_are_seen() -> None:
    """What the table promises is tested kind by kind; here, that it names no kind without a test."""
    tested = "".join(
        path.read_text()
        for path in (
            ROOT / "tests/live/test_capture.py",
            ROOT / "tests/torch_side/test_adapters.py",
            ROOT / "tests/live/test_jax_adapters.py",
            ROOT / "tests/live/test_orders_of_keys.py",
        )
    ).lower()
    for cells in table(TRAINER, "kind", "what of it").rows:
        words = {"pytorch modules": "parameters_buffers", "jax": "optax", "data": "loader", "python": "dataclass",
                 "settings": "deterministic", "ties": "ties", "orders": "popitem", "random numbers": "streams",
                 "pytorch optimizers": "hyperparameter", "schedulers, gradscaler": "growth_tracker"}  # fmt: skip
        assert words.get(cells[0].lower(), "no such kind") in tested


PLANTS: dict[Callable[[], None], list[tuple[str, str, str]]] = {
    test_the_scenarios_of_the_page_are_those_of_the_check: [
        (TRAINER, "| `again` |", "| `once more` |"),
    ],
    test_the_verdicts_of_the_page_are_those_of_records: [
        (TRAINER, "| `inconclusive` |", "| `unknown` |"),
    ],
    test_the_kinds_of_the_page_are_seen: [
        (TRAINER, "| ties |", "| knots |"),
    ],
    test_the_tests_of_the_page_are_the_examples_that_run: [
        (CI, "stop_at=35)\n```\n<!-- nnx:end", "stop_at=36)\n```\n<!-- nnx:end"),
    ],
    test_the_options_of_the_plugin_are_those_of_the_page: [
        (CI, "| `--parity-repro` |", "| `--parity-bundle` |"),
    ],
    test_the_page_of_bugs_is_the_one_of_the_catalogue: [
        ("docs/resume-bugs.md", "110 defects", "111 defects"),
    ],
}
"""What a page might say instead: by the test that must notice, the page, its words and others."""


@pytest.mark.parametrize(("test", "plant"), [(test, plant) for test, plants in PLANTS.items() for plant in plants])
def test_a_page_that_says_something_else_is_noticed(
    test: Callable[[], None], plant: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_failure(test, *plant, monkeypatch)

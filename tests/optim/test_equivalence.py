"""docs/optimizers.md is what its generator makes of the figures, which are measured again for some rows."""

import json

import pytest

from benchmarks.equivalence import EXACT_STEPS, FIGURES, NARROW, OBVIOUS, PAGE, measure
from parity.cli import main
from parity.report import equivalence_page
from parity.state import OPTIMIZERS


def test_the_page_is_the_one_of_the_figures():
    measured = json.loads(FIGURES.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == equivalence_page(measured)
    assert measured["rows"].keys() == OBVIOUS.keys() == {n for n, kind in OPTIMIZERS.items() if kind.in_torch}
    assert all(row["exact"] <= 1e-12 for row in measured["rows"].values())
    assert all(row["judged"] >= EXACT_STEPS for row in measured["rows"].values())
    for name, row in measured["rows"].items():
        for dtype in NARROW:
            assert name == "Muon" or row["narrow"][dtype]["exact"] <= row["narrow"][dtype]["floor"]


@pytest.mark.parametrize("name", ["NAdam", "Adamax"])
def test_a_figure_is_measured_again(name):
    """One translation that changes training and one that does not."""
    kept, now = json.loads(FIGURES.read_text(encoding="utf-8"))["rows"][name], measure(name, 200)
    assert (now["first"] is None) == (kept["first"] is None or kept["first"] >= 200)
    assert now["after_200"] == pytest.approx(kept["after_200"], rel=1e-3, abs=1e-12)


def test_the_command_prints_the_row_and_the_code(capsys):
    assert main(["optim", "nadam", "lr=0.01", "betas=(0.8,0.9)"]) == 0
    out = capsys.readouterr().out
    assert "jax_side.optim.nadam(lr=0.01, betas=(0.8, 0.9))" in out
    assert "mu_product: momentum_product" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["NAdam", "rate=1"], "unknown argument of NAdam 'rate'; known: betas"),
        (["NAdam", "lr=-1"], "NAdam.lr: must be a finite number of at least 0, got -1"),
        (["LBFGS"], "LBFGS: has no counterpart in JAX"),
        (["NAdam", "0.1"], "0.1: expected ARGUMENT=VALUE"),
        (["Lion"], "Lion: has no row"),
    ],
)
def test_the_command_refuses_in_one_line(arguments, message, capsys):
    assert main(["optim", *arguments]) == 2
    assert message in capsys.readouterr().err

"""Modules of equinox in `parity map`, `where` and `port`: right ones hold, and what is planted parts at its stage."""

import subprocess
import sys
from functools import partial

import pytest

import parity
from parity.cli.main import main
from parity.errors import SpecError
from tests.ports import loops

pytest.importorskip("equinox")
from tests.ports import eqx_loops

EQUINOX = {name: getattr(eqx_loops, name) for name in ("Model", "inputs", "batch", "loss", "start", "step")}


def prove(steps=6, **change):
    return parity.prove_port(torch=loops.TORCH, jax=EQUINOX | change, steps=steps, until="steps")


def test_a_port_to_equinox_is_mapped_and_holds(capsys):
    names = ["--torch", "tests.ports.loops:TorchModel", "--jax", "tests.ports.eqx_loops:Model", "--inputs", "f[8,6]"]
    assert main(["map", *names]) == 0
    assert "6 of 6 rows sure" in capsys.readouterr().out
    found = prove(Model=partial(eqx_loops.Model, drop=0.0))
    assert found.verdict == "holds", found.text()
    assert "2 slots" in found.text()


def test_a_dropout_of_equinox_is_off_and_never_said_to_be_equal():
    """Its calls lie inside of `vmap` and are not seen, so that its place is left open where the other drops."""
    found = prove(Model=partial(eqx_loops.Model, drop=0.3))
    assert found.verdict == "inconclusive"
    assert "drops at 1 modules of equinox (rates 0.3)" in found.text()


@pytest.mark.parametrize(
    ("stage", "change"),
    [("forward", {"Model": partial(eqx_loops.Model, 1e-6)}), ("update", {"step": eqx_loops.step_of_all})],
)
def test_what_is_planted_parts_at_its_stage(stage, change):
    found = prove(**change)
    assert (found.verdict, found.parted.name) == ("broken", stage), found.text()


def test_where_says_that_calls_of_equinox_are_not_seen():
    found = parity.find_parting(
        torch=loops.TorchModel, jax=partial(eqx_loops.Model, 1e-6), inputs=["f[8,6]"]
    )  # fmt: skip
    assert found.verdict == "inconclusive"
    assert "shows no module that could be compared" in found.text()


def test_a_model_with_its_state_is_refused():
    with pytest.raises(SpecError, match="running statistics of equinox are not looked at"):
        parity.map_models(torch=loops.TorchModel, jax=eqx_loops.with_state, inputs=["f[8,6]"])


@pytest.mark.soak
def test_equinox_is_not_imported_for_a_model_of_another_kind():
    code = (
        "import sys, parity; from tests.ports import loops;"
        "assert parity.map_models(torch=loops.TorchModel, jax=loops.NnxModel, inputs=['f[8,6]']).verdict == 'holds';"
        "assert 'equinox' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)

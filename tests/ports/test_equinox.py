"""Modules of equinox in `parity map`, `where` and `port`: right ones hold, and what is planted parts at its stage."""

import subprocess
import sys
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.checks.models import ModelSource, open_subjects
from parity.cli.main import main
from tests.ports import loops

pytest.importorskip("equinox")
from tests.ports import eqx_loops

eqx = eqx_loops.eqx

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


class Thinned(loops.TorchModel):
    def __init__(self, rate=0.3, late=False):
        super().__init__()
        self.drop, self.late = nn.Dropout(rate), late

    def forward(self, x):
        h = self.norm(self.first(x))
        return self.last(torch.tanh(self.drop(h)) if self.late else self.drop(torch.tanh(h)))


def test_a_dropout_of_equinox_is_compared_by_what_goes_through_it():
    """Its calls lie inside of `vmap`, and have the whole batch all the same."""
    found = prove(Model=partial(eqx_loops.Model, drop=0.3))
    assert found.verdict == "inconclusive"
    assert "drops at drop (rate 0.3), and no module of" in found.text()
    for torch_model, said in (
        (Thinned, "1 places and rates agree"),
        (partial(Thinned, 0.2), "dropout at one place: drop (rate 0.2)"),
        (partial(Thinned, late=True), "dropout at another place"),
    ):
        found = parity.prove_port(
            torch=loops.TORCH | {"Model": torch_model}, jax=EQUINOX | {"Model": partial(eqx_loops.Model, drop=0.3)},
            steps=2, until="forward",
        )  # fmt: skip
        assert said in found.text()
        assert found.verdict == ("holds" if "agree" in said else "broken")


class Apart(eqx_loops.Model):
    """Its layers are called by `filter_vmap`, which makes them anew."""

    def __call__(self, x, key=None):
        rows = eqx.filter_vmap(self.norm)(eqx.filter_vmap(self.first)(x))
        return eqx.filter_vmap(self.last)(eqx.filter_vmap(self.drop)(jnp.tanh(rows)))


def test_what_cannot_be_seen_is_never_said_to_be_equal():
    found = parity.prove_port(
        torch=loops.TORCH | {"Model": Thinned}, jax=EQUINOX | {"Model": partial(Apart, drop=0.3)},
        steps=2, until="forward",
    )  # fmt: skip
    assert found.verdict == "inconclusive"
    assert "drops at 1 modules of equinox (rates 0.3), whose calls are not seen" in found.text()


@pytest.mark.parametrize(
    ("stage", "change"),
    [("forward", {"Model": partial(eqx_loops.Model, 1e-6)}), ("update", {"step": eqx_loops.step_of_all})],
)
def test_what_is_planted_parts_at_its_stage(stage, change):
    found = prove(**change)
    assert (found.verdict, found.parted.name) == ("broken", stage), found.text()


def test_where_names_the_module_of_equinox_that_parts():
    found = parity.find_parting(
        torch=loops.TorchModel, jax=partial(eqx_loops.Model, 1e-6), inputs=["f[8,6]"]
    )  # fmt: skip
    assert found.verdict == "broken"
    assert "at the output of norm (LayerNorm) and norm (LayerNorm)" in found.text()
    assert "LayerNorm: eps 1e-05 here, eps 1e-06 there" in found.text()
    right = parity.find_parting(torch=loops.TorchModel, jax=eqx_loops.Model, inputs=["f[8,6]"])
    assert right.verdict == "holds"
    assert "4 calls of modules compared" in right.text()


def test_the_gradients_of_calls_in_a_vmap_are_those_of_pytorch():
    subjects = open_subjects(
        ModelSource("--torch", "torch", loops.TorchModel), ModelSource("--jax", "jax", eqx_loops.Model), ["f[8,6]"]
    )
    values = {name: value + 0.1 for name, value in subjects.first.leaves.items()}
    weigh = lambda at, shape: np.arange(np.prod(shape)).reshape(shape) / 10  # noqa: E731
    one, two = (
        model.evaluate(values, inputs, weigh, calls=True)
        for model, inputs in ((subjects.first, subjects.inputs.first), (subjects.second, subjects.inputs.second))
    )
    a, b = ({call.path: call for call in found.calls} for found in (one, two))
    for path in ("first", "norm", "last", ""):
        assert a[path].outputs[0].shape == b[path].outputs[0].shape
        assert np.allclose(a[path].gradients[0], b[path].gradients[0], rtol=1e-11, atol=1e-13)
        assert np.allclose(a[path].inputs[0], b[path].inputs[0], rtol=1e-11, atol=1e-13)


@pytest.mark.soak
def test_equinox_is_not_imported_for_a_model_of_another_kind():
    code = (
        "import sys, parity; from tests.ports import loops;"
        "assert parity.map_models(torch=loops.TorchModel, jax=loops.NnxModel, inputs=['f[8,6]']).verdict == 'holds';"
        "assert 'equinox' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)

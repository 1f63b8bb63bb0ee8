"""`parity port --precision`: judged inside a measured envelope; what float64 shows and it hides is never equal."""

import json
from functools import partial

import pytest
import torch

import parity
from parity.cli.main import main
from parity.errors import SpecError, UnknownNameError
from tests.ports import loops
from tests.ports import test_port as pairs


def prove(change, precision, *, steps=6, first=pairs.FIRST, until="steps"):
    return parity.prove_port(torch=[first, {**first, **change}], steps=steps, until=until, precision=precision)


def sgd(model, **settings):
    return {"net": model, "opt": torch.optim.SGD(model.parameters(), lr=0.1), "sched": Still()}


class Still:
    def step(self):
        pass


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.soak)])
def test_a_right_port_to_jax_holds_in_a_narrower_type(precision):
    jax = loops.NNX if precision == "float32" else loops.OPTAX
    found = parity.prove_port(torch=loops.TORCH, jax=jax, steps=8, until="steps", precision=precision)
    assert found.verdict == "holds", found.text()
    assert f"the port holds, as far as steps, in {precision}" in found.text()
    assert "8 updates: losses within" in found.narrow.said
    assert found.as_json()["narrow"]["verdict"] == "holds"


def test_float16_is_judged_where_its_numbers_stay_finite():
    plain = pairs.FIRST | {"start": sgd}
    assert prove({}, "float16", first=plain).verdict == "holds"
    found = prove({}, "float16")  # Adam's epsilon of 1e-8 is 0 in float16
    assert (found.verdict, found.narrow.verdict) == ("inconclusive", "inconclusive")
    assert "values are not finite after update 1 in float16" in found.text()


HIDDEN = {
    "epsilon": ("forward", {"Model": partial(pairs.Refactored, 1e-6)}),
    "smoothing": ("loss", {"loss": partial(pairs.masked_mean, smoothing=1e-4)}),
    "decay": ("update", {"start": partial(pairs.start, decay_all=True)}),
    "clip epsilon": ("update", {"step": partial(pairs.step, epsilon=0.0)}),
}


@pytest.mark.parametrize("fault", HIDDEN)
def test_what_float64_shows_and_the_envelope_hides_is_said_to_be_hidden(fault):
    stage, change = HIDDEN[fault]
    assert prove(change, "float64").verdict == "broken"
    found = prove(change, "bfloat16")
    assert found.verdict == "inconclusive", found.text()
    text = found.text()
    assert f"inconclusive at this precision: what parts at {stage} in float64 is hidden by the envelope" in text
    assert "equal" not in found.narrow.said
    assert "the port holds" not in text


SHOWN = {
    "rate": ("update", {"start": partial(pairs.start, late=-9)}),
    "detached": ("gradients", {"loss": partial(pairs.masked_mean, detached=True)}),
    "mode": ("loss", {"loss": partial(pairs.masked_mean, mode="eval")}),
}


@pytest.mark.parametrize(
    ("fault", "precision"),
    [("rate", "float32"), ("mode", "float32"), ("mode", "bfloat16"), ("detached", "bfloat16")],
)
def test_a_fault_beyond_the_envelope_is_broken_at_that_precision_too(fault, precision):
    stage, change = SHOWN[fault]
    found = prove(change, precision)
    assert (found.verdict, found.parted.name) == ("broken", stage), found.text()
    assert found.narrow.verdict == "broken"
    assert found.narrow.multiple > 3


def test_what_the_loss_does_not_see_is_not_hidden_by_a_type():
    class Two(pairs.Refactored):
        def __init__(self, scale=1.0):
            super().__init__()
            self.scale = scale

        def forward(self, x):
            made = super().forward(x)
            return made, made * self.scale

    def first_output(model, batch):
        return pairs.masked_mean(lambda x: model(x)[0], batch)

    first = pairs.FIRST | {"Model": Two, "loss": first_output, "step": partial(pairs.step, loss=first_output)}
    found = prove({"Model": partial(Two, 1.001)}, "bfloat16", first=first)
    assert (found.verdict, found.parted.name) == ("broken", "forward"), found.text()
    assert "neither loss nor updates show what parts at forward" in found.text()


def drifting(state, batch):
    """Train as the trainer does in float64, and otherwise in any other type."""
    state, value = pairs.step(state, batch)
    with torch.no_grad():
        for one in state["net"].parameters():
            if one.dtype != torch.float64:
                one.mul_(1.05)
    return state, value


def test_what_parts_in_the_narrower_type_alone_is_broken_and_equal_in_float64():
    assert prove({"step": drifting}, "float64").verdict == "holds"
    found = prove({"step": drifting}, "float32")
    assert (found.verdict, found.parted.name) == ("broken", "in float32")
    assert found.cause == "equal in float64: what parts is what each computes in float32"


def test_a_precision_that_cannot_be_used_is_refused(capsys):
    with pytest.raises(UnknownNameError, match="unknown precision 'float8'"):
        prove({}, "float8")
    with pytest.raises(SpecError, match="judged by updates"):
        prove({}, "float32", until="loss")
    names = ["--torch", "tests.ports.port_torch", "--torch", "tests.ports.port_torch"]
    assert main(["port", *names, "--precision", "bfloat16", "--until", "loss"]) == 2
    assert "judged by updates" in capsys.readouterr().err
    assert main(["port", *names, "--precision", "bfloat16", "--until", "update", "--steps", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["precision"] == "bfloat16"


def test_a_trainer_that_casts_by_itself_cannot_be_trained_in_the_type():
    def casts(model, batch):
        return (
            pairs.masked_mean(model, {**batch, "x": batch["x"]}) + model.inward(torch.zeros(1, 6).double()).sum() * 0
        )

    found = prove({"step": partial(pairs.step, loss=casts)}, "float32")
    assert (found.verdict, found.narrow.verdict) == ("inconclusive", "inconclusive")
    assert "cannot be trained in float32" in found.text()

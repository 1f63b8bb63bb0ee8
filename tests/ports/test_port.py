"""`parity port` and `parity.prove_port`: a port is proven by stages, and each finds what is planted there."""

import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.checks.proving import STAGES
from parity.checks.proving.effective import taken_of
from parity.checks.proving.initial import _unlike
from parity.cli.main import main
from parity.errors import SpecError, UnknownNameError
from tests.ports import port_torch

STEPS = 5
functional = nn.functional


class Refactored(nn.Module):
    """The same model under other names, its norms written out where a fault lies in them."""

    def __init__(self, epsilon=1e-5, momentum=0.1, spread=0.3):
        super().__init__()
        self.inward = nn.Linear(port_torch.FEATURES, port_torch.WIDTH)
        self.layer, self.batch = (
            nn.LayerNorm(port_torch.WIDTH, epsilon),
            nn.BatchNorm1d(port_torch.WIDTH, momentum=momentum),
        )
        self.outward = nn.Linear(port_torch.WIDTH, port_torch.CLASSES)
        for one in (self.inward, self.outward):
            nn.init.normal_(one.weight, std=spread)
            nn.init.zeros_(one.bias)

    def forward(self, x):
        return self.outward(self.batch(functional.gelu(self.layer(self.inward(x)))))


class Biased(nn.BatchNorm1d):
    """A batch norm that keeps the biased variance, as Flax's does."""

    def forward(self, x):
        before = self.running_var.clone()
        made = super().forward(x)
        if self.training:
            self.running_var = 0.9 * before + 0.1 * x.detach().var(0, unbiased=False)
        return made


def with_biased_norm():
    model = Refactored()
    model.batch = Biased(port_torch.WIDTH)
    return model


def masked_mean(model, batch, *, smoothing=0.0, over_all=False, detached=False, mode=""):
    if mode:
        model.eval()
    x = torch.from_numpy(batch["x"])
    logits = model(x)
    if detached:
        logits = logits - model.outward.bias + model.outward.bias.detach()
    mask = torch.from_numpy(batch["mask"])
    y = torch.from_numpy(batch["y"])
    each = functional.cross_entropy(logits, y, reduction="none", label_smoothing=smoothing)
    return (each * mask).sum() / (mask.numel() if over_all else mask.sum())


def start(model, *, decay_all=False, betas=(0.9, 0.999), eps=1e-8, late=0, horizon=port_torch.HORIZON, ema=True,
          narrow=False):  # fmt: skip
    rest = [one for one in model.parameters() if one.ndim == 1]
    decayed = [one for one in model.parameters() if one.ndim > 1]
    groups = [{"params": decayed, "weight_decay": port_torch.DECAY},
              {"params": rest, "weight_decay": port_torch.DECAY if decay_all else 0.0}]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, lr=port_torch.RATE, betas=betas, eps=eps)

    def rate(step):
        step = max(step - late, 0)
        return (step + 1) / 5 if step < 3 else 0.6 if horizon == port_torch.HORIZON else 0.5

    state = {"net": model, "opt": optimizer, "sched": torch.optim.lr_scheduler.LambdaLR(optimizer, rate)}
    if ema:
        state["ema"] = {name: one.detach().clone() for name, one in model.named_parameters()}
    return state


def step(
    state,
    batch,
    *,
    loss=masked_mean,
    epsilon=1e-6,
    clip=True,
    divide=1,
    average=0.99,
    before=False,
    narrow=False,
    frozen="",
):
    model, optimizer = state["net"], state["opt"]
    optimizer.zero_grad()
    value = loss(model, batch)
    (value / divide).backward()
    if clip:
        norm = torch.sqrt(sum((one.grad**2).sum() for one in model.parameters()))
        for one in model.parameters():
            one.grad.mul_(torch.clamp(port_torch.CLIP / (norm + epsilon), max=1.0))
    if frozen:
        model.get_parameter(frozen).grad = None
    old = {name: one.detach().clone() for name, one in model.named_parameters()}
    optimizer.step()
    state["sched"].step()
    with torch.no_grad():
        if narrow:
            for one in model.parameters():
                one.copy_(one.to(torch.bfloat16))
        for name, one in model.named_parameters():
            if "ema" in state:
                state["ema"][name].mul_(average).add_(old[name] if before else one, alpha=1 - average)
    return state, value.item()


def other_batch(number, *, how=""):
    made = port_torch.batch(number + (how == "order" and number > 1))
    if how == "rows":
        return {name: one[::-1].copy() for name, one in made.items()}
    if how == "scale":
        return made | {"x": made["x"] * 2}
    return made


FIRST = {"Model": Refactored, "inputs": port_torch.inputs, "batch": port_torch.batch, "loss": masked_mean,
         "start": start, "step": step}  # fmt: skip


def port(**change):
    return FIRST | change


def prove(second, first=FIRST, **settings):
    return parity.prove_port(torch=[first, second], **{"steps": STEPS, "until": "initial values", **settings})


FAULTS = {
    "batch order": ("batches", "batch order: the port reads at step 2", {"batch": partial(other_batch, how="order")}),
    "rows": ("batches", "its rows in another order", {"batch": partial(other_batch, how="rows")}),
    "scale": ("batches", "scale of x: the port reads 2 times", {"batch": partial(other_batch, how="scale")}),
    "epsilon": ("forward", "LayerNorm: eps 1e-05 here, eps 1e-06 there", {"Model": partial(Refactored, 1e-6)}),
    "smoothing": ("loss", "with label smoothing 0.1 there", {"loss": partial(masked_mean, smoothing=0.1)}),
    "padded": ("loss", "those left out too, of the cross entropy where mask is set there",
               {"loss": partial(masked_mean, over_all=True)}),
    "mode": ("loss", "the port takes the loss in evaluation mode", {"loss": partial(masked_mean, mode="eval")}),
    "detached": ("gradients", "gradient stopped: in the port none reaches outward.bias",
                 {"loss": partial(masked_mean, detached=True)}),
    "decay": ("update", "weight decay: on other leaves", {"start": partial(start, decay_all=True)}),
    "beta1": ("update", "beta1", {"start": partial(start, betas=(0.8, 0.999))}),
    "beta2": ("update", "beta2", {"start": partial(start, betas=(0.9, 0.95))}),
    "Adam's epsilon": ("update", "epsilon of the optimizer: the port's is 100 times",
                       {"start": partial(start, eps=1e-6)}),
    "clip epsilon": ("update", "clip epsilon: 1e-6 is added to the norm of the gradients here, not there",
                     {"step": partial(step, epsilon=0.0)}),
    "no clip": ("update", "clipping: the trainer clips the norm of the gradients",
                {"step": partial(step, clip=False)}),
    "accumulation": ("update", "accumulation: before both clip, the gradients of the port are 1/2 times",
                     {"step": partial(step, divide=2)}),
    "frozen": ("update", "frozen: the port does not move outward.weight, the trainer does",
               {"step": partial(step, frozen="outward.weight")}),
    "no average": ("update", "EMA absent", {"start": partial(start, ema=False)}),
    "average's decay": ("update", "EMA: decay 0.99 here, 0.9 there", {"step": partial(step, average=0.9)}),
    "average before": ("update", "EMA: taken after the update here, before it there",
                       {"step": partial(step, before=True)}),
    "bfloat16": ("update", "parameters in bfloat16", {"step": partial(step, narrow=True)}),
    "rate late": ("steps", "schedule: off by one step: update 2 of the port uses the rate of the update before",
                  {"start": partial(start, late=1)}),
    "horizon": ("steps", "schedule: the rates part at update 4", {"start": partial(start, horizon=50)}),
    "statistics": ("update", "momentum of running statistics", {"Model": partial(Refactored, momentum=0.01)}),
    "biased": ("update", "biased variance: the port keeps the running variance over n = 8",
               {"Model": with_biased_norm}),
    "initial values": ("initial values", "initial values of another distribution",
                       {"Model": partial(Refactored, spread=0.02)}),
}  # fmt: skip
"""Fault to the stage that must find it, what its cause must say, and the part of the port that has it."""


def test_a_right_port_holds_as_far_as_it_was_looked_at():
    found = parity.prove_port(torch=[port_torch, port_torch], steps=STEPS, until="initial values")
    assert found.verdict == "holds", found.text()
    assert [one.name for one in found.stages] == list(STAGES[: STAGES.index("initial values") + 1])
    assert "as far as initial values" in found.text()
    assert found.figures["steps"] < 1e-12
    json.dumps(found.as_json())


@pytest.mark.parametrize("fault", FAULTS)
def test_each_stage_finds_what_is_planted_there_and_names_it(fault):
    stage, said, change = FAULTS[fault]
    found = prove(port(**change))
    assert found.verdict == "broken", found.text()
    assert found.parted.name == stage, found.text()
    assert said in found.cause, found.text()


@pytest.mark.soak
@pytest.mark.parametrize("fault", [f for f in FAULTS if FAULTS[f][0] in ("loss", "gradients", "update")])
def test_the_stage_is_the_same_from_the_other_side(fault):
    stage, _, change = FAULTS[fault]
    found = prove(FIRST, port(**change))
    assert (found.verdict, found.parted.name) == ("broken", stage), found.text()


def test_a_name_that_is_not_exposed_is_never_equal():
    found = prove({word: one for word, one in FIRST.items() if word != "step"}, until="steps")
    assert found.verdict == "inconclusive"
    assert "second) has no step" in found.text()
    assert [one.verdict for one in found.stages if one.name in ("update", "steps")] == ["inconclusive"] * 2


def test_draws_of_a_loss_cannot_be_compared():
    def noisy(model, batch):
        return masked_mean(model, batch) + torch.rand(())

    found = prove(port(loss=noisy), until="loss")
    assert found.verdict == "inconclusive"
    assert "another one when it is asked again" in found.text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"step": partial(step, divide=0.0)}, "values are not finite after update 1"),
        ({"step": lambda state, batch: (state, 1.0)}, "no parameter moved"),
    ],
)
def test_what_trains_nothing_is_never_equal(change, said):
    found = prove(port(**change), port(**change), until="steps")
    assert found.verdict == "inconclusive"
    assert said in found.text()


def test_a_batch_that_is_drawn_anew_cannot_be_compared():
    draws = np.random.default_rng()
    found = prove(port(batch=lambda step: {"x": draws.normal(size=3)}), until="batches")
    assert (found.verdict, found.stages[-1].name) == ("inconclusive", "batches")


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"steps": 1}, SpecError, "at least 2"),
        ({"until": "end"}, UnknownNameError, "unknown stage 'end'"),
        ({"names": {"steps": "step"}}, UnknownNameError, "part of a trainer"),
        ({"names": {"step": "missing"}}, SpecError, "has no 'missing'"),
        ({"second": FIRST | {"step": lambda state, batch: state}}, SpecError, "expected \\(state, loss\\)"),
        ({"second": FIRST | {"loss": lambda model, batch: 1.0}}, SpecError, "expected a scalar tensor"),
        ({"second": FIRST | {"batch": lambda step: [1]}}, SpecError, "expected a dict of NumPy arrays"),
        ({"second": FIRST | {"start": lambda model: 1 / 0}}, SpecError, "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_used_is_refused(settings, error, said):
    with pytest.raises(error, match=said):
        prove(settings.pop("second", FIRST), **settings)


def test_assert_port_raises_with_the_verdict():
    with pytest.raises(parity.PortBrokenError, match="batch order") as caught:
        parity.assert_port(torch=[FIRST, port(batch=partial(other_batch, how="order"))], steps=STEPS)
    assert caught.value.proof.parted.name == "batches"


def test_what_an_optimizer_took_is_read_off_its_slots():
    draws = np.random.default_rng(0)
    gradient = {"w": draws.normal(size=(3, 4)), "b": draws.normal(size=3)}
    params = {"w": draws.normal(size=(3, 4)), "b": draws.normal(size=3)}
    first = {"w": 0.1 * (gradient["w"] + 0.01 * params["w"]), "b": 0.1 * gradient["b"]}
    slots = {"model": params, "m": first, "v": {leaf: 7 * one**2 for leaf, one in first.items()}}
    found = taken_of(slots, "model", gradient, params)
    assert found.slot == "m"
    assert math.isclose(found.gradient["w"], 0.1, rel_tol=1e-9)
    assert math.isclose(found.params["w"], 0.001, rel_tol=1e-9)
    assert found.params["b"] == 0.0
    assert math.isclose(found.square["b"], 7.0, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        (np.zeros(50), np.random.default_rng(0).normal(size=50), "0 everywhere here"),
        (np.zeros(50), np.ones(50), "0 everywhere here, 1 there"),
        (np.random.default_rng(0).normal(size=300), 2 * np.random.default_rng(1).normal(size=300), "spread"),
        (np.random.default_rng(0).normal(size=300), 2 + np.random.default_rng(1).normal(size=300), "mean"),
        (np.random.default_rng(0).normal(size=9000), np.random.default_rng(1).uniform(-1.732, 1.732, 9000),
         "another distribution of one spread"),
    ],
)  # fmt: skip
def test_initial_values_of_another_distribution_are_told(here, there, said):
    assert said in _unlike(here, there)


@pytest.mark.parametrize("seed", range(40))
def test_two_draws_of_one_distribution_are_not_told_apart(seed):
    draws = np.random.default_rng(seed)
    size = int(draws.integers(2, 400))
    assert _unlike(draws.normal(size=size), draws.normal(size=size)) == ""
    assert _unlike(draws.uniform(-1, 1, size), draws.uniform(-1, 1, size)) == ""


def command(*more):
    names = ["--torch", "tests.ports.port_torch", "--torch", "tests.ports.port_torch"]
    return main(["port", *names, *more])


def test_the_command_says_the_verdict(capsys):
    assert command("--until", "loss", "--steps", "3", "--json") == 0
    assert json.loads(capsys.readouterr().out)["until"] == "loss"
    assert command("--until", "batches", "--batch", "missing") == 2
    assert "has no 'missing'" in capsys.readouterr().err


@pytest.mark.soak
def test_a_port_to_nnx_holds_with_its_casts_left_out():
    from tests.ports import port_jax

    found = parity.prove_port(torch=port_torch, jax=port_jax, steps=12, until="initial values")
    assert found.verdict == "holds", found.text()
    assert any("cast to a narrower type" in note for note in found.notes)

"""A part that PyTorch freezes and JAX stops on the way is one in both; what is stopped beside it is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity import map_models
from parity.checks.proving import prove_port
from torch_side.probes.islands import Islands

INPUTS = (np.random.default_rng(3).normal(size=(5, 3)),)


class Distilled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher, self.student = torch.nn.Linear(3, 4), torch.nn.Linear(3, 2)
        self.teacher.requires_grad_(False)

    def forward(self, x):
        return torch.tanh(self.teacher(x)), torch.tanh(self.student(x))


def port(stop_teacher, stop_student):
    def layer(p, x, stop):
        y = jnp.tanh(x @ p["kernel"] + p["bias"])
        return jax.lax.stop_gradient(y) if stop else y

    def apply(params, x):
        return layer(params["teacher"], x, stop_teacher), layer(params["student"], x, stop_student)

    draws = np.random.default_rng(0)
    params = {
        name: {"kernel": jnp.asarray(draws.normal(size=(3, n))), "bias": jnp.asarray(draws.normal(size=n))}
        for name, n in (("teacher", 4), ("student", 2))
    }
    return lambda: (params, apply)


@pytest.mark.parametrize(
    ("stops", "verdict"),
    [((True, False), "holds"), ((False, False), "holds"), ((True, True), "broken"), ((False, True), "broken")],
)
def test_a_frozen_teacher_is_stopped_or_left_to_the_optimizer(stops, verdict):
    assert map_models(torch=Distilled, jax=port(*stops), inputs=INPUTS).verdict == verdict


def test_outputs_follow_a_frozen_part_before_a_norm():
    """One number more at all channels is taken away by the norm: they are moved each by its own."""

    class Normed(Distilled):
        def forward(self, x):
            return torch.nn.functional.layer_norm(self.teacher(x), (4,)), torch.tanh(self.student(x))

    def apply(params, x):
        y = x @ params["teacher"]["kernel"] + params["teacher"]["bias"]
        y = (y - y.mean(-1, keepdims=True)) / jnp.sqrt(y.var(-1, keepdims=True) + 1e-5)
        return jax.lax.stop_gradient(y), port(True, False)()[1](params, x)[1]

    found = map_models(torch=Normed, jax=lambda: (port(True, False)()[0], apply), inputs=INPUTS)
    assert found.proof.verdict == "holds", found.text()


def distilling(stops):
    """Return a trainer whose loss has a frozen teacher, and a port whose loss stops it, or trains it."""

    def batch(step):
        return {"x": np.random.default_rng(step).normal(size=(5, 3)).astype(np.float32)}

    class Model(Distilled):
        def forward(self, x):
            teacher, student = super().forward(x)
            return teacher[:, :2] + teacher[:, 2:], student

    def apply(params, x):
        teacher, student = port(False, False)()[1](params, x)
        return teacher[:, :2] + teacher[:, 2:], student

    def loss(model, b):
        teacher, student = model(torch.as_tensor(b["x"]))
        return ((teacher - student) ** 2).mean()

    def step(state, b):
        value = loss(state["model"], b)
        state["optimizer"].zero_grad()
        value.backward()
        state["optimizer"].step()
        return state, value.detach()

    def start(model):
        return {"model": model, "optimizer": torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)}

    def jax_loss(model, b):
        teacher, student = apply(model[0], b["x"])
        return (((jax.lax.stop_gradient(teacher) if stops else teacher) - student) ** 2).mean()

    def jax_step(state, b):
        value, grads = jax.value_and_grad(lambda p: jax_loss((p, apply), b))(state["params"])
        return {"params": jax.tree.map(lambda p, g: p - 0.1 * g, state["params"], grads)}, value

    first = {"Model": Model, "batch": batch, "loss": loss, "start": start, "step": step}
    second = {"Model": lambda: (port(False, False)()[0], apply), "batch": batch, "loss": jax_loss, "step": jax_step}
    return first, {**second, "start": lambda model: {"params": model[0]}}


@pytest.mark.parametrize(("stops", "verdict"), [(True, "holds"), (False, "broken")])
def test_a_teacher_that_the_loss_stops_is_frozen_and_one_that_is_trained_parts_at_the_update(stops, verdict):
    first, second = distilling(stops)
    found = prove_port(torch=first, jax=second, inputs="f[5,3]", steps=3, until="steps")
    assert found.verdict == verdict, found.text()
    if verdict == "broken":
        assert "part at update" in found.text()


@pytest.mark.parametrize("act", [torch.nn.functional.hardsigmoid, torch.nn.Hardsigmoid(inplace=True)])
def test_the_slope_of_a_hard_sigmoid_is_that_of_float64(act):
    x = torch.linspace(-4.0, 4.0, 41, dtype=torch.float64, requires_grad=True)

    def slope(lift):
        with Islands(lift=lift) as islands:
            (grad,) = torch.autograd.grad(act(x * 1.0).sum(), x)
        return float(grad.max()), islands.found

    lifted, found = slope(True)
    assert abs(lifted - 1 / 6) < 1e-16
    assert [one.lifted for one in found] == [True]
    assert slope(False)[1] == ()

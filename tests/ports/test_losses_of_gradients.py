"""Losses that take gradients of the model themselves, as those of physics-informed networks do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.checks.proving import prove_port


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.last = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.hidden(x)))


def trainer():
    def loss(model, batch):
        x = torch.as_tensor(batch["inside"]).requires_grad_()
        slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
        begin = model(torch.as_tensor(batch["start"])).pow(2).mean()
        return (slope[:, 1] - 0.3 * slope[:, 0]).pow(2).mean() + 10 * begin

    def batch(step):
        draws = np.random.default_rng([5, step])
        return {"inside": draws.normal(size=(6, 2)), "start": draws.normal(size=(4, 2))}

    return {"Model": Net, "loss": loss, "batch": batch}


def port(weight=10.0, sign=-1.0):
    def apply(p, x):
        return jnp.tanh(x @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"]

    def loss(model, batch):
        params, function = model
        slope = jax.vmap(jax.grad(lambda x: function(params, x[None])[0, 0]))(batch["inside"])
        begin = (function(params, batch["start"]) ** 2).mean()
        return ((slope[:, 1] + sign * 0.3 * slope[:, 0]) ** 2).mean() + weight * begin

    shapes = {"w0": (2, 3), "b0": (3,), "w1": (3, 1), "b1": (1,)}
    draws = np.random.default_rng(1)
    params = {name: jnp.asarray(draws.normal(size=shape)) for name, shape in shapes.items()}
    return {"Model": lambda: (params, apply), "loss": loss, "batch": trainer()["batch"]}


@pytest.mark.parametrize(("changed", "said"), [({}, ""), ({"weight": 4.0}, "10 here"), ({"sign": 1.0}, "a - b here")])
def test_the_place_in_such_a_loss_is_named_and_a_right_one_holds(changed, said):
    found = prove_port(torch=trainer(), jax=port(**changed), inputs="f[5,2]", steps=3, until="loss")
    assert found.verdict == ("broken" if changed else "holds"), found.text()
    assert said in found.text()
    if changed:
        assert "with that changed all values are equal" in found.text()

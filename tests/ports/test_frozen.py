"""A part that PyTorch freezes and JAX stops on the way is one in both; what is stopped beside it is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity import map_models

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

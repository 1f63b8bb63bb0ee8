"""Modules of equinox that take one example, as most do, where the trainer's own takes the whole batch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import parity
from parity.checks.models import ModelSource, open_subjects
from parity.errors import SpecError
from tests.ports import loops

pytest.importorskip("equinox")
from tests.ports import eqx_loops

eqx = eqx_loops.eqx


class OfOne(eqx_loops.Model):
    def __call__(self, x, key=None):
        return self.last(self.drop(self.act(self.norm(self.first(x))), key=key))


def loss_over(axes):
    def loss(model, batch):
        call = model
        for _ in range(axes):
            call = jax.vmap(call)
        outputs = call(jnp.asarray(batch["x"]))
        return optax.softmax_cross_entropy_with_integer_labels(outputs, jnp.asarray(batch["y"])).mean()

    return loss


def trainer(axes, **change):
    loss = loss_over(axes)

    def step(state, batch):
        value, grads = eqx.filter_value_and_grad(loss)(state["model"], batch)
        params = eqx.filter(state["model"], eqx.is_inexact_array)
        updates, opt_state = eqx_loops.TX.update(grads, state["opt_state"], params)
        return {"model": eqx.apply_updates(state["model"], updates), "opt_state": opt_state}, value

    return {"Model": OfOne, "inputs": loops.inputs, "batch": loops.batch, "loss": loss, "start": eqx_loops.start,
            "step": step} | change  # fmt: skip


def test_a_port_whose_model_takes_one_example_holds_and_says_how_it_is_called():
    found = parity.prove_port(torch=loops.TORCH, jax=trainer(1), steps=4, until="steps")
    assert found.verdict == "holds", found.text()
    mapped = parity.map_models(torch=loops.TorchModel, jax=OfOne, inputs=["f[8,6]"])
    assert mapped.verdict == "holds"
    assert "takes one example, and is called under jax.vmap" in mapped.text()


def rows_of_steps(step):
    one = loops.batch(step)
    draws = np.random.default_rng([4, step])
    return {"x": draws.normal(size=(2, 8, 6)).astype(np.float32), "y": np.stack([one["y"], one["y"][::-1]])}


def loss_of_steps(model, batch):
    outputs = model(torch.from_numpy(batch["x"])).flatten(0, 1)
    return torch.nn.functional.cross_entropy(outputs, torch.from_numpy(batch["y"].copy()).flatten())


def test_two_axes_of_a_batch_are_measured_too():
    torch_side = loops.TORCH | {"loss": loss_of_steps, "batch": rows_of_steps, "inputs": "f[2,8,6]"}
    found = parity.prove_port(
        torch=torch_side, jax=trainer(2, inputs="f[2,8,6]", batch=rows_of_steps), steps=4, until="gradients"
    )
    assert found.verdict == "holds", found.text()


def test_what_is_planted_in_such_a_model_parts_at_the_module():
    found = parity.find_parting(torch=loops.TorchModel, jax=lambda key: OfOne(1e-6, key=key), inputs=["f[8,6]"])
    assert found.verdict == "broken"
    assert "at the output of norm (LayerNorm) and norm (LayerNorm)" in found.text()


@pytest.mark.parametrize(("model", "said"), [(OfOne, 1), (eqx_loops.Model, 0)])
def test_nothing_is_assumed_of_a_model_that_takes_the_whole(model, said):
    subjects = open_subjects(
        ModelSource("--torch", "torch", loops.TorchModel), ModelSource("--jax", "jax", model), ["f[8,6]"]
    )
    assert sum("takes one example" in note for note in subjects.second.notes) == said


def test_inputs_that_fit_neither_way_are_refused_with_the_error_of_the_whole():
    with pytest.raises(SpecError, match="contracting"):
        parity.map_models(torch=lambda: torch.nn.Linear(5, 4), jax=OfOne, inputs=["f[8,5]"])

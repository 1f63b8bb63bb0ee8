"""What models of libraries do that their ports must know, in small copies that need no library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from docs.examples.nnx_voice import Layer
from parity.checks.models import map_models

INPUTS = [np.array([[0, 3, 0, 5], [2, 0, 1, 4]])]


class Padded(torch.nn.Module):
    """BERT's table: the row of the padding has no gradient from where words stand."""

    def __init__(self):
        super().__init__()
        self.words, self.head = torch.nn.Embedding(7, 4, padding_idx=0), torch.nn.Linear(4, 3)

    def forward(self, words):
        return self.head(self.words(words))


class Port(nnx.Module):
    def __init__(self, stops, rngs):
        self.words, self.head, self.stops = nnx.Embed(7, 4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs), stops

    def __call__(self, words):
        known = self.words(words)
        if self.stops:
            known = jnp.where((words == 0)[..., None], jax.lax.stop_gradient(known), known)
        return self.head(known)


@pytest.mark.parametrize(("stops", "verdict"), [(True, "holds"), (False, "broken")])
def test_the_row_of_a_padding_gets_no_gradient_in_pytorch(stops, verdict):
    rules = map_models(torch=Padded, jax=lambda: Port(True, nnx.Rngs(0)), inputs=tuple(INPUTS)).rules
    found = map_models(torch=Padded, jax=lambda: Port(stops, nnx.Rngs(0)), inputs=tuple(INPUTS), rules=rules)
    assert found.verdict == verdict, found.text()
    if verdict == "broken":
        assert "parts: gradient of words.weight" in found.text()


class Untied(torch.nn.Module):
    """BERT's untied head: the bias beside the one that is used moves nothing."""

    def __init__(self):
        super().__init__()
        self.decoder, self.bias = torch.nn.Linear(4, 7), torch.nn.Parameter(torch.zeros(7))

    def forward(self, x):
        return self.decoder(x)


def test_a_bias_that_nothing_uses_has_no_counterpart_and_takes_none():
    found = map_models(torch=Untied, jax=lambda: nnx.Linear(4, 7, rngs=nnx.Rngs(0)), inputs="f[5,4]")
    assert found.verdict == "broken"
    assert [what for what, _ in found.found.alone] == ["Untied: bias"]
    assert {row.first[0]: row.second[0] for row in found.found.rows} == {
        "decoder.weight": "kernel", "decoder.bias": "bias"}  # fmt: skip


class Recurrent(torch.nn.Module):
    """PyTorch's LSTM has two biases for each layer, which do the same."""

    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(3, 2, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


def test_two_biases_of_a_layer_of_lstm_do_the_same_and_are_unsure():
    found = map_models(torch=Recurrent, jax=lambda: Layer(3, 2, jnp.float32, nnx.Rngs(0)), inputs="f[4,5,3]")
    assert found.verdict == "inconclusive"
    assert found.proof.verdict == "holds", found.text()
    unsure = {name for row in found.found.unsure for name in row.first}
    assert unsure == {"lstm.bias_ih_l0", "lstm.bias_hh_l0"}

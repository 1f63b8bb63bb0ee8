"""The recipe for a model, done: a spec and a module on each side, and its twins train, cross and resume."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

import jax_side.model
import torch_side.model
from parity import sides
from parity.spec import ModelBase
from parity.spec.models import WideLayer
from parity.spec.models.leaves import ParamSpec, affine, norm
from parity.state import compare_states
from tests.support.small import bits_of, small


@dataclass(frozen=True, kw_only=True)
class SkipSpec(ModelBase):
    """A hidden layer with a norm, beside which the input goes on: head(relu(norm(hidden(x))) + x)."""

    SOURCES: ClassVar[tuple[str, ...]] = ("digits",)
    kind: str = "skip"
    width: int = 64

    def leaves(self) -> Iterator[ParamSpec]:
        yield from affine("hidden", (self.width, self.width))
        yield from norm("norm", self.width)
        yield from affine("head", (10, self.width))

    def widest(self) -> list[WideLayer]:
        return [WideLayer("the hidden layer", self.width, {"model.width": self.width})]

    def growth(self) -> dict[str, int]:
        return {"model.width": self.width}

    def sample_bytes(self, source: str) -> int:
        return 4 * self.width + 4


class SkipInJax(nnx.Module):
    def __init__(self, model: SkipSpec, dropout: Any, types: Any, rngs: nnx.Rngs) -> None:
        self.hidden = jax_side.model._linear(model.width, model.width, types, rngs)
        self.norm = jax_side.model._layer_norm(model.width, types, rngs)
        self.head = jax_side.model._linear(model.width, 10, types, rngs)

    def __call__(self, x: jax.Array, key: jax.Array | None = None, *, train: bool = False) -> jax.Array:
        return self.head(jax.nn.relu(self.norm(self.hidden(x))) + x)


class SkipInTorch(nn.Module):
    def __init__(self, model: SkipSpec, dropout: Any, types: Any) -> None:
        super().__init__()
        self.hidden, self.norm = nn.Linear(model.width, model.width), nn.LayerNorm(model.width)
        self.head = nn.Linear(model.width, 10)

    def forward(self, x: torch.Tensor, key: torch.Tensor | None = None, *, train: bool = False) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.hidden(x))) + x)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(jax_side.model.MODELS, "skip", SkipInJax)
    monkeypatch.setitem(torch_side.model.MODELS, "skip", SkipInTorch)


@pytest.mark.takes_seconds
def test_twins_of_a_new_model_agree_and_their_states_cross() -> None:
    spec: Any = replace(small("mlp-digits", "float64"), model=SkipSpec())
    ours, theirs = (sides.load(side).build(spec) for side in ("jax", "torch"))
    assert compare_states(ours.export_state(), theirs.export_state()) == []
    for a, b in zip(ours.steps(8), theirs.steps(8), strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-12)
    state = theirs.export_state()
    ours.import_state(state)
    assert compare_states(state, ours.export_state()) == []
    losses = [[record.loss for record in trainer.steps(12)] for trainer in (ours, theirs)]
    assert np.allclose(*losses, rtol=1e-12, atol=0)


@pytest.mark.takes_seconds
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_run_of_a_new_model_resumes_bit_for_bit(side: str, tmp_path: Path) -> None:
    spec: Any = replace(small("mlp-digits", "float32"), model=SkipSpec())
    whole, first, second = (sides.load(side).build(spec, tmp_path / d if d else None) for d in ("", "a", "a"))
    curve = list(whole.steps(10))
    list(first.steps(5))
    first.save(None)
    first.close()
    assert second.restore("latest") == 5
    assert bits_of(list(second.steps(10))) == bits_of(curve[5:])
    second.close()


def test_a_data_source_that_does_not_fit_a_new_model_is_refused() -> None:
    spec = small("mlp-digits", "float32")
    with pytest.raises(Exception, match=r"data\.source: 'text' does not fit a model of kind 'skip'"):
        replace(spec, model=SkipSpec(), data=replace(spec.data, source="text"))

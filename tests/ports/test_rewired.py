"""An edge that goes elsewhere: a value that is taken from another place is named, in every layer that has it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

from parity.checks.programs import candidates_of
from parity.checks.programs.search import ChangeSearch, searched
from parity.checks.programs.trials import flat_of
from tests.support.programs import said_of, traced

_SHAPES = ((3, 4), (2, 4), (2, 4), (2, 4, 4))
_DRAWS = [[np.random.default_rng((seed, n)).standard_normal(shape) for n, shape in enumerate(_SHAPES)]
          for seed in range(3)]  # fmt: skip


def _norm(x: Any, scale: Any) -> Any:
    return x / (x**2).mean(-1, keepdims=True) ** 0.5 * scale


def _trainer(x: Any, first: Any, second: Any, kernel: Any) -> Any:
    for a, b, w in zip(first, second, kernel, strict=True):
        x = x + torch.tanh(_norm(x, a) @ w)
        x = x + torch.sin(_norm(x, b) @ w.T)
    return x


def _port(x: Any, first: Any, second: Any, kernel: Any, fault: str = "", *, scanned: bool = True) -> Any:
    def block(x: Any, given: Any) -> Any:
        a, b, w = given
        h = x + jnp.tanh(_norm(x, a) @ w)
        inner = _norm(x if fault == "input" else h, a if fault == "leaf" else b)
        inner = jnp.roll(inner, 1, -1) + 0.5 * inner[..., ::-1] if fault == "turned" else inner
        return h + jnp.sin(inner @ w.T), None

    if scanned:
        return lax.scan(block, x, (first, second, kernel))[0]
    for given in zip(first, second, kernel, strict=True):
        x, _ = block(x, given)
    return x


def _rewired(trainer: Any, port: Any) -> str:
    """Return what is told where no other kind of change is tried."""
    both = traced(trainer, port, _DRAWS)
    for side, (mine, theirs) in enumerate((both, both[::-1])):
        wanted = [flat_of(one.outputs, None) for one in theirs]
        candidates = candidates_of(mine[0].operations, theirs[0].operations)
        search = ChangeSearch(mine, wanted, candidates, None, side)
        if found := searched([search], 20.0, 20.0, ("rewired",)):
            return found[0].phrase
    return ""


@pytest.mark.parametrize("scanned", [True, False])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("input", "value taken: what add makes at "),
        ("leaf", "value taken: "),
    ],
)
def test_a_value_of_another_place_is_named(fault: str, words: str, scanned: bool) -> None:
    said = _rewired(_trainer, lambda *given: _port(*given, fault, scanned=scanned))
    assert said.startswith(words), said
    assert "goes into " in said, said


def test_what_is_made_of_a_value_first_is_told_by_the_side_that_makes_it() -> None:
    said = _rewired(_trainer, lambda *given: _port(*given, "turned"))
    assert said.startswith("value taken: "), said
    assert " there (test_rewired.py:" in said, "the port turns what the trainer takes as it is"


def test_equal_programs_and_other_faults_are_left_as_they_are() -> None:
    assert said_of(_trainer, _port, _DRAWS) == ""

    def port(x: Any, first: Any, second: Any, kernel: Any) -> Any:
        return jax.nn.relu(_port(x, first, second, kernel))

    said = said_of(lambda *given: torch.tanh(_trainer(*given)), port, _DRAWS)
    assert said.startswith("activation: tanh here"), said

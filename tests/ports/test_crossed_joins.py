"""Parts of a fused leaf in another order than the trainer lists and uses its leaves are noted, others are not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from parity.checks.models import ModelSource, crossed_joins, open_subjects
from parity.checks.models.mapping import propose

WIDE, HIDDEN = 4, 6


class Gated(nn.Module):
    def __init__(self, listed: tuple[str, str]) -> None:
        super().__init__()
        for name in listed:
            self.add_module(name, nn.Linear(WIDE, HIDDEN, bias=False))
        self.down = nn.Linear(HIDDEN, WIDE, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def _notes(listed: tuple[str, str], *, crossed: bool, apart: bool = False) -> list[str]:
    draws = np.random.default_rng(0)
    shapes = {"b": (HIDDEN, WIDE)} | (
        {"c": (WIDE, HIDDEN), "a": (WIDE, HIDDEN)} if apart else {"a": (WIDE, 2 * HIDDEN)}
    )
    params = {name: draws.standard_normal(shape) for name, shape in shapes.items()}

    def apply(p: Any, x: Any) -> Any:
        one, two = (x @ p["a"], x @ p["c"]) if apart else jnp.split(x @ p["a"], 2, -1)
        return (one * jax.nn.silu(two) if crossed else jax.nn.silu(one) * two) @ p["b"]

    port = ModelSource("--jax", "port", lambda: (params, apply))
    subjects = open_subjects(ModelSource("--torch", "Gated", lambda: Gated(listed)), port, ["f[3,4]"])
    found = propose(subjects)
    assert found.agree
    assert not found.unsure
    return crossed_joins(subjects, found.rules)


def test_halves_that_are_crossed_are_noted() -> None:
    [note] = _notes(("gate", "up"), crossed=True)
    assert note.startswith("a of port holds up.weight, then gate.weight, which Gated lists and uses in another order")


@pytest.mark.parametrize(("listed", "crossed", "apart"), [
    (("gate", "up"), False, False), (("up", "gate"), False, False), (("up", "gate"), True, False),
    (("gate", "up"), True, True),
])  # fmt: skip
def test_halves_in_an_order_of_the_trainer_are_not(listed: tuple[str, str], crossed: bool, apart: bool) -> None:
    assert _notes(listed, crossed=crossed, apart=apart) == []

"""Models that part before most leaves, so that behaviour tells no map: equal but for one change under the nearest."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from parity.checks import programs
from parity.checks.models import map_opened
from parity.checks.models.parting import Parting
from parity.checks.proving import nearest_maps, prove_port, stages
from parity.checks.proving.losses import Pairing
from parity.checks.proving.verdict import PortProof

WIDE, HIDDEN, TOKENS, BLOCKS = 4, 6, 7, 2


class Trainer(nn.Module):
    """Blocks of leaves of one shape behind an embedding that is scaled."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(TOKENS, WIDE)
        self.place = nn.Parameter(torch.randn(4, WIDE))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDE) for _ in range(BLOCKS))
        self.inner = nn.ModuleList(nn.Linear(WIDE, HIDDEN, bias=False) for _ in range(BLOCKS))
        self.outer = nn.ModuleList(nn.Linear(HIDDEN, WIDE) for _ in range(BLOCKS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.table(x) * 2.5 + self.place
        for norm, inner, outer in zip(self.norms, self.inner, self.outer, strict=True):
            h = norm(h + outer(torch.tanh(inner(h))))
        return h


def _port(names: tuple[str, ...], fault: str) -> Any:
    """Return parameters by names, and a function of them; the fault is `scale`, or none."""
    table, place, shift, size, kernel, out, bias = names
    draws = np.random.default_rng(5)
    shapes = {shift: (WIDE,), size: (WIDE,), kernel: (WIDE, HIDDEN), out: (HIDDEN, WIDE), bias: (WIDE,)}
    params = {table: draws.standard_normal((TOKENS, WIDE)), place: draws.standard_normal((4, WIDE))}
    params |= {f"l{at}": {k: draws.standard_normal(s) for k, s in shapes.items()} for at in range(BLOCKS)}

    def apply(p: Any, x: Any) -> Any:
        h = p[table][x] * (1.0 if fault == "scale" else 2.5) + p[place]
        for at in range(BLOCKS):
            one = p[f"l{at}"]
            y = h + jnp.tanh(h @ one[kernel]) @ one[out] + one[bias]
            c = y - y.mean(-1, keepdims=True)
            h = c / jnp.sqrt((c * c).mean(-1, keepdims=True) + 1e-5) * one[size] + one[shift]
        return h

    return lambda: (params, apply)


NAMES = ("g", "f", "e", "d", "c", "b", "a")


def _proved(fault: str) -> PortProof:
    batch = {"batch": lambda step: {"x": np.arange(8).reshape(2, 4) % TOKENS}}
    return prove_port(
        torch={"Model": Trainer} | batch, jax={"Model": _port(NAMES, fault)} | batch, inputs=[f"i[2,4]<{TOKENS}"],
        until="forward", steps=2,
    )  # fmt: skip


@pytest.fixture
def unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the map of two models without a proof, as that of which a row has no rule."""
    monkeypatch.setattr(stages, "map_opened", lambda *args: replace(map_opened(*args), proof=None))


@pytest.mark.usefixtures("unproven")
@pytest.mark.parametrize("cause", ["left out: mul is applied here, not there", ""])
def test_a_change_that_makes_both_equal_proves_the_likeliest_map(monkeypatch: pytest.MonkeyPatch, cause: str) -> None:
    maps = []

    def told(pairing: Pairing) -> str:
        maps.append({one: other for other, one in pairing.names().items()})
        return cause

    monkeypatch.setattr(nearest_maps, "model_program_cause", told)
    proof = _proved("scale")
    assert proof.cause == cause
    assert proof.verdict == ("broken" if cause else "inconclusive"), "a likely map alone proves nothing"
    assert maps[0]["inner.1.weight"] == "l1.c", "leaves are those of one place, whatever their names"
    assert maps[0]["norms.0.weight"] == "l0.d"


@pytest.mark.usefixtures("unproven")
@pytest.mark.parametrize("cause", [
    "values exchanged: the leaf a and the leaf b, each in place of the other",
    "value taken: the leaf a here, the leaf b there", "order: mul before add here, after it there",
    "layout: the output of matmul as it is here, axes 0 and 1 exchanged there",
    "factor: none here, 2 there, or layout: the output of matmul as it is here, axes 0 and 1 exchanged there",
])  # fmt: skip
def test_a_change_that_another_map_might_do_proves_none(monkeypatch: pytest.MonkeyPatch, cause: str) -> None:
    monkeypatch.setattr(nearest_maps, "model_program_cause", lambda pairing: cause)
    proof = _proved("scale")
    assert (proof.verdict, proof.cause) == ("inconclusive", "")
    assert cause in proof.stages[-1].lines[0], "it is said for what it is"


@pytest.mark.usefixtures("unproven")
@pytest.mark.parametrize(("cause", "within"), [
    ("repeats: the parts of axis 1 2 times over there", True), ("left out: mul is applied here, not there", False),
])  # fmt: skip
def test_an_order_within_leaves_is_said_beside_what_it_may_do(
    monkeypatch: pytest.MonkeyPatch, cause: str, within: bool
) -> None:
    monkeypatch.setattr(nearest_maps, "model_program_cause", lambda pairing: cause)
    proof = _proved("scale")
    assert (proof.verdict, proof.cause) == ("broken", cause)
    assert any("another order within" in line for line in proof.stages[-1].lines) is within


@pytest.mark.usefixtures("unproven")
def test_many_rows_that_are_not_sure_hide_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of models has so many lines at most, and the place at which they part stands behind the rows."""
    monkeypatch.setattr(sys.modules[__name__], "BLOCKS", 6)
    monkeypatch.setattr(nearest_maps, "model_program_cause", lambda pairing: "left out: mul")
    proof = _proved("scale")
    assert proof.verdict == "broken"
    assert proof.stages[-1].said.startswith("parts: "), proof.stages[-1].said


def test_these_are_words_that_the_search_says() -> None:
    home = Path(programs.__file__).parent
    sources = "".join(path.read_text() for path in home.glob("*.py"))
    assert all(f'"{words.removesuffix(": ")}"' in sources for words in nearest_maps.BY_A_MAP)


@pytest.mark.parametrize(("cause", "left"), [
    ("number of div: 2 here, 3 there (with that changed all values are equal)", None),
    ("layout: the output of a in another order", "note: 50 rows of the map are likely ones: "),
    ("", "note: 50 rows of the map are not sure, so this is not either: "),
])  # fmt: skip
def test_rows_that_are_not_sure_are_no_doubt_beside_what_makes_both_equal(cause: str, left: str | None) -> None:
    note = "note: 50 rows of the map are not sure, so this is not either: stem.weight: it is alone; give --rules"
    names, notes = ("a", "b"), (note.removeprefix("note: "),)
    parting = Parting("inconclusive", names, what="output", modules=("c", "d"), kinds=("C", "D"), notes=notes)
    said = [line.strip() for line in parting.text().splitlines()]
    assert note in said
    lines = nearest_maps.lines_beside(said, cause)
    assert lines[:-1] == tuple(said[:-1]) if left else lines == tuple(said[:-1])
    assert not left or lines[-1].startswith(left)


@pytest.mark.usefixtures("unproven")
def test_models_that_are_equal_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_maps, "model_program_cause", lambda pairing: "never")
    assert _proved("").verdict == "inconclusive"

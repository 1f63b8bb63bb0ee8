"""One group of leaves that is moved by another rule than the others: its own form tells, no multiple of a move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parity.checks.proving.move_form_causes import _groups_cause
from parity.checks.proving.moves import move_cause
from parity.checks.proving.update_causes import update_cause
from parity.checks.proving.walk import walk_updates
from tests.ports.small_walks import MODEL, pair_of, still_zero, walk_of


def _grouped(ahead: str = "", rates: dict[str, float] | None = None, plain: str = "b") -> Any:
    """Return SGD with momentum, of which one leaf moves ahead of its momentum, and one has none at all."""

    def rule(state: dict, grads: dict, at: int) -> None:
        for leaf, g in grads.items():
            rate = (rates or {}).get(leaf, 0.05)
            m = state["m"][leaf] = (0.0 if leaf == plain else 0.5) * state["m"][leaf] + g
            state["params"][leaf] = state["params"][leaf] - rate * (g + 0.5 * m if leaf == ahead else m)

    return rule


def _slots(params: dict) -> dict:
    return {"m": still_zero(params)}


@pytest.mark.parametrize(("here", "there", "who"), [("v", "", "the trainer"), ("", "v", "the port")])
def test_nesterov_of_one_group_is_no_rate_of_it(here: str, there: str, who: str) -> None:
    said = update_cause(walk_of(_grouped(here), _grouped(there), _slots))
    assert said.startswith(f"Nesterov: {who} moves ahead of its momentum"), said
    assert said.endswith("(of v alone)"), said


def test_a_rate_of_one_group_stays_a_rate() -> None:
    said = update_cause(walk_of(_grouped(), _grouped(rates={"v": 0.1}), _slots))
    assert "learning rate" in said, said
    assert "v by 2 times" in said, said


def _clipped(axis: int | None) -> Any:
    """Return SGD with momentum, of which the gradient of one leaf is clipped: each column, or all of it."""

    def rule(state: dict, grads: dict, at: int) -> None:
        for leaf, g in grads.items():
            norm = np.sqrt((g**2).sum(axis, keepdims=True)) if leaf == "w" else 0.0
            m = state["m"][leaf] = 0.5 * state["m"][leaf] + g * np.minimum(1.0, 0.02 / np.maximum(norm, 1e-12))
            state["params"][leaf] = state["params"][leaf] - 0.05 * m

    return rule


@pytest.mark.parametrize(("here", "there", "word"), [(0, None, "here"), (None, 0, "there")])
def test_the_clipping_of_one_leaf_is_told_beside_others_that_are_not_clipped(
    here: int | None, there: int | None, word: str
) -> None:
    said = update_cause(walk_of(_clipped(here), _clipped(there), _slots))
    assert said.startswith("clipping: the gradient of w "), said
    assert f"by its norm for each place along axis 1 (of the port's layout) to 0.02 {word}" in said, said
    assert f"by its norm as a whole to 0.02 {'there' if word == 'here' else 'here'}" in said, said
    assert said.endswith("that of the other leaves agrees"), said


def _hidden(kept: float) -> Any:
    """Return SGD whose one leaf has a momentum that no slot shows."""
    held: dict[int, np.ndarray] = {}

    def rule(state: dict, grads: dict, at: int) -> None:
        for leaf, g in grads.items():
            move = g
            if leaf == "w":
                move = held[id(state)] = g if at == 1 else kept * held[id(state)] + g
            state["params"][leaf] = state["params"][leaf] - 0.05 * move

    return rule


@pytest.mark.parametrize("begins", [0.0, 1.0])
def test_momentum_of_a_leaf_of_zeros_is_no_decay(begins: float) -> None:
    """Its value after one update is its first move, a multiple of which momentum takes too."""
    walk = walk_updates(*pair_of(_hidden(0.0), _hidden(0.5)), MODEL | {"w": begins * MODEL["w"]}, 6)
    assert walk.done == 2, "the first move is the same"
    assert "weight decay" not in move_cause(walk)


def test_decay_of_a_leaf_of_zeros_is_decay_at_a_later_update() -> None:
    def late(decay: float) -> Any:
        def rule(state: dict, grads: dict, at: int) -> None:
            for leaf, g in grads.items():
                p = state["params"][leaf]
                state["params"][leaf] = p - 0.05 * (g + (decay * p if leaf == "w" and at > 2 else 0.0))

        return rule

    walk = walk_updates(*pair_of(late(0.0), late(0.1)), MODEL | {"w": np.zeros_like(MODEL["w"])}, 6)
    assert walk.done == 3
    assert "weight decay" in move_cause(walk)


@pytest.mark.parametrize(("done", "when"), [(1, "of the first update"), (6, "of update 6")])
def test_a_rate_of_one_group_is_of_the_update_at_which_it_parts(done: int, when: str) -> None:
    ratios = {at: {"w": 1.0, "v": 3.0, "b": 3.0} for at in range(done, done + 3)}
    assert _groups_cause(ratios, done).startswith(f"learning rate {when}, of groups: the port moves v, b by 3 times")

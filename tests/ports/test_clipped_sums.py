"""A sum of gradients that is clipped again after each part of the batch is added."""

import numpy as np
import pytest

from parity.checks.proving.gradient_forms import gradient_forms_cause
from parity.checks.proving.update_causes import update_cause
from tests.ports.small_walks import MODEL, gradients, momentum, still_zero, walk_of


def clipped(grads, most):
    size = np.sqrt(sum(float((one**2).sum()) for one in grads.values()))
    return {leaf: one * min(1.0, most / size) for leaf, one in grads.items()}


def in_loop(parts, most, *, every=True, each=False, strided=False):
    """Return a loss whose gradients are added part by part, and clipped after each of them or after the last."""

    def loss(state, batch):
        total = {leaf: np.zeros_like(one) for leaf, one in MODEL.items()}
        for at in range(parts):
            size = len(batch["x"]) // parts
            rows = slice(at, None, parts) if strided else slice(at * size, (at + 1) * size)
            part = {name: one[rows] for name, one in batch.items()}
            _, grads = gradients(state["params"], part)
            grads = {leaf: one / parts for leaf, one in grads.items()}
            grads = clipped(grads, most) if each else grads
            total = {leaf: total[leaf] + one for leaf, one in grads.items()}
            total = clipped(total, most) if every or at == parts - 1 else total
        return gradients(state["params"], batch)[0], total

    return loss


def cause_of(one, other):
    slots = lambda params: {"m": still_zero(params)}  # noqa: E731
    return update_cause(walk_of(momentum(1, 1), momentum(1, 1), slots, loss=one, other=other))


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_the_side_that_clips_after_each_part_is_said(parts):
    said = cause_of(in_loop(parts, 0.2), in_loop(parts, 0.2, every=False))
    assert said.startswith(f"clipping: clipped again by the norm of all after each of {parts} parts of the batch"), (
        said
    )
    assert "clipped by the norm of all)" in said
    said = cause_of(in_loop(parts, 0.2, every=False), in_loop(parts, 0.2))
    assert f"there clipped again by the norm of all after each of {parts} parts" in said, said


def test_parts_that_are_clipped_each_are_told_as_before():
    said = cause_of(in_loop(2, 0.1, each=True, every=False), in_loop(2, 1e9, every=False))
    assert "clipped again" not in said, said


def test_parts_of_every_so_manyth_row_are_told_apart_from_parts_that_lie_together():
    said = cause_of(in_loop(3, 0.1, each=True, every=False, strided=True), in_loop(3, 1e9, every=False, strided=True))
    assert "each of 3 parts of the batch (every third row) is clipped by itself" in said, said
    said = cause_of(in_loop(3, 0.1, each=True, every=False), in_loop(3, 1e9, every=False))
    assert "each of 3 parts of the batch is clipped by itself" in said, said


def test_a_limit_that_is_never_reached_changes_nothing():
    walk = walk_of(momentum(1, 1), momentum(1, 1), lambda params: {"m": still_zero(params)},
                   loss=in_loop(2, 1e9), other=in_loop(2, 1e9, every=False))  # fmt: skip
    assert not gradient_forms_cause(walk)


def test_a_loss_that_is_the_sum_of_those_of_parts_is_said():
    def summed(state, batch):
        made = [
            gradients(state["params"], {n: one[at * 4 : at * 4 + 4] for n, one in batch.items()}) for at in range(3)
        ]
        return sum(value for value, _ in made), {leaf: sum(grads[leaf] for _, grads in made) for leaf in MODEL}

    def strided(state, batch):
        made = [gradients(state["params"], {n: one[at::4] for n, one in batch.items()}) for at in range(4)]
        return np.mean([v**2 for v, _ in made]), {leaf: sum(grads[leaf] for _, grads in made) for leaf in MODEL}

    plain = lambda state, batch: gradients(state["params"], batch)  # noqa: E731
    assert "trains on another loss than its own" in cause_of(plain, strided), "squares of losses are no mean of them"
    said = cause_of(plain, summed)
    assert said.startswith("accumulation: the port's step takes the sum of the losses of 3 parts of the batch"), said
    other = lambda state, batch: (1.7 * gradients(state["params"], batch)[0], gradients(state["params"], batch)[1])  # noqa: E731
    assert "trains on another loss than its own" in cause_of(plain, other)

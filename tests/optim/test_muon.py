"""Muon in its own bfloat16: the losses stay within what one ulp of bfloat16 at the start does to torch's own."""

import numpy as np
import pytest

from jax_side.optim import by_name
from parity.checks.criteria import ENVELOPE_LIMIT, envelope_multiple
from parity.checks.noise import SEEDS, envelope, ulp
from tests.optim.walks import MATRICES, jax_walk, start, torch_walk

STEPS = 75
BEGIN = start(1, MATRICES)


@pytest.fixture(scope="module")
def measured():
    """Return torch's losses, and the width of the envelope."""
    generator = np.random.default_rng(0)
    moved = [
        {k: v + generator.choice([-1, 1], v.shape) * ulp(v, "bfloat16") for k, v in BEGIN.items()}
        for _ in range(SEEDS)
    ]
    base, *perturbed = (torch_walk("Muon", {"lr": 0.02}, begin, STEPS)[0] for begin in (BEGIN, *moved))
    return base, envelope(base, perturbed)


def multiple(measured, **arguments):
    base, width = measured
    ours, _, _ = jax_walk(by_name("Muon", {"lr": 0.02, **arguments}), BEGIN, STEPS)
    return envelope_multiple(ours, base, width)


def test_its_losses_are_inside_the_envelope(measured):
    """A rounding after each operation, where torch.addmm rounds once, reaches 1.3; the limit is 3."""
    assert multiple(measured) <= 1.0


@pytest.mark.parametrize("fault", [{"nesterov": False}, {"ns_steps": 4}, {"adjust_lr_fn": "match_rms_adamw"}])
def test_another_iteration_is_outside(measured, fault):
    assert multiple(measured, **fault) > ENVELOPE_LIMIT["bfloat16"]

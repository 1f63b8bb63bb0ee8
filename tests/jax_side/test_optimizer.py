"""Thirty steps of random gradients give the same parameters on both sides, for every optimizer of the spec."""

import numpy as np
import pytest

from parity.spec import RunSpec, override
from tests.jax_side.twin_tools import Arrays, jax_walk, relative, torch_walk
from tests.support.small import small

pytestmark = pytest.mark.breaks_first

SHAPES = {"kernel": (5, 3), "bias": (3,), "conv": (2, 1, 3, 3)}
STEPS = 30

KINDS: dict[str, list[str]] = {
    "adam": ["optimizer.kind=adam", "optimizer.weight_decay=0"],
    "adam, L2": ["optimizer.kind=adam", "optimizer.weight_decay=0.1"],
    "adamw": ["optimizer.kind=adamw", "optimizer.weight_decay=0.1"],
    "adamw, betas": ["optimizer.kind=adamw", "optimizer.beta1=0.8", "optimizer.beta2=0.95", "optimizer.eps=1e-3"],
    "adam, no moments": ["optimizer.kind=adam", "optimizer.beta1=0", "optimizer.beta2=0"],
    "sgd": ["optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0"],
    "sgd, L2": ["optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0.1"],
    "momentum": ["optimizer.kind=sgd", "optimizer.momentum=0.9", "optimizer.weight_decay=0.1"],
    "nesterov": ["optimizer.kind=sgd", "optimizer.nesterov=true", "optimizer.weight_decay=0.1"],
}


def run(kind: str, *overrides: str) -> RunSpec:
    spec = small("mlp-digits", "float64", "schedule.warmup=3", "schedule.horizon=25", "schedule.final=0.1")
    first, *rest = KINDS[kind]
    return override(override(spec, [first]), [*rest, "optimizer.lr=0.05", *overrides])


def random(seed: int, dtype: type = np.float64) -> tuple[Arrays, list[Arrays]]:
    """Return a start, and gradients whose norms lie on both sides of 1."""
    generator = np.random.default_rng(seed)
    draw = lambda scale: {n: (scale * generator.normal(size=s)).astype(dtype) for n, s in SHAPES.items()}  # noqa: E731
    return draw(1.0), [draw(10 ** generator.uniform(-2, 1)) for _ in range(STEPS)]


@pytest.mark.takes_seconds
@pytest.mark.parametrize("clip", ["clip_norm=0", "clip_norm=1"])
@pytest.mark.parametrize("decay", ["all", "matrices"])
@pytest.mark.parametrize("kind", KINDS)
def test_both_sides_take_the_same_steps_in_float64(kind: str, decay: str, clip: str) -> None:
    spec = run(kind, f"optimizer.decay={decay}", clip)
    start, gradients = random(7)
    for ours, theirs in zip(jax_walk(spec, start, gradients), torch_walk(spec, start, gradients), strict=True):
        for name in SHAPES:
            assert relative(ours[name], theirs[name]) < 1e-14, name


@pytest.mark.takes_seconds
@pytest.mark.parametrize("kind", KINDS)
def test_both_sides_take_the_same_steps_in_float32_up_to_rounding(kind: str) -> None:
    spec = run(kind, "precision=float32", "optimizer.decay=matrices")
    start, gradients = random(7, np.float32)
    pairs = zip(jax_walk(spec, start, gradients), torch_walk(spec, start, gradients), strict=True)
    for step, (ours, theirs) in enumerate(pairs, 1):
        for name in SHAPES:
            assert relative(ours[name], theirs[name]) < 1e-6, (step, name)


@pytest.mark.takes_seconds
def test_a_decay_mask_leaves_vectors_alone() -> None:
    spec = run("adamw", "optimizer.decay=matrices", "clip_norm=0")
    start, _ = random(1)
    still = [{name: np.zeros(shape) for name, shape in SHAPES.items()}]
    (ours,) = jax_walk(spec, start, still)
    np.testing.assert_array_equal(ours["bias"], start["bias"])
    for name in ("kernel", "conv"):
        assert np.abs(ours[name]).sum() < np.abs(start[name]).sum()


@pytest.mark.takes_seconds
@pytest.mark.parametrize("kind", KINDS)
def test_zero_gradients_are_survived(kind: str) -> None:
    """A clip factor and a bias correction must not divide by zero."""
    spec = run(kind, "clip_norm=1")
    start, _ = random(3)
    still = [{name: np.zeros(shape) for name, shape in SHAPES.items()}] * 3
    for ours, theirs in zip(jax_walk(spec, start, still), torch_walk(spec, start, still), strict=True):
        for name in SHAPES:
            assert relative(ours[name], theirs[name]) < 1e-14, name

"""The loss of a trainer and its port, and its gradients, at equal values and on equal batches, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.criteria import FLOAT64_LIMIT
from parity.checks.models import NOISE, Subjects, carried, drawn
from parity.checks.noise import one_ulp_away, spread_of
from parity.checks.proving.sources import PortTrainer
from parity.contract import LossEvaluation, StepBatch
from parity.mapping import RulePlacement

__all__ = [
    "LossPair",
    "Pairing",
    "evaluate_losses",
    "gradient_gaps",
    "loss_gap",
    "nudged_batch",
    "other_values",
    "smaller_values",
]


@dataclass(frozen=True)
class Pairing:
    """Which leaf of the first model is which of the second."""

    subjects: Subjects
    placements: Sequence[RulePlacement]

    def over(
        self, values: Mapping[str, NDArray[np.float64]], *, grads: bool = False
    ) -> dict[str, NDArray[np.float64]]:
        """Return arrays of the first model's leaves as the second has them; a leaf without one is left out."""
        return carried(self.subjects.first, self.placements, values, grads=grads)

    def names(self) -> dict[str, str]:
        """Return the second model's leaves, each with the first's that it comes from."""
        return {path: " + ".join(one.source) for one in self.placements for path in one.target}


@dataclass(frozen=True)
class LossPair:
    """The losses of both at one place, and what one unit in the last place of leaves and batch moves them by."""

    batch: tuple[StepBatch, StepBatch]
    first: LossEvaluation
    second: LossEvaluation
    expected: Mapping[str, NDArray[np.float64]]
    """Gradients of the first, as the second has them."""
    noise: float
    """Of the loss."""
    leaf_noise: Mapping[str, float]
    repeats: tuple[bool, bool]
    """Whether each gave the same loss when it was asked again."""


def evaluate_losses(
    pairing: Pairing, first: PortTrainer, second: PortTrainer, values: Mapping[str, NDArray[np.float64]], step: int
) -> LossPair:
    """Evaluate both losses at values of the first model and on the batch of a step.

    Raises:
        SpecError: A loss fails, or is no scalar.
    """
    batches = first.batch(step), second.batch(step)
    there = pairing.over(values)
    one, two = first.probe.loss(values, batches[0]), second.probe.loss(there, batches[1])
    again = first.probe.loss(values, batches[0]), second.probe.loss(there, batches[1])
    rng = np.random.default_rng([3, step])
    nudged = {leaf: one_ulp_away(v, rng.random(v.shape) < 0.5, "float64") for leaf, v in values.items()}
    shifted = nudged_batch(batches[0], step), nudged_batch(batches[1], step)
    moved = first.probe.loss(nudged, shifted[0]), second.probe.loss(pairing.over(nudged), shifted[1])
    expected = _without_frozen(pairing, pairing.over(one.gradients, grads=True), two)
    shaken = pairing.over(moved[0].gradients, grads=True)
    leaf_noise = {
        path: max(spread_of(grad, shaken[path]), spread_of(two.gradients[path], moved[1].gradients[path]))
        for path, grad in expected.items()
    }
    noise = max(spread_of(one.loss, moved[0].loss), spread_of(two.loss, moved[1].loss))
    same = one.loss == again[0].loss, two.loss == again[1].loss
    return LossPair(batches, one, two, expected, noise, leaf_noise, same)


def _without_frozen(
    pairing: Pairing, expected: Mapping[str, NDArray[np.float64]], second: LossEvaluation
) -> dict[str, NDArray[np.float64]]:
    """Return gradients without those that one model's freezing and a stop in the other's loss leave out.

    PyTorch marks a parameter that is not trained, JAX can only stop its gradient, in the model or in the loss. The
    updates show that neither trains it.
    """
    subjects, names = pairing.subjects, pairing.names()
    frozen = {path for path in expected if subjects.first.frozen.issuperset(names[path].split(" + "))}
    stopped = {path for path in frozen if not np.any(second.gradients[path])}
    stopped |= {path for path in expected if path in subjects.second.frozen and not np.any(expected[path])}
    return {path: grad for path, grad in expected.items() if path not in stopped}


def nudged_batch(batch: StepBatch, seed: int) -> StepBatch:
    """Return a batch whose floats moved by one unit in the last place, equal ones of both sides alike.

    What is made of an input alone, as the angles of a time embedding, is rounded in as many ways as it is written.
    Whole numbers stay: they may be masks and labels, which are compared.

    Args:
        batch: Of a step, floating arrays in float64.
        seed: Tells the draws.
    """
    found = dict(batch)
    for name, value in batch.items():
        if isinstance(value, np.ndarray) and value.dtype == np.float64:
            up = np.asarray(np.random.default_rng([5, seed]).random(value.shape) < 0.5)
            found[name] = np.where(value == np.round(value), value, one_ulp_away(value, up, "float64"))
    return found


def other_values(pairing: Pairing, seed: int) -> dict[str, NDArray[np.float64]]:
    """Return values at which no leaf is zero and no two leaves have the same."""
    model = pairing.subjects.first
    return {
        leaf: drawn(value.shape, "statistic" if leaf in model.statistics else "parameter", (seed, at))
        for at, (leaf, value) in enumerate(model.leaves.items())
    }


def smaller_values(pairing: Pairing, seed: int) -> dict[str, NDArray[np.float64]]:
    """Return a quarter of values as `other_values` returns them; statistics as they are.

    What a loss bounds from below (a term by its free bits, a distance by its margin) may be above the bound at all
    larger values, and a port without the bound, or with another one, is then equal there.
    """
    statistics = pairing.subjects.first.statistics
    return {
        leaf: value if leaf in statistics else 0.25 * value for leaf, value in other_values(pairing, seed).items()
    }


def loss_gap(pair: LossPair) -> tuple[float, float]:
    """Return how far both losses are apart, relative, and what would pass.

    Numerics: 1e-12 relative, or three times what one unit in the last place of leaves and batch moves the loss.
    """
    scale = max(abs(pair.first.loss), 1e-300)
    limit = max(FLOAT64_LIMIT * scale, 3.0 * pair.noise)
    return spread_of(pair.first.loss, pair.second.loss) / scale, limit / scale


def gradient_gaps(pair: LossPair) -> tuple[dict[str, float], float]:
    """Return the leaves of the second model whose gradients part, each with the relative gap, and the largest gap.

    Numerics: a gradient may differ by 1e-12 of its largest element, by three times what one unit in the last place of
    leaves and batch moves it, or by 16 units in the last place of the largest gradient of all.
    """
    largest = max((float(np.abs(grad).max(initial=0.0)) for grad in pair.expected.values()), default=0.0)
    parted: dict[str, float] = {}
    worst = 0.0
    for path, grad in pair.expected.items():
        got = pair.second.gradients[path]
        scale = float(max(np.abs(grad).max(initial=0.0), np.abs(got).max(initial=0.0)))
        gap = spread_of(grad, got)
        if gap > max(FLOAT64_LIMIT * scale, 3.0 * pair.leaf_noise[path], NOISE * largest):
            parted[path] = gap / max(scale, 1e-300)
        elif scale > 1e3 * NOISE * largest:
            worst = max(worst, gap / scale)
    return parted, worst

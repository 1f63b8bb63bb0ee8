"""Two models and what both are called with: evaluated at values that pieces give their leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from parity.checks.models.draws import drawn, symmetric, weights
from parity.checks.models.inputs import BothInputs
from parity.checks.models.likeness import Alike
from parity.checks.models.pieces import LeafPart
from parity.contract import Evaluation, Inputs, ModelProbe, Weigh
from parity.errors import SpecError

__all__ = ["LeafValues", "Subjects", "align_outputs", "own_values", "values_of"]

LeafValues = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Subjects:
    """Two models that should be one."""

    first: ModelProbe
    second: ModelProbe
    inputs: BothInputs

    @property
    def both(self) -> tuple[tuple[ModelProbe, Inputs], tuple[ModelProbe, Inputs]]:
        """Return each model with its inputs."""
        return (self.first, self.inputs.first), (self.second, self.inputs.second)

    def require_repeatable(self) -> None:
        """Refuse models that compute something else when they are called again.

        Raises:
            SpecError: One does; names it.
        """
        for model, inputs in self.both:
            once, again = (model.evaluate(model.leaves, inputs) for _ in range(2))
            for at, (one, two) in enumerate(zip(once.outputs, again.outputs, strict=True)):
                if not np.array_equal(one, two, equal_nan=True):
                    raise SpecError(
                        "inputs",
                        f"{model.name} gives another output {at} when it is called again: draws of its own, such as "
                        "dropout, cannot be compared; turn them off in evaluation",
                    )

    def evaluate(
        self, first: LeafValues, second: LeafValues, *, grads: bool = True, calls: bool = False
    ) -> tuple[Evaluation, Evaluation]:
        """Return what both compute, with gradients of one weighted sum of the outputs.

        Raises:
            SpecError: They return other outputs, or something that is not finite.
        """
        (a, to_a), (b, to_b) = self.both
        left = a.evaluate(first, to_a, self.weighs[0] if grads else None, calls=calls)
        right = b.evaluate(second, to_b, self.weighs[1] if grads else None, calls=calls)
        for model, made in ((a, left), (b, right)):
            require_finite(model.name, made)
        outputs = tuple(
            np.transpose(one, np.argsort(order)) for one, order in zip(right.outputs, self.orders, strict=True)
        )
        return left, Evaluation(outputs, right.gradients, right.calls, right.islands)

    @property
    def weighs(self) -> tuple[Weigh, Weigh]:
        """Return what gives the weights of each model's outputs, of which gradients are taken."""
        return weights, _turned(self.orders)

    @cached_property
    def orders(self) -> list[tuple[int, ...]]:
        """Return, for each output, the order of axes that takes the first model's to the second's.

        Raises:
            SpecError: One returns more than the other, or shapes that do not fit.
        """
        (a, to_a), (b, to_b) = self.both
        return align_outputs(a, b, a.evaluate(a.leaves, to_a), b.evaluate(b.leaves, to_b))


def require_finite(name: str, made: Evaluation) -> None:
    """Refuse outputs that are not finite.

    Raises:
        SpecError: One is not.
    """
    for at, one in enumerate(made.outputs):
        if not np.isfinite(one).all():
            bad = int((~np.isfinite(one)).sum())
            raise SpecError("inputs", f"output {at} of {name} has {bad} elements that are not finite")


def _turned(axes: Sequence[tuple[int, ...]]) -> Weigh:
    """Return weights for outputs whose axes are in another order than those of the first model."""

    def weigh(place: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
        order = axes[place]
        here = tuple(shape[order.index(axis)] for axis in range(len(shape)))
        return np.ascontiguousarray(weights(place, here).transpose(order)).reshape(shape)

    return weigh


def align_outputs(a: ModelProbe, b: ModelProbe, left: Evaluation, right: Evaluation) -> list[tuple[int, ...]]:
    """Return, for each output, the order of axes that takes the first model's to the second's.

    Args:
        a: The first model, for messages.
        b: The second.
        left: What the first gives: arrays of [batch, ...].
        right: What the second gives.

    Raises:
        SpecError: There are more of one, or shapes that do not fit.
    """
    here, there = ([one.shape for one in made.outputs] for made in (left, right))
    if len(here) != len(there):
        raise SpecError("inputs", f"{a.name} returns {_shown(here)}, {b.name} {_shown(there)}: they are not as many")
    found = []
    for at, (one, two) in enumerate(zip(here, there, strict=True)):
        if one == two:
            found.append(tuple(range(len(one))))
        elif len(one) == len(two) >= 3 and (one[0], *one[2:], one[1]) == two:
            found.append((0, *range(2, len(one)), 1))  # channels last
        elif len(one) == len(two) >= 3 and (two[0], *two[2:], two[1]) == one:
            found.append((0, len(one) - 1, *range(1, len(one) - 1)))
        else:
            raise SpecError("inputs", f"output {at} of {a.name} is {list(one)}, of {b.name} {list(two)}")
    return found


def _shown(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(str(list(one)) for one in shapes)


def values_of(
    model: ModelProbe, pieces: Sequence[LeafPart], own: Mapping[LeafPart, NDArray[np.float64]], seed: int
) -> dict[str, NDArray[np.float64]]:
    """Return values for every leaf: those of its pieces that have some, and what any of their extents gets.

    Args:
        model: Whose leaves they are.
        pieces: All of its pieces.
        own: LeafValues of pieces.
        seed: Of what the others get.
    """
    flat = {leaf: np.empty(value.size) for leaf, value in model.leaves.items()}
    for one in pieces:
        given = own.get(one)
        flat[one.leaf][one.index] = symmetric(one.index.shape, one.kind, seed) if given is None else given
    return {leaf: flat[leaf].reshape(value.shape) for leaf, value in model.leaves.items()}


def own_values(matches: Sequence[Alike], seed: int) -> tuple[dict[LeafPart, NDArray[np.float64]], ...]:
    """Return values of their own for pieces that were matched, the same in both models.

    Args:
        matches: Pairs of pieces; the second gets the values of the first, with its axes turned.
        seed: Of the draws.
    """
    left: dict[LeafPart, NDArray[np.float64]] = {}
    right: dict[LeafPart, NDArray[np.float64]] = {}
    for at, one in enumerate(matches):
        left[one.first] = drawn(one.first.index.shape, one.first.kind, (seed, at, 7))
        right[one.second] = left[one.first].transpose(one.axes)
    return left, right

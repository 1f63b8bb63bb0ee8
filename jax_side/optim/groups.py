"""What an optimizer is made of: its groups, its state, and the transformation that knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import optax

from jax_side.optim.leaves import Leaves
from parity.state import GroupRule, OptimizerKind, assign_groups

__all__ = ["Group", "OptimState", "Optimizer"]


class OptimState(NamedTuple):
    """State of an optimizer.

    PyTorch counts updates for each parameter, Optax once for all; a parameter that is unfrozen late has another bias
    correction, so the types of Optax, which have one count, cannot hold the state.
    """

    count: jax.Array
    """Calls of `update`, int32: the position of a learning rate that is a schedule."""
    step: jax.Array
    """Updates of each parameter, in the order of the leaves, 0 before its first one; where torch keeps no count (SGD,
    Muon, Lion), 1 after the first. One vector: a hundred scalars cost a call half a millisecond."""
    slots: dict[str, Any]
    """Neutral slot name to a tree like the parameters, None where a parameter has no such slot."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """One parameter group with all of its arguments."""

    label: str
    kind: OptimizerKind
    arguments: Mapping[str, Any]
    carried: Mapping[str, Any] = field(default_factory=dict)
    """Keys of torch's group that mean nothing here, such as the `initial_lr` of a scheduler."""
    starts: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the call by which slots start, where the group has its own: torch starts Adagrad's sums so, and
    shows the group's."""


class Optimizer(optax.GradientTransformationExtraArgs):
    """An Optax transformation that knows its groups, so that its state can be converted.

    `init(params)` returns an `OptimState`. `update(grads, state, params)` also takes `mask`, and the values that a
    schedule moves: `learning_rate`, `betas`, `momentum`, each one for all groups or label to value.
    """

    groups: tuple[Group, ...]
    rules: tuple[GroupRule, ...]
    kinds: Mapping[str, str] | None
    leaves: Leaves
    scalar_dtype: Any
    """Of counts, NAdam's product and ASGD's rate; None to follow JAX's default, when a state is made."""

    def group_of(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, Group]:
        """Return the group of each parameter, by neutral name.

        Args:
            shapes: Neutral name to shape, in PyTorch's layout.

        Raises:
            SpecError: As of `parity.state.assign_groups`.
        """
        if not self.rules:
            return dict.fromkeys(shapes, self.groups[0])
        by_label = {group.label: group for group in self.groups}
        return {name: by_label[label] for name, label in assign_groups(self.rules, shapes, self.kinds).items()}

"""One rule: leaves of one tree, those of another that are the same values, and what turns the ones into the others.

A rule is data and is checked before an array is read. Those who write rules spell them in their own words (rows of
RULES.toml, rules of a restore, rows for a port); all of them become this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from parity.errors import CheckpointError
from parity.mapping.parts import Stack, Tie
from parity.mapping.transform import CLASSES, Extents, RuleClass, Transform

__all__ = ["LeafRule", "RulePlacement"]


@dataclass(frozen=True)
class LeafRule:
    """Names on both sides, and the transforms on the way.

    Example:
        >>> from parity.mapping import Join, Transpose
        >>> rule = LeafRule(("q.weight", "k.weight"), ("qk.kernel",), (Join(0), Transpose()))
        >>> rule.how, rule.rule_class
        ('joined along axis 0, transposed', 'equivariant')
        >>> back = rule.inverse([(8, 4), (2, 4)])
        >>> print(*back.source, "->", *back.target, "|", back.how)
        qk.kernel -> q.weight k.weight | transposed, split [8, 2] along axis 0
    """

    source: tuple[str, ...]
    """Names, which may have `*` (`parity.mapping.names`). Several become one, or one array is each of them."""
    target: tuple[str, ...]
    """Names on the other side, whose `*` stand for the same; where layers are stacked, they have one `*` less."""
    transforms: tuple[Transform, ...] = ()
    """What happens to the arrays, in this order."""
    collection: str = ""
    """Top-level key on the other side, such as `batch_stats`; empty for the usual one."""

    @property
    def how(self) -> str:
        """Return what happens to an array, as a phrase; empty if only its name changes."""
        return ", ".join(one.how for one in self.transforms)

    @property
    def rule_class(self) -> RuleClass:
        """Return what the rule means for the moments of an optimizer: the worst of what its transforms mean."""
        return max((one.rule_class for one in self.transforms), key=list(CLASSES).index, default="equivariant")

    @property
    def stacks(self) -> bool:
        """Return whether the last `*` of its names counts the layers of a stack."""
        return any(isinstance(one, Stack) for one in self.transforms)

    @property
    def ties(self) -> bool:
        """Return whether its names are those of one parameter."""
        return any(isinstance(one, Tie) for one in self.transforms)

    @property
    def needs_shapes(self) -> bool:
        """Return whether its inverse has to be told the shapes of its arrays."""
        return any(one.needs_shapes for one in self.transforms)

    def inverse(self, shapes: Extents | None = None) -> LeafRule:
        """Return the rule that leads back.

        Args:
            shapes: Of the arrays under the names of `source`; needed where it `needs_shapes`.

        Raises:
            CheckpointError: The rule has no way back, needs shapes and has none, or they do not fit it.
        """
        name, back = self.source[0], []
        if self.rule_class in ("merging", "lossy"):
            raise CheckpointError(f"the rule of {name} is {self.rule_class} and has no way back")
        if shapes is None and self.needs_shapes:
            raise CheckpointError(f"the rule of {name} needs the shapes of its arrays for a way back")
        moved = shapes
        try:
            for one in self.transforms:
                back.append(one.inverse(moved or ()))
                moved = None if moved is None else one.moved(moved)
        except IndexError:  # an axis that they do not have
            shown = " and ".join(str(list(shape)) for shape in shapes or ())
            raise CheckpointError(f"the rule of {name} ({self.how}) does not fit arrays of {shown}") from None
        return LeafRule(self.target, self.source, tuple(reversed(back)), self.collection)


@dataclass(frozen=True)
class RulePlacement:
    """A rule with its names filled in: arrays of one tree, and where they lie in the other."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    rule: LeafRule

    def forward(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the arrays under the names of the target, from those of the source.

        Raises:
            CheckpointError: Their shapes do not fit the rule.
        """
        return self._carry(self.rule, arrays)

    def backward(self, arrays: Sequence[Any], shapes: Extents | None = None) -> list[Any]:
        """Return the arrays under the names of the source, from those of the target.

        Args:
            arrays: Of the target.
            shapes: Shape of each array of the source, for what a reshape or a join does not tell.

        Raises:
            CheckpointError: The rule has no way back, or the shapes do not fit.
        """
        return self._carry(self._back if shapes is None else self._filled.inverse(shapes), arrays)

    @property
    def _filled(self) -> LeafRule:
        return LeafRule(self.source, self.target, self.rule.transforms)

    @cached_property
    def _back(self) -> LeafRule:
        """The way back where no shapes are needed: one placement carries a leaf at every save."""
        return self._filled.inverse()

    def _carry(self, rule: LeafRule, arrays: Sequence[Any]) -> list[Any]:
        """Return arrays after the transforms of a rule; messages name the source in both directions."""
        carried = list(arrays)
        for one in rule.transforms:
            carried = one.forward(carried, self.source)
        return carried

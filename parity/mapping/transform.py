"""What every transform of a rule is: something that happens to arrays, with its effect on shapes and its inverse.

An inverse is a transform too, so a way back is composed like a way there. Where it needs to know how the arrays lay
before, it is made from their shapes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from parity.errors import CheckpointError

__all__ = ["CLASSES", "Extents", "RuleClass", "Transform"]

RuleClass = Literal["equivariant", "value-scaling", "merging", "lossy"]
CLASSES: Mapping[RuleClass, str] = {
    "equivariant": "moves elements, so moments and steps convert exactly",
    "value-scaling": "changes the scale of gradients: an optimizer that divides by their size takes other steps",
    "merging": "makes one parameter of several: their moments cannot be made one, and training goes on differently",
    "lossy": "rounds, so the way back gives other bits",
}
"""Class of a rule to what it means for the state of an optimizer (`docs/formats.md`), the mildest first."""

Extents = Sequence[tuple[int, ...]]


class Transform(ABC):
    """One thing that happens to the arrays of a rule.

    Attributes:
        says: What happens, as a phrase with the fields of the transform in braces.
        rule_class: What it means for the moments of an optimizer.
        needs_shapes: Whether its inverse needs the shapes of the arrays before it.
    """

    says: ClassVar[str]
    rule_class: ClassVar[RuleClass] = "equivariant"
    needs_shapes: ClassVar[bool] = False

    @property
    def how(self) -> str:
        """Return what happens, as a phrase."""
        return self.says.format(**{k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()})

    @abstractmethod
    def forward(self, arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return the arrays after it.

        Args:
            arrays: Those before it.
            names: Of the arrays that a message is about.

        Raises:
            CheckpointError: Their shapes do not fit.
        """

    def moved(self, shapes: Extents) -> list[tuple[int, ...]]:
        """Return the shapes of the arrays after it, from those before it; the same unless it says otherwise."""
        return [tuple(shape) for shape in shapes]

    def inverse(self, shapes: Extents) -> Transform:
        """Return the way back.

        Args:
            shapes: Of the arrays before it; only what `needs_shapes` looks at them.

        Raises:
            CheckpointError: There is none: what went in cannot be told from what came out.
        """
        raise CheckpointError(f"what was {self.how} has no way back")

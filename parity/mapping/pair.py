"""Pairs of leaves that stand for the same value, and the rows of a user that say which they are.

Paths are those of live state, in which a `*` is any text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from parity.errors import SpecError
from parity.mapping.axes import Permute, Reshape
from parity.mapping.names import by_text, fill_text
from parity.mapping.rule import LeafRule, RulePlacement
from parity.mapping.transform import Transform

__all__ = ["Arrays", "Pair", "PairRule", "by_rules", "matching"]

PairRule = tuple[str, str] | tuple[str, str, "str | Sequence[int]"]
"""A path of the trainer, the path of its port, and how the axes go over: `transpose`, `reshape`, or a permutation
as of `numpy.transpose`. `*` stands for the same text on both sides."""

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Pair:
    """Two leaves that stand for the same value.

    Example:
        >>> pair = Pair("q.weight", "q.kernel", "model.params", (1, 0))
        >>> pair.placement((2, 3), (3, 2)).rule.how, pair.placement((2, 3), (6,)).rule.how
        ('permuted [1, 0]', 'permuted [1, 0], reshaped to [6]')
    """

    a: str
    b: str
    component: str
    axes: tuple[int, ...] | None = None
    """Permutation that takes the axes of `a` to those of `b`; None where they are in the same order."""

    @property
    def turned(self) -> Pair:
        """Return the pair from the other side."""
        axes = None if self.axes is None else Permute(self.axes).inverse().axes
        return Pair(self.b, self.a, self.component, axes)

    def placement(self, here: tuple[int, ...], there: tuple[int, ...]) -> RulePlacement:
        """Return what takes `a` to `b`.

        Args:
            here: Shape of `a`.
            there: Shape of `b`.
        """
        transforms: list[Transform] = [] if self.axes is None else [Permute(self.axes)]
        if (here if self.axes is None else tuple(here[axis] for axis in self.axes)) != there:
            transforms.append(Reshape(there))
        return RulePlacement((self.a,), (self.b,), LeafRule((self.a,), (self.b,), tuple(transforms)))

    def carry(self, values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Return values of `a` as `b` holds them.

        Args:
            values: Of leaf `a`.
            shape: Of leaf `b`.
        """
        [moved] = self.placement(values.shape, shape).forward([values])
        return moved


def by_rules(a: Arrays, b: Arrays, component: str, rules: Iterable[PairRule]) -> dict[str, Pair]:
    """Return the pairs that rows say, by the path of the trainer.

    Args:
        a: Path to values of the trainer.
        b: The same of its port.
        component: What the leaves are.
        rules: Rows of paths and transforms.

    Raises:
        SpecError: A row that matches nothing, gives a leaf twice, or does not fit the shapes.
    """
    found: dict[str, Pair] = {}
    taken: set[str] = set()
    for rule in rules:
        left, right, how = (*rule, "same")[:3]
        matches = matching(rule, a)
        if not matches:
            raise SpecError("rules", f"{left!r} matches no array of the trainer; it has {', '.join(list(a)[:6])}")
        for path, stars in matches.items():
            other = fill_text(right, stars)
            if other not in b:
                raise SpecError("rules", f"{left!r} takes {path} to {other}, which the port has not; it has "
                                f"{', '.join(list(b)[:6])}")  # fmt: skip
            if path in found or other in taken:
                raise SpecError("rules", f"two rows for {path if path in found else other}; give each leaf one row")
            found[path] = _fitting(path, other, component, how, a[path].shape, b[other].shape)
            taken.add(other)
    return found


def matching(rule: PairRule, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the paths of the trainer that a rule names, with the texts that its stars stand for.

    Args:
        rule: Its first text may hold stars.
        paths: Those of the trainer.
    """
    takes = by_text(rule[0])
    matches = ((path, takes.fullmatch(path)) for path in paths)
    return {path: match.groups() for path, match in matches if match is not None}


def _fitting(path: str, other: str, component: str, how: Any, here: tuple[int, ...], there: tuple[int, ...]) -> Pair:
    axes: tuple[int, ...] | None = None
    if how == "transpose":
        axes = tuple(reversed(range(len(here))))
    elif not isinstance(how, str):
        axes = tuple(how)
        if sorted(axes) != list(range(len(here))):
            raise SpecError("rules", f"{path} has {len(here)} axes, the permutation is {list(axes)}")
    elif how not in ("same", "reshape"):
        raise SpecError("rules", f"transform of {path} must be same, transpose, reshape or axes, got {how!r}")
    moved = here if axes is None else tuple(here[axis] for axis in axes)
    if moved != there and (how != "reshape" or math.prod(moved) != math.prod(there)):
        raise SpecError("rules", f"{path} {list(here)} does not fit {other} {list(there)} by {how!r}")
    return Pair(path, other, component, axes)

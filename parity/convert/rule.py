"""One rule of a conversion, and what it does to arrays in both directions.

One row carries a parameter and its moments. A rule is data and is checked before an array is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from parity.convert.transforms import Added, Cast, Cut, Joined, Permuted, Reshaped, Scaled, Stacked
from parity.errors import CheckpointError
from parity.formats import Array, dtype_named

__all__ = ["CLASSES", "ConversionRule", "RuleClass", "RulePlacement", "require_dtype"]

RuleClass = Literal["equivariant", "value-scaling", "merging", "lossy"]
CLASSES: Mapping[RuleClass, str] = {
    "equivariant": "moves elements, so moments and steps convert exactly",
    "value-scaling": "changes the scale of gradients: an optimizer that divides by their size takes other steps",
    "merging": "makes one parameter of several: their moments cannot be made one, and training goes on differently",
    "lossy": "rounds, so the way back gives other bits",
}
"""Class of a rule to what it means for the state of an optimizer (`docs/formats.md`)."""


@dataclass(frozen=True, kw_only=True)
class ConversionRule:
    """One row: names on both sides, and what happens to the array on the way to JAX, in this order of fields."""

    torch: tuple[str, ...]
    """Names in PyTorch; `*` stands for one part between dots. Several are joined, added or tied."""
    jax: tuple[str, ...]
    """Paths in JAX, keys joined by dots; their `*` stand for the same parts. Several are cut out of one."""
    join: int | None = None
    """Axis along which several PyTorch arrays are joined."""
    stack: int | None = None
    """New axis along which the arrays of all values of the last `*` in `torch` lie; `jax` has one `*` less."""
    add: bool = False
    """Whether several PyTorch arrays are added: a merging rule."""
    tie: bool = False
    """Whether several PyTorch names are one parameter, which is one leaf in JAX."""
    permute: tuple[int, ...] = ()
    """Order of the axes, as `numpy.transpose` takes it."""
    transpose: bool = False
    """Whether the last two axes are exchanged."""
    reshape: tuple[int, ...] = ()
    """Shape in JAX; back, it is the one that the target has, or that was recorded."""
    scale: float | None = None
    """Factor: a value-scaling rule."""
    cast: str = ""
    """Dtype in JAX: a lossy rule, unless it is the array's."""
    split: tuple[int, ...] = ()
    """Extents of the parts along `axis`, one for each path in `jax`."""
    axis: int = 0
    """Axis of `split`."""
    collection: str = ""
    """Top-level key in JAX, such as `batch_stats`; `params` by default, `buffers` for PyTorch's buffers."""

    @property
    def rule_class(self) -> RuleClass:
        """Return what the rule means for the moments of an optimizer."""
        if self.cast:
            return "lossy"
        if self.add:
            return "merging"
        return "value-scaling" if self.scale is not None else "equivariant"

    @property
    def how(self) -> str:
        """Return what happens to an array, as a phrase; empty if only its name changes."""
        parts = [
            f"joined along axis {self.join}" if self.join is not None else "",
            f"stacked along axis {self.stack}" if self.stack is not None else "",
            "added" if self.add else "",
            "tied" if self.tie else "",
            f"permuted {list(self.permute)}" if self.permute else "",
            "transposed" if self.transpose else "",
            f"reshaped to {list(self.reshape)}" if self.reshape else "",
            f"times {self.scale!r}" if self.scale is not None else "",
            f"cast to {self.cast}" if self.cast else "",
            f"split {list(self.split)} along axis {self.axis}" if self.split else "",
        ]
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class RulePlacement:
    """A rule with its names filled in: some PyTorch arrays, and where they lie in JAX."""

    torch: tuple[str, ...]
    jax: tuple[str, ...]
    rule: ConversionRule

    def forward(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays of the JAX paths, from those of the PyTorch names.

        Raises:
            CheckpointError: Their shapes do not fit the rule.
        """
        rule = self.rule
        one = arrays[0]
        if rule.stack is not None:
            one = Stacked(arrays, rule.stack)
        elif rule.join is not None:
            one = Joined(arrays, rule.join)
        elif rule.add:
            one = Added(arrays)
        elif len(arrays) > 1 and len({(a.shape, a.dtype) for a in arrays}) > 1:
            raise CheckpointError(f"{' and '.join(self.torch)} are tied and differ: {', '.join(map(str, arrays))}")
        if axes := self._axes(len(one.shape)):
            one = Permuted(one, axes)
        if rule.reshape:
            one = Reshaped(one, rule.reshape)
        if rule.scale is not None:
            one = Scaled(one, rule.scale)
        if rule.cast:
            one = Cast(one, require_dtype(rule.cast))
        if not rule.split:
            return [one]
        if sum(rule.split) != (one.shape[rule.axis] if rule.axis < len(one.shape) else -1):
            raise CheckpointError(
                f"{self.torch[0]}: parts {list(rule.split)} do not make up {one} along axis {rule.axis}"
            )
        ends = [sum(rule.split[:at]) for at in range(len(rule.split) + 1)]
        return [Cut(one, rule.axis, a, b) for a, b in pairwise(ends)]

    def backward(self, arrays: Sequence[Array], shapes: Sequence[Sequence[int]]) -> list[Array]:
        """Return the arrays of the PyTorch names, from those of the JAX paths.

        Args:
            arrays: Of the JAX paths.
            shapes: Shape of each PyTorch array, for what a reshape or a join does not tell.

        Raises:
            CheckpointError: The rule has no way back, or the shapes do not fit.
        """
        rule = self.rule
        if rule.add or rule.cast:
            raise CheckpointError(f"the rule of {self.torch[0]} is {rule.rule_class} and has no way back")
        one = Joined(arrays, rule.axis) if rule.split else arrays[0]
        if rule.scale is not None:
            one = Scaled(one, 1 / rule.scale)
        whole = list(shapes[0])
        if rule.stack is not None:
            whole.insert(rule.stack, len(self.torch))
        elif rule.join is not None:
            whole[rule.join] = sum(shape[rule.join] for shape in shapes)
        axes = self._axes(len(whole))
        if rule.reshape:
            one = Reshaped(one, [whole[axis] for axis in axes] if axes else whole)
        if axes:
            one = Permuted(one, [axes.index(axis) for axis in range(len(axes))])
        if rule.stack is not None:
            return [Cut(one, rule.stack, at, at + 1, drop=True) for at in range(len(self.torch))]
        if rule.join is not None:
            ends = [sum(shape[rule.join] for shape in shapes[:at]) for at in range(len(shapes) + 1)]
            return [Cut(one, rule.join, a, b) for a, b in pairwise(ends)]
        return [one for _ in self.torch]

    def _axes(self, ndim: int) -> tuple[int, ...]:
        rule = self.rule
        if rule.permute:
            return rule.permute
        if not rule.transpose:
            return ()
        if ndim < 2:
            raise CheckpointError(
                f"{self.torch[0]} has {ndim} axes, and its rule transposes it; name it in a rule of its own"
            )
        return (*range(ndim - 2), ndim - 1, ndim - 2)


def require_dtype(name: str) -> Any:
    """Return the dtype of a name.

    Raises:
        CheckpointError: There is none.
    """
    found = dtype_named(name)
    if found is None:
        raise CheckpointError(
            f"cast: {name!r} is no dtype; known are float32, bfloat16, float16, float64 and the like"
        )
    return found

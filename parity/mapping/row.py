"""A row of RULES.toml: a rule from PyTorch to JAX in words, each transform a field."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from parity.errors import CheckpointError
from parity.mapping.axes import Permute, Reshape, Transpose
from parity.mapping.parts import Add, Join, Split, Stack, Tie
from parity.mapping.rule import LeafRule
from parity.mapping.transform import RuleClass, Transform
from parity.mapping.values import Cast, Times

__all__ = ["ConversionRule", "row_of"]


@dataclass(frozen=True, kw_only=True)
class ConversionRule:
    """One row: names on both sides, and what happens to the array on the way to JAX, in this order of fields.

    Example:
        >>> row = ConversionRule(torch=("conv.weight",), jax=("conv.kernel",), permute=(2, 3, 1, 0), scale=0.5)
        >>> row.rule
        LeafRule(source=('conv.weight',), target=('conv.kernel',), transforms=(Permute(axes=(2, 3, 1, 0)), \
Times(factor=0.5, divides=False)), collection='')
    """

    torch: tuple[str, ...]
    """Names in PyTorch; `*` stands for one part between dots. Several are joined, added or tied."""
    jax: tuple[str, ...]
    """Paths in JAX, keys joined by dots; their `*` stand for the same parts. Several are cut out of one."""
    join: int | None = None
    """Axis along which several PyTorch arrays are joined; with `stack`, those of each layer."""
    stack: int | None = None
    """New axis along which the arrays of all values of the last `*` in `torch` lie; `jax` has one `*` less."""
    add: bool = False
    """Whether several PyTorch arrays are added: a merging rule."""
    tie: bool = False
    """Whether several PyTorch names are one parameter, which is one leaf in JAX."""
    view: tuple[int, ...] = ()
    """Shape before `permute`, in C order: an axis of heads, and one of the parts of a fused projection, as axes."""
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

    @cached_property
    def rule(self) -> LeafRule:
        """The rule that the row says."""
        transforms: tuple[Transform | None, ...] = (
            Join(self.join, len(self.torch) if self.stack is not None else 0) if self.join is not None else None,
            Stack(self.stack) if self.stack is not None else None,
            Add() if self.add else None,
            Tie(len(self.torch)) if self.tie else None,
            Reshape(self.view) if self.view else None,
            Permute(self.permute) if self.permute else None,
            Transpose() if self.transpose else None,
            Reshape(self.reshape) if self.reshape else None,
            Times(self.scale) if self.scale is not None else None,
            Cast(self.cast) if self.cast else None,
            Split(self.split, self.axis) if self.split else None,
        )
        return LeafRule(self.torch, self.jax, tuple(one for one in transforms if one), self.collection)

    @property
    def rule_class(self) -> RuleClass:
        """Return what the rule means for the moments of an optimizer."""
        return self.rule.rule_class

    @property
    def how(self) -> str:
        """Return what happens to an array, as a phrase; empty if only its name changes."""
        return self.rule.how


def row_of(rule: LeafRule) -> dict[str, Any]:
    """Return a rule as a row of RULES.toml, without what is as by default.

    Args:
        rule: From PyTorch to JAX.

    Raises:
        CheckpointError: No row says it: its transforms are others than a row has, or in another order.

    Example:
        >>> row_of(LeafRule(("fc.weight",), ("fc.kernel",), (Transpose(),)))
        {'torch': ['fc.weight'], 'jax': ['fc.kernel'], 'transpose': True}
    """
    values: dict[str, Any] = {"torch": rule.source, "jax": rule.target, "collection": rule.collection}
    for at, one in enumerate(rule.transforms):
        turned = any(isinstance(later, Permute | Transpose) for later in rule.transforms[at + 1 :])
        values |= {"view": one.shape} if isinstance(one, Reshape) and turned else _fields_of(one)
    row = ConversionRule(**values)
    if row.rule != rule:  # fields have one order: what is done in another one would be another rule when it is read
        raise CheckpointError(f"no row of RULES.toml says: {' + '.join(rule.source)} {rule.how}")
    given = ((field.name, getattr(row, field.name), field.default) for field in fields(row))
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value, default in given if value != default
    }


def _fields_of(transform: Transform) -> dict[str, Any]:
    """Return the fields of a row that say a transform; none for one that no row has."""
    match transform:
        case Join(axis, _):
            return {"join": axis}
        case Stack(axis):
            return {"stack": axis}
        case Add():
            return {"add": True}
        case Tie():
            return {"tie": True}
        case Permute(axes):
            return {"permute": axes}
        case Transpose():
            return {"transpose": True}
        case Reshape(shape):
            return {"reshape": shape}
        case Times(factor, False):
            return {"scale": factor}
        case Cast(dtype):
            return {"cast": dtype}
        case Split(extents, axis):
            return {"split": extents, "axis": axis}
    return {}

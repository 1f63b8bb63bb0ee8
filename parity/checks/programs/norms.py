"""What a norm of a framework may do otherwise: over which axes, in which groups, centred or not, with which epsilon.

What the call does is told by its values: of what it is given, the norm that makes its output is looked for first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.checks.programs.edits import FloatNumbers, OperationChange, computed, equal
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["norms_of"]

_KINDS = frozenset(("group_norm", "layer_norm", "rms_norm", "instance_norm", "batch_norm", "native_layer_norm"))

_EPSILONS = (1e-5, 1e-6, float(np.finfo(np.float64).eps), float(np.finfo(np.float32).eps), 0.0)

LARGEST = 2**18
"""Elements above which no other norm is tried."""


@dataclass(frozen=True)
class _Norm:
    """A way to normalise a value."""

    axes: tuple[int, ...]
    """Over which a mean is taken; with groups, of the value in which their axis is two."""
    group_axis: int = -1
    groups: int = 1
    centred: bool = True
    less: int = 0
    """What the count is made smaller by for the variance."""
    beside: bool = False
    """Whether epsilon is added to the root, not under it."""

    def words(self, ndim: int) -> str:
        """Return it in words."""
        over = f"over axis {self.axes[0]}" if len(self.axes) == 1 else f"over axes {', '.join(map(str, self.axes))}"
        if self.group_axis >= 0:
            over = f"in {self.groups} groups of axis {self.group_axis}" if self.groups > 1 else "in 1 group"
        said = [f"{'a norm' if self.centred else 'a norm that is not centred'} {over}"]
        if self.less:
            said.append("of the variance by n - 1")
        if self.beside:
            said.append("epsilon beside the root")
        return ", ".join(said)

    def of(self, x: FloatNumbers, epsilon: float) -> FloatNumbers:
        """Return a value normalised."""
        held = x
        if self.group_axis >= 0:
            at, count = self.group_axis, x.shape[self.group_axis]
            held = x.reshape(*x.shape[:at], self.groups, count // self.groups, *x.shape[at + 1 :])
        centre = held.mean(self.axes, keepdims=True) if self.centred else 0.0
        count = int(np.prod([held.shape[axis] for axis in self.axes]))
        square = ((held - centre) ** 2).sum(self.axes, keepdims=True) / max(count - self.less, 1)
        root = np.sqrt(square) + epsilon if self.beside else np.sqrt(square + epsilon)
        return np.asarray((held - centre) / root).reshape(x.shape)


@dataclass(frozen=True)
class _Affine:
    """Which inputs of a call scale and shift what is normalised, and along which axis they lie; -1 for none."""

    scale: int = -1
    shift: int = -1
    axis: int = -1

    def of(self, z: FloatNumbers, inputs: OperationArrays) -> FloatNumbers:
        for place, function in ((self.scale, np.multiply), (self.shift, np.add)):
            if place >= 0:
                x = np.asarray(inputs[place])
                shape = [1] * z.ndim
                at = self.axis if self.axis >= 0 else z.ndim - x.ndim
                shape[at : at + x.ndim] = x.shape
                z = function(z, x.reshape(shape))
        return z


def norms_of(one: ProgramOperation) -> Iterator[OperationChange]:
    """Yield other norms in place of the one that a call makes.

    Args:
        one: The call.
    """
    if one.kind not in _KINDS or len(one.outputs) != 1 or not one.inputs:
        return
    x, y = one.inputs[0], one.outputs[0]
    if x.shape != y.shape or not 2 <= x.ndim <= 5 or not 1 < x.size <= LARGEST:
        return
    found = _own(one, x, y)
    if found is None:
        return
    own, affine, epsilon = found
    for other in _others(own, x):
        made = computed(lambda x, norm=other: affine.of(norm.of(x, epsilon), one.inputs), x)
        if np.isfinite(made).all() and not equal(made, y):
            edit = OperationEdit(after=_making(other, affine, epsilon))
            yield OperationChange("norm", own.words(x.ndim), other.words(x.ndim), 0, edit)


def _own(one: ProgramOperation, x: FloatNumbers, y: FloatNumbers) -> tuple[_Norm, _Affine, float] | None:
    """Return the norm that makes an output of an input, what scales it, and its epsilon."""
    numbers = [number for number in one.numbers.values() if 0.0 <= number < 0.1]
    for norm in _all(x):
        for affine in _affines(one):
            for epsilon in (*numbers, *_EPSILONS):
                try:
                    made = computed(lambda x, n=norm, a=affine, e=epsilon: a.of(n.of(x, e), one.inputs), x)
                except ValueError:
                    continue
                if equal(made, y):
                    return norm, affine, epsilon
    return None


def _affines(one: ProgramOperation) -> Iterator[_Affine]:
    last = len(one.inputs) - 1
    ndim = one.inputs[0].ndim
    yield _Affine()
    for axis in (-1, 1) if ndim > 2 else (-1,):
        if last >= 2:
            yield _Affine(last - 1, last, axis)
        if last >= 1:
            yield _Affine(last, -1, axis)


def _all(x: FloatNumbers) -> Iterator[_Norm]:
    axes = range(x.ndim)
    for count in axes:
        for over in itertools.combinations(axes, count + 1):
            if int(np.prod([x.shape[axis] for axis in over])) > 1:
                yield _Norm(over)
                yield _Norm(over, centred=False)
    for axis in (1, x.ndim - 1) if x.ndim > 2 else (1,):
        for groups in range(2, x.shape[axis]):
            if x.shape[axis] % groups == 0:
                yield _Norm(_in_group(axis, x.ndim), axis, groups)


def _in_group(axis: int, ndim: int) -> tuple[int, ...]:
    """Return over which axes of a value in groups a mean is taken: within the group, and places of an image."""
    return tuple(range(2, ndim + 1)) if axis == 1 else (axis + 1,)


def _others(own: _Norm, x: FloatNumbers) -> Iterator[_Norm]:
    yield replace(own, centred=not own.centred)
    for other in _all(x):
        if other not in (own, replace(own, centred=not own.centred)):
            yield replace(other, centred=own.centred)
    yield replace(own, less=1)
    yield replace(own, beside=True)


def _making(norm: _Norm, affine: _Affine, epsilon: float) -> Callable[..., OperationArrays]:
    def after(
        outputs: OperationArrays, inputs: OperationArrays, sources: Sequence[OperationArrays]
    ) -> OperationArrays:
        return (computed(lambda x: affine.of(norm.of(x, epsilon), inputs), np.asarray(inputs[0])),)

    return after

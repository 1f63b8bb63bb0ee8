"""The mesh of devices of a run: its axes, the table that says which leaf is split along which, and what fits it.

The words are the same on both sides. A leaf has a logical name for each of its axes (`ParamSpec.axes`); `AXES` is the
one table from those names to axes of the mesh.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from parity.errors import SpecError
from parity.spec.models import ModelSpec
from parity.spec.optimizer import LATER
from parity.spec.values import INT32, require, require_numbers, require_positive

__all__ = ["AXES", "MESH_AXES", "MeshSpec", "fit_mesh", "require_mesh", "split_axes"]

MESH_AXES = ("data", "fsdp", "model")
"""Axes of the mesh, the slowest first: devices of one `model` group are neighbours."""

AXES: Mapping[str, tuple[str, ...]] = {
    "batch": ("data", "fsdp"),
    "features": ("fsdp",),
    "embed": ("fsdp",),
    "previous": ("fsdp",),
    "hidden": ("model",),
    "qkv": ("model",),
    "heads": ("model",),
    "vocabulary": ("model",),
    "channels": ("model",),
}
"""Logical axis to the axes of the mesh along which it is split; one that is not here is whole on every device.

`batch` are the samples; `features` the inputs of a model, or of its head; `embed` the residual stream, and every
second width of an MLP, the others are `hidden`; `previous` the channels that a convolution reads, `channels` those
that it writes. Whole are `classes`, `outputs`, `context`, `image` and the `height` and `width` of a kernel: too small
to be split.
"""


@dataclass(frozen=True, kw_only=True)
class MeshSpec:
    """The mesh of devices, and the processes that bring them.

    Devices are `data` x `fsdp` x `model`. Each axis of a side that cannot split along it has to be 1.

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    data: int = 1
    """Devices along which the batch alone is split; `data` x `fsdp` must divide the micro-batch."""
    fsdp: int = field(default=1, metadata=LATER)
    """Devices along which the batch is split, and parameters and optimizer state with it; must divide every axis that
    `AXES` gives it."""
    model: int = field(default=1, metadata=LATER)
    """Devices along which layers are split, all for the same samples; must divide every axis that `AXES` gives it:
    hidden widths, attention heads, the vocabulary, channels."""
    processes: int = field(default=1, metadata=LATER)
    """Processes that train the run, each with an equal share of the devices, which it must divide. With 1, any number
    of processes may share them; any other number is required."""

    def __post_init__(self) -> None:
        require_numbers(self, "mesh")
        require_positive(self, "mesh", "data", "fsdp", "model", "processes")
        most = f"must be at most {INT32} devices, got {self._product(MESH_AXES)}"
        require(self.devices <= INT32, "mesh", most)
        if self.devices % self.processes:
            problem = f"{self._product(MESH_AXES)} devices over {self.processes} processes leaves"
            nearest = _nearest(self.processes, self.devices)
            raise SpecError(
                "mesh.processes", f"{problem} {self.devices % self.processes}; nearest: mesh.processes = {nearest}"
            )

    @property
    def devices(self) -> int:
        """Return the devices of the mesh, over all processes."""
        return self.data * self.fsdp * self.model

    @property
    def sizes(self) -> dict[str, int]:
        """Return axis of the mesh to its size, in the order of `MESH_AXES`."""
        return {name: getattr(self, name) for name in MESH_AXES}

    def _product(self, names: Sequence[str]) -> str:
        """Return the sizes of some axes and their product as text: `2 x 2 = 4`, or `2` if only one is not 1."""
        sizes = [size for name in names if (size := getattr(self, name)) > 1]
        text = " x ".join(map(str, sizes)) or "1"
        return f"{text} = {math.prod(sizes)}" if len(sizes) > 1 else text


def split_axes(axes: Sequence[str], mesh: MeshSpec) -> tuple[tuple[str, ...], ...]:
    """Return the axes of the mesh along which each axis of a leaf is split; those of one device split nothing.

    Args:
        axes: Logical names, as in `ParamSpec.axes`.
        mesh: The mesh.

    Example:
        >>> split_axes(("hidden", "embed"), MeshSpec(data=2, model=2))
        (('model',), ())
    """
    return tuple(tuple(one for one in AXES.get(name, ()) if getattr(mesh, one) > 1) for name in axes)


class _Divided(NamedTuple):
    """Something that an axis of the mesh must divide."""

    size: int
    what: str


def fit_mesh(mesh: MeshSpec, axis: str, devices: int) -> MeshSpec:
    """Return a mesh of so many devices, of which one axis takes what the others leave.

    Args:
        mesh: The mesh; its size along `axis` does not count.
        axis: One of `MESH_AXES`.
        devices: Devices that there are; where the mesh names processes, each is taken to bring one.

    Raises:
        SpecError: The other axes do not divide the devices.

    Example:
        >>> fit_mesh(MeshSpec(data=8, model=2), "data", 6).data
        3
    """
    others = [name for name in MESH_AXES if name != axis]
    size, left = divmod(devices, math.prod(getattr(mesh, name) for name in others))
    if left or not size:
        problem = f"{devices} devices over {mesh._product(others)} along {' and '.join(others)} leaves {left}"
        raise SpecError(f"mesh.{axis}", f"{problem}; start a multiple")
    return replace(mesh, **{axis: size, "processes": devices if mesh.processes > 1 else 1})


def require_mesh(mesh: MeshSpec, model: ModelSpec, batch: int, accumulation: int) -> None:
    """Raise a SpecError unless a mesh divides the micro-batch and what it splits of the model.

    Args:
        mesh: The mesh.
        model: The model.
        batch: Samples of a step.
        accumulation: Micro-batches of a step; divides `batch`.

    Raises:
        SpecError: It does not; the message has the arithmetic, and the nearest mesh that does.
    """
    micro = batch // accumulation
    for axis, word in (("model", "split"), ("fsdp", "sharded")):
        if (size := getattr(mesh, axis)) == 1:  # a model may have a hundred thousand leaves
            continue
        divided = list(_divided(model, axis))
        if not divided:
            problem = f"{size} devices asked for, but nothing of a model of kind {model.kind!r} is {word} along it"
            raise SpecError(f"mesh.{axis}", problem + _works(mesh, model, micro))
        for one in divided:
            if one.size % size:
                problem = f"{one.what} over {size} devices leaves {one.size % size}"
                raise SpecError(f"mesh.{axis}", problem + _works(mesh, model, micro))
    if micro % (over := mesh.data * mesh.fsdp):
        axis = "data" if mesh.data > 1 else "fsdp"
        problem = (
            f"micro-batch of {batch} / {accumulation} = {micro} samples over "
            f"{mesh._product(('data', 'fsdp'))} devices leaves {micro % over}"
        )
        raise SpecError(f"mesh.{axis}", problem + _works(mesh, model, micro))


def _divided(model: ModelSpec, axis: str) -> Iterator[_Divided]:
    """Yield what an axis of the mesh must divide, each logical axis of a size once."""
    seen = set()
    for leaf in model.param_specs():
        for name, size in zip(leaf.axes, leaf.shape, strict=False):
            if axis not in AXES.get(name, ()):
                continue
            unit, count = model.units().get(name, (name, size))
            if (unit, count) in seen:
                continue
            seen.add((unit, count))
            what = f"{count} {unit}" if name in model.units() else f"axis {name!r} of {leaf.name}, {size} wide,"
            yield _Divided(count, what)


def _works(mesh: MeshSpec, model: ModelSpec, micro: int) -> str:
    """Return the end of a message: the mesh that works whose axes differ least from those that were asked for."""
    widths = {axis: math.gcd(*(one.size for one in _divided(model, axis)), 0) or 1 for axis in ("fsdp", "model")}
    of_model = _nearest(mesh.model, widths["model"])
    pairs = [(_nearest(mesh.data, micro // fsdp), fsdp) for fsdp in _divisors(math.gcd(widths["fsdp"], micro))]
    data, fsdp = min(
        pairs, key=lambda pair: (abs(pair[0] - mesh.data) + abs(pair[1] - mesh.fsdp), -pair[0] * pair[1])
    )
    works = replace(mesh, data=data, fsdp=fsdp, model=of_model, processes=1)
    changed = [name for name in MESH_AXES if getattr(works, name) != getattr(mesh, name)]
    return f"; nearest: {', '.join(f'mesh.{name} = {getattr(works, name)}' for name in changed)}"


def _nearest(asked: int, size: int) -> int:
    """Return the divisor of a size that is nearest to a number, the larger of two."""
    return min(_divisors(size), key=lambda one: (abs(one - asked), -one))


def _divisors(size: int) -> list[int]:
    low = [one for one in range(1, math.isqrt(size) + 1) if size % one == 0]
    return sorted({*low, *(size // one for one in low)})

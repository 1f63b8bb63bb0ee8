"""Placements of a run, in words as `mesh` of a spec has them, and the pairs of them that a check goes through."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from parity.errors import SpecError
from parity.spec import MeshSpec, RunSpec

__all__ = ["DEFAULT_PLACEMENTS", "NamedMesh", "fitting_placements", "pairs_of", "parse_placement"]

DEFAULT_PLACEMENTS = (
    "data=1",
    "data=4",
    "fsdp=4",
    "data=2,fsdp=2",
    "fsdp=2,model=2",
    "data=2,processes=2",
    "fsdp=2,model=2,processes=4",
)
"""One device, each kind of mesh, mixed ones, and several processes."""


@dataclass(frozen=True)
class NamedMesh:
    """A placement: its mesh, and how it is called."""

    mesh: MeshSpec

    @property
    def name(self) -> str:
        """Return the fields that are not 1, as `parse_placement` takes them.

        Example:
            >>> NamedMesh(MeshSpec(fsdp=2, processes=2)).name, NamedMesh(MeshSpec()).name
            ('fsdp=2,processes=2', 'data=1')
        """
        sizes = {one.name: getattr(self.mesh, one.name) for one in fields(self.mesh)}
        return ",".join(f"{name}={size}" for name, size in sizes.items() if size > 1) or "data=1"

    def of(self, spec: RunSpec) -> RunSpec:
        """Return a run on this placement.

        Raises:
            SpecError: The mesh does not divide it.
        """
        return replace(spec, mesh=self.mesh)


def parse_placement(text: str) -> NamedMesh:
    """Return the placement of a text: fields of `mesh` with their sizes, separated by commas.

    Raises:
        SpecError: A field does not exist, or a size is not an integer above 0.

    Example:
        >>> parse_placement("fsdp=2, model=2").mesh
        MeshSpec(data=1, fsdp=2, model=2, processes=1)
    """
    known = [one.name for one in fields(MeshSpec)]
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = (word.strip() for word in part.partition("="))
        if name not in known or name in sizes or not (size.isascii() and size.isdigit()):
            expected = f"expected {', '.join(f'{one}=N' for one in known)}, each at most once"
            raise SpecError("--placement", f"{expected}, got {part.strip()!r} in {text!r}")
        sizes[name] = int(size)
    return NamedMesh(MeshSpec(**sizes))


def fitting_placements(spec: RunSpec) -> list[NamedMesh]:
    """Return those of `DEFAULT_PLACEMENTS` that divide a run: its batch, and what they split of its model."""
    found = []
    for text in DEFAULT_PLACEMENTS:
        one = parse_placement(text)
        try:
            one.of(spec)
        except SpecError:
            continue
        found.append(one)
    return found


def pairs_of(placements: Sequence[NamedMesh], *, every: bool = False) -> list[tuple[NamedMesh, NamedMesh]]:
    """Return pairs of placements: where a run is saved, and where it is resumed.

    Args:
        placements: At least two, each another one.
        every: Whether each is paired with each other one; else each is saved on once and resumed on once.

    Raises:
        SpecError: There are fewer than two, or one is there twice.

    Example:
        >>> ring = pairs_of([parse_placement(text) for text in ("data=1", "data=2", "fsdp=2")])
        >>> [f"{a.name} > {b.name}" for a, b in ring]
        ['data=1 > data=2', 'data=2 > fsdp=2', 'fsdp=2 > data=1']
    """
    names = [one.name for one in placements]
    if len(set(names)) < max(2, len(names)):
        raise SpecError("--placement", f"expected two or more, each once, got {', '.join(names) or 'none'}")
    if every:
        return list(itertools.permutations(placements, 2))
    return list(zip(placements, [*placements[1:], placements[0]], strict=True))

"""What the format of a checkpoint can prove about its bytes, for checkpoints without a seal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parity.convert.opening import open_any
from parity.errors import CheckpointError
from parity.formats import leaf_name, leaves

__all__ = ["Proof", "prove"]


@dataclass(frozen=True)
class Proof:
    """What was checked of a checkpoint of another tool."""

    path: Path
    format: str
    """Empty where it could not be opened."""
    arrays: int
    nbytes: int
    values: int
    """Leaves that are read and are no arrays."""
    unread: tuple[str, ...]
    """What only code could rebuild, of which nothing was checked: leaf and class."""
    checked: str
    """What was compared, as a phrase; empty if the format has nothing to compare with."""
    unproven: str
    """What nothing in the format can prove."""
    faults: tuple[tuple[str, str], ...]
    """Record or leaf, and what is wrong with it."""


def prove(path: Path) -> Proof:
    """Check a checkpoint as far as its format allows: its structure, and the checksums that it has.

    Damage is returned, never raised; a path that does not exist or has no known format is an error.

    Raises:
        CheckpointError: There is nothing, or nothing that is known.
    """
    source = open_any(path)
    arrays, opaque = source.arrays(), source.opaque()
    rest = sum(not isinstance(leaf, dict | list | tuple) for _, leaf in leaves(source.tree))
    try:
        faults = source.faults()
    except (CheckpointError, OSError) as error:
        faults = [(path.name, str(error))]
    return Proof(
        path=path,
        format=source.format,
        arrays=len(arrays),
        nbytes=sum(array.nbytes for array in arrays.values()),
        values=rest - len(arrays) - len(opaque),
        unread=tuple(f"{leaf_name(keys) or path.name} is an {one}" for keys, one in opaque.items()),
        checked=source.checked,
        unproven=source.unproven,
        faults=tuple(faults),
    )

"""The verification of checkpoints against their seals; needs neither jax nor torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from parity.checkpoints.ranges import ByteRange, is_intact
from parity.checkpoints.seal import FILE, LONE, Seal, compare_listing, read_seal
from parity.errors import CheckpointError, DamagedError, UnsealedError
from parity.state import TrainingState, compare_digests, leaf_digests, orders_of
from parity.storage import FileDigest, digest_files, list_files, read_json

__all__ = [
    "Fault",
    "Restored",
    "Verified",
    "describe",
    "read_meta",
    "require_leaves",
    "require_sealed",
    "require_verified",
    "verify",
]

StateOf = TypeVar("StateOf")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is not as it was sealed."""

    file: str
    problem: str
    leaves: tuple[str, ...] = ()
    """Leaves whose bytes are wrong or gone; empty when the damage lies outside of any, or that is not known."""


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What verifying one checkpoint found."""

    path: Path
    seal: Seal | None = None
    """None when there is none, or none that can be trusted."""
    faults: tuple[Fault, ...] = field(default=())
    unsealed: bool = False
    """There is no seal to compare with."""

    @property
    def whole(self) -> bool:
        """Return whether every byte is as it was sealed."""
        return self.seal is not None and not self.faults


def verify(path: Path, spec_hash: str | None = None) -> Verified:
    """Compare every file of a checkpoint with its seal, and name the leaves that are wrong.

    Reads each byte once; a second time only what is damaged. Damage of any kind is returned, never raised.

    Args:
        path: The checkpoint.
        spec_hash: Hash of the run it must belong to, where that is known.

    Example:
        >>> import tempfile
        >>> from parity.checkpoints import Seal, commit
        >>> with tempfile.TemporaryDirectory() as home:
        ...     draft, final = Path(home, "draft"), Path(home, "100")
        ...     draft.mkdir()
        ...     file = final / "state.bin"
        ...     _ = (draft / file.name).write_bytes(b"0123")
        ...     _ = commit(draft, final, Seal(step=100, metric=None, saved_at=0.0, side="mine", spec_hash="a1"))
        ...     print(verify(final).whole)
        ...     _ = file.write_bytes(b"0124")
        ...     print(describe(verify(final).faults))
        True
        [('state.bin', 'does not hold the bytes that were sealed')]
    """
    try:
        seal = read_seal(path)
    except CheckpointError as error:
        fault = Fault(file=FILE, problem=str(error))
        return Verified(path=path, faults=(fault,), unsealed=isinstance(error, UnsealedError))
    faults = []
    if seal.spec_hash != LONE and path.name.isdigit() and path.name != str(seal.step):
        faults.append(Fault(file=FILE, problem=f"is of step {seal.step}: it belongs to another checkpoint"))
    if spec_hash is not None and seal.spec_hash != spec_hash:
        faults.append(Fault(file=FILE, problem=_OTHER_RUN.format(seal.spec_hash, spec_hash)))
    try:
        listing = list_files(path)
        wrong = compare_listing(seal, listing)
        unsound = {name for name, _ in wrong}
        found = _digest_each(path, [name for name in seal.files if name not in unsound])
    except CheckpointError as error:
        return Verified(path=path, seal=seal, faults=(*faults, Fault(file=".", problem=str(error))))
    for name, digest in found.items():
        if digest != seal.files[name]:
            wrong.append((name, digest if isinstance(digest, str) else "does not hold the bytes that were sealed"))
    held: dict[str, list[tuple[str, ByteRange]]] = {name: [] for name, _ in wrong}
    for leaf, places in seal.places.items():
        for place in places:
            if place.file in held:
                held[place.file].append((leaf, place))
    faults += [
        Fault(file=name, problem=why, leaves=_wrong_leaves(path, seal, held[name])) for name, why in sorted(wrong)
    ]
    return Verified(path=path, seal=seal, faults=tuple(faults))


_OTHER_RUN = (
    "belongs to another run: sealed with the hash {:.12}, this run's is {:.12} (hash over model, data, optimizer, "
    "schedule, precision and seed)"
)


def require_verified(path: Path) -> Seal:
    """Return the seal of a checkpoint that is whole to the last byte.

    Raises:
        UnsealedError: There is no seal.
        DamagedError: Something differs from the seal; names every file and leaf.
    """
    result = verify(path)
    if result.unsealed:
        raise UnsealedError(result.faults[0].problem)
    if result.seal is None or result.faults:
        raise DamagedError(f"{path} is not what was sealed:", describe(result.faults))
    return result.seal


class Restored(NamedTuple, Generic[StateOf]):
    """What a side's `Checkpoints.restore` returns."""

    step: int
    state: StateOf
    """In the framework's own terms; no trainer has taken it yet."""
    scalars: dict[str, Any]
    """The host's half of the neutral state."""
    seal: Seal | None
    """None for a checkpoint without one."""


def read_meta(path: Path) -> dict[str, Any]:
    """Return what a checkpoint's untrusted JSON file holds, an object `scalars` among it.

    Raises:
        CheckpointError: It cannot be read, or holds no scalars.
    """
    value = read_json(path)
    if not isinstance(value.get("scalars"), dict):
        raise CheckpointError(f"{path} holds no object `scalars`")
    return value


def require_sealed(seal: Seal | None, loaded: TrainingState, *, partial: bool = False) -> None:
    """Check that what was loaded is, leaf by leaf, what was in memory when the checkpoint was sealed.

    Bytes that verify can still be read as something else: cast, reordered, left out.

    Args:
        seal: The seal; None where there is none to compare with.
        loaded: What was loaded.
        partial: Whether only some of the leaves were asked for; those that were not loaded are then not missed.

    Raises:
        CheckpointError: A leaf differs; names each.
    """
    if seal is not None:
        require_leaves(seal, leaf_digests(loaded, orders_of(seal.leaves), seal.schema), partial=partial)


def require_leaves(seal: Seal, found: Mapping[str, str], *, partial: bool = False) -> None:
    """Check digests of what was loaded, as `require_sealed` does.

    Args:
        seal: The seal.
        found: Neutral leaf to `type digest`, in the orders and the schema of the seal.
        partial: As of `require_sealed`.

    Raises:
        CheckpointError: A leaf differs; names each.
    """
    if seal.foreign:  # of what another tool saved, files alone are sealed
        return
    sealed = {leaf: text for leaf, text in seal.leaves.items() if leaf in found} if partial else seal.leaves
    differences = compare_digests(sealed, found)
    if differences:
        rows = [(d.leaf, f"{d.kind}: {d.detail}") for d in differences]
        raise CheckpointError(f"what was loaded of step {seal.step} is not what was sealed:", rows)


def describe(faults: Iterable[Fault], most: int | None = 5) -> list[tuple[str, str]]:
    """Return faults as pairs of text: file, and what is wrong with it and its leaves.

    Args:
        faults: As `verify` returns them.
        most: Most leaves that are named for a file; None for all.
    """
    out = []
    for fault in faults:
        rest = len(fault.leaves) - (len(fault.leaves) if most is None else most)
        shown = ", ".join(fault.leaves[:most]) + (f" and {rest} more" if rest > 0 else "")
        out.append((fault.file, f"{fault.problem} (leaves: {shown})" if fault.leaves else fault.problem))
    return out


def _digest_each(path: Path, names: list[str]) -> dict[str, FileDigest | str]:
    """Digest files; one that cannot be read gets the reason instead."""
    try:
        return dict(digest_files(path, names))
    except OSError:
        out: dict[str, FileDigest | str] = {}
        for name in names:
            try:
                out |= digest_files(path, [name])
            except OSError as error:
                out[name] = f"cannot be read: {error.strerror or error}"
        return out


def _wrong_leaves(path: Path, seal: Seal, held: Iterable[tuple[str, ByteRange]]) -> tuple[str, ...]:
    """Return the leaves of a damaged file whose own bytes are damaged or gone."""
    intact: dict[ByteRange, bool] = {}
    wrong = set()
    for leaf, place in held:
        if place.digest is None or place not in intact:  # leaves may share a range, which is read once for all
            try:
                intact[place] = is_intact(path, place, seal.leaves[leaf])
            except OSError:
                intact[place] = False
        if not intact[place]:
            wrong.add(leaf)
    return tuple(sorted(wrong))

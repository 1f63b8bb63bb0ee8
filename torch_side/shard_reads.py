"""Restores by several processes: each reads what it holds, and what they read together is compared with the seal.

Process 0 compares every byte of a checkpoint with its seal first. The others have their own view of the file system,
so what each of them read is digested too: its blocks, completed in shares (`parity.state.complete_in_shares`) and
merged by process 0, and the bytes that belong to no leaf.
Nobody has the whole state in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from parity.checkpoints import Seal, read_seal, require_verified
from parity.errors import CheckpointError, DamagedError
from parity.spec import MESH_AXES
from parity.state import LeafDigest, TrainingState, complete_in_shares, leaf_digests, order_of
from parity.storage import digest_range, reason
from parity.twins import Layout
from torch_side import processes
from torch_side.mesh import Mesh
from torch_side.parts import Held, map_parts, tensors_of
from torch_side.state import neutral_arrays

__all__ = ["ShardRead", "require_verified_by_first"]


def require_verified_by_first(path: Path, group: dist.ProcessGroup) -> Seal:
    """Return the seal of a checkpoint of which process 0 has compared every byte; all processes call it.

    Args:
        path: The checkpoint.
        group: A group of all of them.

    Raises:
        DamagedError: It is not what was sealed.
        UnsealedError: There is no seal.
        CheckpointError: It cannot be read.
    """
    problem = None
    if processes.index() == 0:
        try:
            require_verified(path)
        except (CheckpointError, OSError) as error:
            problem = str(error)
    if (found := processes.exchange(problem, group)[0]) is not None:
        raise DamagedError(found)
    return read_seal(path)


@dataclass(frozen=True, kw_only=True)
class ShardRead:
    """What this process has read of a checkpoint, of several that read it together."""

    path: Path
    """The checkpoint."""
    file: str
    """The file in it that was read."""
    layout: Layout
    names: Sequence[str]
    """Parameter names in the order in which the optimizer numbers them."""
    parts: Mapping[str, Held]
    """Parameter name to the part of it that is here."""
    mesh: Mesh
    content: Mapping[str, Any]
    """What was read, parameters cut to these parts."""
    scalars: Mapping[str, Any]
    """The host's half of the neutral state."""

    def require(self, seal: Seal) -> None:
        """Check that what all processes have read is, leaf by leaf, what was sealed; all of them call it.

        Raises:
            CheckpointError: A leaf differs, in some process; names each.
        """
        try:
            read = self._digests(seal)
        except Exception as error:
            read = {"failed": f"process {processes.index()}: {reason(error)}"}
        pieces = read.pop("pieces", {})
        told = (
            {"failed": read["failed"]} if "failed" in read else {"beside": sorted(pieces.keys() - seal.leaves.keys())}
        )
        gathered = processes.exchange(told, self.mesh.saves)
        if not any("failed" in one for one in gathered):
            names = sorted({*seal.leaves, *(leaf for one in gathered for leaf in one["beside"])})
            whole = {**read, **self._completed(seal, names, pieces)}
            gathered = processes.exchange(whole, self.mesh.saves, to_first=True)
        problems = _problems(seal, gathered) if processes.index() == 0 else []
        found: list[list[str]] = processes.exchange(problems, self.mesh.saves)[0]
        if found:
            rows = [(leaf, why) for leaf, why in found]
            raise CheckpointError(f"what was loaded of step {seal.step} is not what was sealed:", rows)

    def _completed(
        self, seal: Seal, names: Sequence[str], pieces: Mapping[str, Mapping[str, LeafDigest]]
    ) -> dict[str, Any]:
        """Return the share of the blocks that this process completes, packed: leaf to the name of a copy to that."""
        leaves = [(leaf, sum(place.size for place in seal.places.get(leaf, ()))) for leaf in names]
        try:
            shares = complete_in_shares(leaves, pieces, self._scatter, processes.count())
        except ValueError as error:
            return {"failed": f"process {processes.index()}: {error}"}
        return {"pieces": {leaf: {copy: digest.packed() for copy, digest in copies.items()}
                           for leaf, copies in shares.items()}}  # fmt: skip

    def _scatter(self, values: list[Any]) -> list[Any]:
        return processes.scatter(values, self.mesh.saves)

    def _digests(self, seal: Seal) -> dict[str, Any]:
        """Return the digests of what is here: of leaves whole or in part, and of the rest of the file."""
        held: dict[int, Held] = {}

        def whole(value: Tensor, part: Held) -> Tensor:
            room = torch.empty(part.shape, dtype=value.dtype)
            held[id(room)] = part
            return room

        outline = map_parts(self.content, self.names, self.parts, whole)
        arrays, counts = neutral_arrays(self.layout, self.names, outline)
        leaves = {array.ctypes.data: leaf for leaf, array in arrays.items()}
        pieces: dict[str, dict[str, LeafDigest]] = {}
        for own, room in zip(tensors_of(self.content), tensors_of(outline), strict=True):
            leaf, part = leaves.get(room.data_ptr()), held.get(id(room))
            if leaf is None:
                continue
            digest = LeafDigest(tuple(room.shape), arrays[leaf].dtype, order_of(seal.leaves.get(leaf, "")))
            digest.add([low for low, _ in part.box] if part else [0] * room.ndim, own.numpy())
            copy = [self.mesh.at(axis) for axis in MESH_AXES if part is None or axis not in part.split]
            pieces[leaf] = {str(tuple(copy)): digest}
        started = {leaf: array for leaf, array in arrays.items() if leaf not in pieces}
        texts = leaf_digests(TrainingState(arrays=started, scalars={**self.scalars, **counts}))
        return {"pieces": pieces, "texts": texts, "rest": self._rest(seal)}

    def _rest(self, seal: Seal) -> list[str]:
        """Return the digests of the bytes of the file that belong to no leaf: its structure, and the generators."""
        places = [place for at in seal.places.values() for place in at if place.file == self.file]
        ranges = sorted((place.start, place.start + place.size) for place in places)
        out, at = [], 0
        for start, end in [*ranges, (seal.files[self.file].size, 0)]:
            if start > at:
                out.append(digest_range(self.path / self.file, at, start - at))
            at = max(at, end)
        return out


def _problems(seal: Seal, gathered: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return leaf and problem of whatever some process has read otherwise than it was sealed."""
    failed = [("read", one["failed"]) for one in gathered if "failed" in one]
    if failed:
        return failed
    found: list[tuple[str, str]] = []
    copies: dict[tuple[str, str], LeafDigest] = {}
    names: set[str] = set()
    for index, one in enumerate(gathered):
        if one["rest"] != gathered[0]["rest"]:
            found.append(("structure", f"process {index} read other bytes than process 0"))
        for leaf, copy, packed in ((leaf, *item) for leaf, given in one["pieces"].items() for item in given.items()):
            digest = LeafDigest.unpacked(packed)
            if (leaf, copy) in copies:
                copies[leaf, copy].merge(digest)
            else:
                copies[leaf, copy] = digest
        for leaf, text in one["texts"].items():
            names.add(leaf)
            if seal.leaves.get(leaf) != text:
                found.append((leaf, f"sealed as {seal.leaves.get(leaf)}, process {index} read {text}"))
    for (leaf, copy), digest in copies.items():
        names.add(leaf)
        if (text := digest.text()) != seal.leaves.get(leaf):
            found.append((leaf, f"sealed as {seal.leaves.get(leaf)}, the processes of copy {copy} read {text}"))
    found += [(leaf, "was sealed, and not read") for leaf in sorted(seal.leaves.keys() - names)]
    return found

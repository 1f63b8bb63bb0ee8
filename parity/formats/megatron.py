"""Checkpoints of Megatron: one file for each rank of tensors, pipeline and experts, and directories of iterations.

`iter_0000010/mp_rank_00/model_optim_rng.pt` is what `--ckpt-format torch` writes: a file of `torch.save` for each
rank, which holds its part of each parameter. How the parts make a parameter only Megatron's model knows, so they are
read as they lie. With `torch_dist`, `torch_dcp` and `fsdp_dtensor` an iteration is a directory of DCP, whose
tensors are whole (`parity/formats/dcp.py`). `latest_checkpointed_iteration.txt` names the newest that is complete.

Source: `megatron/training/checkpointing.py`, Megatron-LM (`get_checkpoint_name`, `read_metadata`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError
from parity.formats.dcp import open_dcp
from parity.formats.dcp_metadata import is_dcp
from parity.formats.folder import inside
from parity.formats.torch_file import open_torch_file
from parity.formats.tree import Opaque, Source, Tree
from parity.storage import read_bytes

__all__ = [
    "TRACKER",
    "is_megatron",
    "is_megatron_directory",
    "newest_of_megatron",
    "open_megatron",
    "open_megatron_directory",
    "steps_of_megatron",
]

TRACKER = "latest_checkpointed_iteration.txt"
MAIN = "model_optim_rng.pt"
OPTIMIZER = "distrib_optim.pt"
"""Of the distributed optimizer: its flat buffers, beside the file of the rank."""

_RANK = re.compile(r"mp_rank_(\d{2,6})(?:_(\d{3,6}))?(?:_(\d{3,6}))?")
"""Of tensors, and where there are several, of the pipeline and of experts."""
_STEP = re.compile(r"iter_(\d{7,15})|release")

SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")

DIVIDED = (
    "each rank holds its parts of the parameters, and only Megatron's model knows how they are joined; save it with "
    "--ckpt-format torch_dist (Megatron's --ckpt-convert-format does it), and convert that"
)


def is_megatron(path: Path) -> bool:
    """Return whether a directory has the directory of a rank with its file."""
    return path.is_dir() and any(_RANK.fullmatch(one.name) and (one / MAIN).is_file() for one in path.iterdir())


def is_megatron_directory(path: Path) -> bool:
    """Return whether a directory has the file that names the newest of its iterations, or their directories."""
    if not path.is_dir():
        return False
    return (path / TRACKER).is_file() or any(one.name != "release" and _holds(one) for one in _entries(path))


def steps_of_megatron(path: Path) -> list[Path]:
    """Return the iterations of a directory by number, those that cannot be opened among them; `release` first."""
    return sorted(_entries(path), key=lambda one: _number(one.name))


def newest_of_megatron(path: Path) -> Path:
    """Return the iteration of a directory that Megatron would load: what its file names, else the last.

    Raises:
        CheckpointError: What it names is not there, or there is none.
    """
    steps = steps_of_megatron(path)
    if not (path / TRACKER).is_file():
        if not steps:
            raise CheckpointError(f"{path} holds no iteration")
        return steps[-1]
    said = read_bytes(inside(path, TRACKER), 4096).decode(errors="replace").strip()
    name = said if said == "release" else f"iter_{int(said):07d}" if re.fullmatch(r"\d{1,15}", said, re.ASCII) else ""
    if not name:
        raise CheckpointError(f"{path / TRACKER} holds {said[:40]!r}, which is no number of an iteration")
    if name not in {one.name for one in steps}:
        have = ", ".join(one.name for one in steps[-5:]) or "none"
        raise CheckpointError(f"{path / TRACKER} names {name}, which is not there; there are {have}")
    return path / name


def open_megatron_directory(path: Path) -> Source:
    """Open the newest iteration of a directory.

    Raises:
        CheckpointError: It is not there, or cannot be opened; another may be given by its own directory.
    """
    newest = newest_of_megatron(path)
    if not _holds(newest):
        raise CheckpointError(f"{newest} is no checkpoint of Megatron: neither {MAIN} of a rank nor metadata of DCP")
    source = open_megatron(newest) if is_megatron(newest) else open_dcp(newest)
    why = "names it" if (path / TRACKER).is_file() else "is not there; the last"
    detail = f"{newest.name} of {len(steps_of_megatron(path))}: {TRACKER} {why}"
    return replace(source, detail=f"{detail}; {source.detail}" if source.detail else detail)


@dataclass(frozen=True)
class _RankFiles:
    """The files of one rank, opened."""

    name: str
    at: tuple[int, ...]
    main: Source
    optimizer: Source | None

    @property
    def tree(self) -> Tree:
        own: Tree = self.main.tree
        return own if self.optimizer is None else {**own, "distrib_optim": self.optimizer.tree}

    @property
    def files(self) -> dict[str, Source]:
        found = {f"{self.name}/{MAIN}": self.main}
        return found if self.optimizer is None else {**found, f"{self.name}/{OPTIMIZER}": self.optimizer}


def open_megatron(path: Path) -> Source:
    """Open one iteration: the tree of its only rank, or the trees of all by their names.

    Raises:
        CheckpointError: A rank is missing, or a file is damaged.
    """
    ranks = [_open_rank(path, name) for name in _rank_names(path)]
    known = _require_all(path, ranks)
    files = {name: file for rank in ranks for name, file in rank.files.items()}
    alone = len(ranks) == 1
    shown = f"{len(ranks)} ranks" if not alone else "1 rank"
    if ranks[0].optimizer is not None:
        shown += f", with {OPTIMIZER}"
    everyone = "" if known else "that all ranks are there: no file says how many there were; "
    return Source(
        path=path,
        format="megatron",
        tree=ranks[0].tree if alone else {rank.name: rank.tree for rank in ranks},
        detail=f"Megatron, {shown}",
        divided="" if alone and ranks[0].optimizer is None else DIVIDED,
        notes=tuple(dict.fromkeys(note for file in files.values() for note in file.notes)),
        verify=lambda: [(f"{name}: {one}", what) for name, file in files.items() for one, what in file.faults()],
        checked="the CRC-32 of every record" if all(file.checked for file in files.values()) else "",
        unproven=f"{everyone}that its files are of one save: nothing binds them",
    )


def _open_rank(path: Path, name: str) -> _RankFiles:
    found = _RANK.fullmatch(name)
    assert found is not None
    folder = path / name
    main = open_torch_file(inside(folder, MAIN))
    if not isinstance(main.tree, dict):
        raise CheckpointError(f"{main.path} holds no dictionary, as Megatron saves one")
    optimizer = open_torch_file(inside(folder, OPTIMIZER)) if (folder / OPTIMIZER).exists() else None
    return _RankFiles(name, tuple(int(one) for one in found.groups() if one is not None), main, optimizer)


def _require_all(path: Path, ranks: list[_RankFiles]) -> bool:
    """Check that no rank is missing; return whether the checkpoint itself says how many there were."""
    if len({len(rank.at) for rank in ranks}) != 1:
        raise CheckpointError(f"{path} has ranks of two saves: {ranks[0].name} and {ranks[-1].name}")
    sizes = _sizes(ranks[0].main.tree)
    expected = tuple(size for size in sizes[:1] + tuple(one for one in sizes[1:] if one > 1)) if sizes else ()
    if len(expected) != len(ranks[0].at):  # no arguments, or those of another version
        expected = ()
    ends = expected or tuple(max(axis) + 1 for axis in zip(*(rank.at for rank in ranks), strict=True))
    have = {rank.at for rank in ranks}
    missing = [at for at in itertools.islice(itertools.product(*map(range, ends)), 1 << 20) if at not in have]
    if missing:
        name = "_".join([f"mp_rank_{missing[0][0]:02d}", *(f"{one:03d}" for one in missing[0][1:])])
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(f"{path / name}{more} is missing; the checkpoint is not whole")
    if bound := [rank for rank in ranks if any(at >= end for at, end in zip(rank.at, ends, strict=True))]:
        raise CheckpointError(f"{path / bound[0].name} is of another save: its arguments say {ends} ranks")
    lacking = [rank for rank in ranks if (rank.optimizer is None) != (ranks[0].optimizer is None)]
    if lacking:
        one = next(rank for rank in ranks if rank.optimizer is None)
        raise CheckpointError(f"{path / one.name / OPTIMIZER} is missing; other ranks have theirs")
    return bool(expected)


def _sizes(tree: Mapping[str, Any]) -> tuple[int, ...]:
    """Return how many ranks of each kind the arguments in a file say; empty where they do not."""
    args = tree.get("args")
    held = args.content if isinstance(args, Opaque) else args
    for one in held if isinstance(held, list | tuple) else [held]:
        if isinstance(one, dict) and SIZES[0] in one:
            found = tuple(one.get(name, 1) for name in SIZES)
            return found if all(type(size) is int and 0 < size < 1 << 20 for size in found) else ()
    return ()


def _rank_names(path: Path) -> list[str]:
    """Return the directories of ranks; one without its file is opened too, so that it is said to be missing."""
    return sorted(one.name for one in path.iterdir() if one.is_dir() and _RANK.fullmatch(one.name))


def _entries(path: Path) -> list[Path]:
    return [one for one in path.iterdir() if one.is_dir() and _STEP.fullmatch(one.name)]


def _holds(path: Path) -> bool:
    return is_megatron(path) or is_dcp(path)


def _number(name: str) -> int:
    return -1 if name == "release" else int(name.removeprefix("iter_"))

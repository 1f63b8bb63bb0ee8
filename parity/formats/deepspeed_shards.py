"""The files of a DeepSpeed checkpoint: which ranks wrote it, whether all of them are there, each opened."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError
from parity.formats.folder import inside
from parity.formats.torch_file import open_torch_file
from parity.formats.tree import Source
from parity.storage import read_bytes

__all__ = ["Shards", "find_shards", "is_deepspeed", "step_folder"]

_MODEL = re.compile(r"(?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt")
_OPTIM = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
_OTHER = re.compile(r"(?:layer_|expp_rank_).*[-_](?:model|optim)_states\.pt")


def is_deepspeed(path: Path) -> bool:
    """Return whether a directory has files of model states, or `latest` names one in it that has."""
    if not path.is_dir():
        return False
    return _has_states(path) or ((path / "latest").is_file() and any(map(_has_states, path.iterdir())))


def _has_states(path: Path) -> bool:
    return path.is_dir() and any(_MODEL.fullmatch(one.name) or _OPTIM.fullmatch(one.name) for one in path.iterdir())


def step_folder(path: Path) -> Path:
    """Return the directory of one save: a directory itself, or what its file `latest` names.

    Raises:
        CheckpointError: That is missing, or has no files of model states.
    """
    if _has_states(path):
        return path
    tag = read_bytes(inside(path, "latest"), 4096).decode(errors="replace").strip()
    folder = inside(path, tag)
    if not _has_states(folder):
        raise CheckpointError(f"{path / 'latest'} names {tag}, which has no model states of DeepSpeed")
    return folder


@dataclass(frozen=True)
class Shards:
    """The files of one save, opened, in the order of the ranks."""

    models: Sequence[Source]
    optims: Sequence[Source]

    @property
    def zero(self) -> list[dict[str, Any]]:
        """Return what the optimizer of each rank saved."""
        return [source.tree["optimizer_state_dict"] for source in self.optims]


def find_shards(folder: Path) -> Shards:
    """Open the files of all ranks.

    Raises:
        CheckpointError: A rank is missing, two runs are mixed, or parameters are split by more than ZeRO.
    """
    names = sorted(one.name for one in folder.iterdir())
    found = [(match, name) for name in names if (match := _MODEL.fullmatch(name) or _OPTIM.fullmatch(name))]
    split = sorted({match[2] for match, _ in found} - {"00"})
    pipeline = next((name for name in names if _OTHER.fullmatch(name)), None)
    if split or pipeline:
        raise CheckpointError(
            f"{folder} is split by more than ZeRO ({pipeline or 'mp_rank_' + split[0]}): by tensors, stages of a "
            "pipeline or experts, which only DeepSpeed joins: load it there without them, by way of its "
            "ds_to_universal, and save that"
        )
    models = {int(match[1] or 0): name for match, name in found if match.re is _MODEL}
    optims = {int(match[1]): name for match, name in found if match.re is _OPTIM}
    if len(models) + len(optims) != len(found):
        raise CheckpointError(
            f"{folder} has two files of one rank, of two runs: {', '.join(n for _, n in found[:6])}"
        )
    if 0 not in models:
        raise CheckpointError(f"{folder} has no model states of rank 0, only {', '.join(n for _, n in found[:6])}")
    opened = {rank: open_torch_file(inside(folder, name)) for rank, name in optims.items()}
    states = [open_torch_file(inside(folder, models[rank])) for rank in sorted(models)]
    for source in states:
        if not isinstance(source.tree, dict):
            raise CheckpointError(f"{source.path} holds a {type(source.tree).__name__}, expected model states")
    for source in opened.values():
        if not isinstance(source.tree, dict) or not isinstance(source.tree.get("optimizer_state_dict"), dict):
            raise CheckpointError(f"{source.path} is no shard of a ZeRO optimizer: it has no optimizer_state_dict")
    if opened:
        _check_ranks(folder, opened, states[0].tree)
    return Shards(states, [opened[rank] for rank in sorted(opened)])


def _check_ranks(folder: Path, optims: Mapping[int, Source], model: Mapping[str, Any]) -> None:
    """Check that there is a file for each rank."""
    some = next(iter(optims.values()))
    count = some.tree["optimizer_state_dict"].get("partition_count")
    counts = count if isinstance(count, list) else [count]
    if not counts or any(type(n) is not int or not 0 < n <= 1 << 20 for n in counts):
        raise CheckpointError(f"{some.path} has the partition_count {count!r:.60}, expected a number of ranks")
    ranks = max(counts)
    lost = [rank for rank in range(min(ranks, len(optims) + 16)) if rank not in optims]
    if lost:
        shapes = model.get("param_shapes")
        held = sum(len(group) for group in shapes if isinstance(group, dict)) if isinstance(shapes, list) else 0
        raise CheckpointError(
            f"{folder} is of {ranks} ranks; missing are the optimizer states of rank {', '.join(map(str, lost[:8]))}"
            f"{', ...' if len(lost) > 8 else ''}: parts of {held} arrays are in each"
        )
    if len(optims) > ranks:
        raise CheckpointError(
            f"{folder} has optimizer states of {len(optims)} ranks, expected {ranks}: two runs in one"
        )

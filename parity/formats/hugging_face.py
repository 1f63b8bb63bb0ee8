"""Directories of Hugging Face: model folders, checkpoints of the Trainer, `save_state` of Accelerate, as one tree.

The tree has `model`, `optimizer`, `scheduler`, `scaler`, `sampler`, `dataloader`, `custom`, `rng`, `trainer_state`,
`training_args` and `config`, as far as there are files of them. Of several models the others are `model_1`, ...;
`rng` is a list where several processes wrote one each. What FSDP or DeepSpeed wrote in it is read by their readers;
of DeepSpeed comes the `model` with its master weights, and what was saved beside for others is `exported`.

Source: `accelerate/checkpointing.py` 1.15, `transformers/trainer.py` 5.23.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from parity.errors import CheckpointError
from parity.formats.dcp import open_dcp
from parity.formats.dcp_metadata import is_dcp
from parity.formats.deepspeed import open_deepspeed
from parity.formats.deepspeed_shards import is_deepspeed
from parity.formats.folder import inside, read_settings
from parity.formats.mapping import read_head
from parity.formats.safetensors_file import open_safetensors
from parity.formats.shards import open_shards, unequal_size
from parity.formats.symbolic import read_pickle
from parity.formats.torch_file import CALLS
from parity.formats.torch_legacy import is_legacy, open_torch
from parity.formats.tree import Source, Tree
from parity.storage import read_given

__all__ = ["is_hugging_face", "open_hugging_face"]

MODEL = re.compile(
    r"(?:(?:adapter_)?model(?:_(\d+))?\.safetensors|(?:adapter_model|pytorch_model(?:_fsdp)?)(?:_(\d+))?\.bin)"
    r"(?:\.index\.json)?|pytorch_model_fsdp_(\d+)"
)
"""Files of weights, or a directory of FSDP; the number is that of the model."""

STATES = {
    "optimizer": re.compile(r"optimizer(?:_(\d+))?(?:\.pt|\.bin)?"),
    "scheduler": re.compile(r"scheduler(?:_(\d+))?\.(?:pt|bin)"),
    "scaler": re.compile(r"scaler()\.pt"),
    "sampler": re.compile(r"sampler(?:_(\d+))?\.bin"),
    "dataloader": re.compile(r"dl_state_dict(?:_(\d+))?\.bin"),
    "custom": re.compile(r"custom_checkpoint_(\d+)\.(?:pkl|bin)"),
    "rng": re.compile(r"(?:rng_state(?:_(\d+))?\.pth|random_states_(\d+)\.pkl)"),
    "training_args": re.compile(r"training_args()\.bin"),
    "trainer_state": re.compile(r"trainer_state()\.json"),
    "config": re.compile(r"config()\.json"),
}
"""What else is read, by its place in the tree; the number is that of the object or of the process."""

_SHARD = re.compile(r"(?:pytorch_)?model-\d+-of-\d+\.(?:safetensors|bin)")
_SURE = re.compile(r"trainer_state\.json|random_states_\d+\.pkl")
_LISTED = ("rng", "custom")


def is_hugging_face(path: Path) -> bool:
    """Return whether a directory has files of weights, of the Trainer or of Accelerate."""
    return path.is_dir() and any(
        MODEL.fullmatch(one.name) or _SURE.fullmatch(one.name) or _SHARD.fullmatch(one.name) for one in path.iterdir()
    )


def open_hugging_face(path: Path) -> Source:
    """Open a model folder, a checkpoint of the Trainer, or a state of Accelerate.

    Raises:
        CheckpointError: A file or shard is missing or damaged, two files claim one place, or a link leads out.
    """
    found = _FoundFiles(path)
    for name in sorted(one.name for one in path.iterdir()):
        found.add(name)
    tree: dict[str, Tree] = {}
    opened: list[Source] = []
    for role, files in found.roles.items():
        for number, name in enumerate(_in_order(path, role, files)):
            leaf = _open(path, inside(path, name), role, opened)
            if role in _LISTED and (len(files) > 1 or role == "custom"):
                tree.setdefault(role, []).append(leaf)
            else:
                tree[role if number == 0 else f"{role}_{number}"] = leaf
    if is_deepspeed(path):
        opened.append(open_deepspeed(path))
        if "model" in tree:
            tree["exported"] = tree.pop("model")
        tree = {**opened[-1].tree, **tree}
    elif not any(key.startswith("model") for key in tree) and found.shards:
        raise CheckpointError(f"{path} has {found.shards[0]} and no index, which says what is in which shard")
    checks = [source for source in opened if source.verify]
    sizes = [
        what for one in opened if one.path.name.endswith(".index.json") for what in unequal_size(one.path, [one])
    ]
    return Source(
        path=path,
        format="hugging-face",
        tree=tree,
        detail=found.detail(tree),
        verify=(lambda: [fault for source in checks for fault in _check(path, source)]) if checks else None,
        unproven="; ".join(
            ["that its files are of one save, and what is in safetensors: the format has no digest of any", *sizes]
        ),
    )


def _check(path: Path, source: Source) -> list[tuple[str, str]]:
    here = source.path.relative_to(path).as_posix()
    return [(f"{here}: {name}" if here != "." else name, what) for name, what in source.faults()]


@dataclass
class _FoundFiles:
    """The files of a directory by their places in the tree."""

    path: Path
    roles: dict[str, dict[int, str]] = field(default_factory=dict)
    shards: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Take one name.

        Raises:
            CheckpointError: Another file claims its place.
        """
        if _SHARD.fullmatch(name):
            self.shards.append(str(inside(self.path, name).name))
            return
        patterns: Mapping[str, re.Pattern[str]] = {"model": MODEL, **STATES}
        role, match = next(
            ((role, match) for role, pattern in patterns.items() if (match := pattern.fullmatch(name))), (None, None)
        )
        if role is None or match is None or ((self.path / name).is_dir() and not is_dcp(self.path / name)):
            self.unread.append(name)
            return
        number = int(next((group for group in match.groups() if group), 0))
        files = self.roles.setdefault(role, {})
        other = files.setdefault(number, name)
        if other == name:
            return
        if role == "model" and ".safetensors" in other + name and ".bin" in other + name:
            # both hold the same weights in folders of the hub; transformers takes safetensors
            files[number] = other if ".safetensors" in other else name
            self.unread.append(name if files[number] == other else other)
            return
        raise CheckpointError(f"{self.path} has {other} and {name}, two files for {role}: which is it? Move one away")

    def detail(self, tree: Mapping[str, Tree]) -> str:
        """Return what kind of directory it is, and which files were not read."""
        kind = "a model folder"
        if "trainer_state" in tree:
            kind = "a checkpoint of the Trainer"
        elif "rng" in tree:
            kind = "a state of Accelerate"
        more = ", ..." if len(self.unread) > 8 else ""
        return f"{kind}; not read: {', '.join(self.unread[:8])}{more}" if self.unread else kind


def _in_order(path: Path, role: str, files: Mapping[int, str]) -> list[str]:
    """Return files by number, all of them there."""
    for number in range(max(files)):
        if number not in files:
            raise CheckpointError(f"{path} has {files[max(files)]}, and that of number {number} is missing")
    return [files[number] for number in sorted(files)]


def _open(path: Path, file: Path, role: str, opened: list[Source]) -> Tree:
    """Return the tree of one file, or of a directory of FSDP."""
    if file.is_dir():
        opened.append(open_dcp(file))
        tree = opened[-1].tree
        return tree[role] if isinstance(tree, dict) and list(tree) == [role] else tree
    if file.name.endswith(".index.json"):
        opened.append(open_shards(file, open_safetensors if ".safetensors" in file.name else open_torch))
    elif file.suffix == ".json":
        return read_settings(file)
    elif file.suffix == ".safetensors":
        opened.append(open_safetensors(file))
    elif file.suffix == ".pkl" and read_head(file, 1) == b"\x80" and not is_legacy(file):
        return _plain_pickle(file)
    else:
        opened.append(open_torch(file))
    return opened[-1].tree


def _plain_pickle(file: Path) -> Tree:
    """Return the tree of a pickle that is no archive, with nothing executed."""
    try:
        data = read_given(file, 1 << 30)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror or error}") from error
    return read_pickle(data, str(file), CALLS)

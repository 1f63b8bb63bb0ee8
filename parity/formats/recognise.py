"""The list of formats, and recognition: which of them a path has, by what lies in it, never by its name alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from parity.errors import CheckpointError
from parity.formats.bounds import require_bounded
from parity.formats.dcp import open_dcp
from parity.formats.dcp_metadata import is_dcp
from parity.formats.deepspeed import open_deepspeed
from parity.formats.deepspeed_shards import is_deepspeed
from parity.formats.flax_msgpack import is_flax, is_flax_directory, open_flax, open_flax_directory, steps_of_flax
from parity.formats.hugging_face import is_hugging_face, open_hugging_face
from parity.formats.jax_items import is_bare_tree, open_bare_tree
from parity.formats.mapping import read_head
from parity.formats.megatron import (
    is_megatron,
    is_megatron_directory,
    open_megatron,
    open_megatron_directory,
    steps_of_megatron,
)
from parity.formats.orbax import is_orbax, is_orbax_manager, open_orbax, open_orbax_manager, steps_of_orbax
from parity.formats.safetensors_file import open_safetensors
from parity.formats.shards import open_shards, shards_of
from parity.formats.torch_file import open_torch_file
from parity.formats.torch_items import is_torch_items, open_torch_items
from parity.formats.torch_legacy import is_legacy, open_legacy
from parity.formats.tree import Source
from parity.formats.write_hugging_face import HUGGING_FACE
from parity.formats.write_safetensors import SAFETENSORS
from parity.formats.writer import Writer

__all__ = [
    "FAMILIES",
    "FORMATS",
    "WRITTEN",
    "Family",
    "Format",
    "open_checkpoint",
    "recognise",
    "steps_of",
]

Family = Literal["torch", "jax"]
"""The framework whose names and layouts a format holds, which is also the name of its side."""


@dataclass(frozen=True)
class Format:
    """One form in which a format is read."""

    name: str
    """Short, as `--to` takes it where the format is written too; the forms of one format share it."""
    family: Family
    what: str
    """What it is, for people."""
    fits: Callable[[Path], bool]
    """Whether a path looks like one; cheap, and never raises for a path that exists."""
    open: Callable[[Path], Source]
    """Opens it without loading an array; the reader says the name in its `Source`, too."""
    covers: tuple[str, ...] = ()
    """Names of later formats that a directory of this one may look like too, as it has their files."""
    steps: Callable[[Path], list[Path]] | None = None
    """Of a directory of several checkpoints, returns all of them, damaged ones too; None for a single one."""
    beside: Callable[[Path], list[str]] | None = None
    """Of a file that names others beside it, returns their names; None for a file or a directory by itself."""
    written: Writer | Literal["side"] | None = None
    """What writes this form: a writer, or the side of the family where that needs its framework."""


def _is_safetensors(path: Path) -> bool:
    head = read_head(path, 9)
    return len(head) == 9 and head[8:] == b"{" and int.from_bytes(head[:8], "little") <= os.stat(path).st_size - 8


FORMATS: tuple[Format, ...] = (
    Format("torch.save", "torch", "a tree of this project's PyTorch side", is_torch_items, open_torch_items),
    Format(
        "torch.save",
        "torch",
        "a checkpoint of this project's PyTorch side",
        lambda path: (path / "seal.json").is_file() and (path / "state.pt").is_file(),
        lambda path: replace(open_torch_file(path / "state.pt"), path=path),
    ),
    Format("orbax", "jax", "a tree of this project's JAX side that is its description", is_bare_tree, open_bare_tree),
    Format("orbax", "jax", "a checkpoint of Orbax", is_orbax, open_orbax, written="side"),
    Format("flax-msgpack", "jax", "a directory of Flax", is_flax_directory, open_flax_directory, steps=steps_of_flax),
    Format(
        "orbax", "jax", "a directory of steps of Orbax", is_orbax_manager, open_orbax_manager, steps=steps_of_orbax
    ),
    Format(
        "torch.save",
        "torch",
        "a file of torch.save",
        lambda path: read_head(path, 4) == b"PK\x03\x04",
        open_torch_file,
        written="side",
    ),
    Format("torch.save", "torch", "a file of torch.save before PyTorch 1.6", is_legacy, open_legacy),
    Format("safetensors", "torch", "a safetensors file", _is_safetensors, open_safetensors, written=SAFETENSORS),
    Format(
        "safetensors",
        "torch",
        "an index of safetensors shards",
        lambda path: path.is_file() and path.name.endswith(".safetensors.index.json"),
        partial(open_shards, open_file=open_safetensors),
        beside=shards_of,
    ),
    Format("flax-msgpack", "jax", "a MessagePack file of Flax", is_flax, open_flax, written="side"),
    Format("dcp", "torch", "a directory of torch.distributed.checkpoint", is_dcp, open_dcp, written="side"),
    Format(
        "hugging-face",
        "torch",
        "a directory of Hugging Face",
        is_hugging_face,
        open_hugging_face,
        covers=("deepspeed",),
        written=HUGGING_FACE,
    ),
    Format("deepspeed", "torch", "a directory of DeepSpeed", is_deepspeed, open_deepspeed),
    Format("megatron", "torch", "a directory of Megatron's ranks", is_megatron, open_megatron),
    Format(
        "megatron",
        "torch",
        "a directory of iterations of Megatron",
        is_megatron_directory,
        open_megatron_directory,
        steps=steps_of_megatron,
    ),
)
"""In the order in which they are tried; a path has the first format that fits. A directory that fits others, which
the first does not cover, is refused."""

FAMILIES: Mapping[str, Family] = {one.name: one.family for one in FORMATS}
"""Name of a format to its family."""

WRITTEN: Mapping[str, Writer | Literal["side"]] = {
    one.name: one.written for one in FORMATS if one.written is not None
}
"""Name of a format that is written to its writer, or `side` where that of its family has it."""


def recognise(path: Path) -> Format:
    """Return the format of a path.

    Raises:
        CheckpointError: There is nothing, or nothing that is known, and what was looked for; or a directory is mixed
            from files of two formats.
    """
    if not os.path.lexists(path):
        raise CheckpointError(f"{path} does not exist")
    try:
        fitting = [one for one in FORMATS if one.fits(path)]
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    if not fitting:
        raise CheckpointError(
            f"{path}: {_guess(path)}; known are {', '.join(dict.fromkeys(f.what for f in FORMATS))}"
        )
    found, *others = fitting
    mixed = [one.what for one in others if one.name not in (found.name, *found.covers)]
    if mixed and path.is_dir():
        names = " and ".join([found.what, *mixed])
        raise CheckpointError(f"{path} looks like {names}; move the files of one to a directory of their own")
    return found


def open_checkpoint(path: Path) -> Source:
    """Open a checkpoint of any known format, without loading an array.

    Raises:
        CheckpointError: It does not exist, is of no known format, is damaged, or names more than any state has.
    """
    source = recognise(path).open(path)
    require_bounded(source.tree, str(path))
    return source


def is_checkpoint(path: Path) -> bool:
    """Return whether a path is of a format that is read."""
    try:
        recognise(path)
    except CheckpointError:
        return False
    return True


def steps_of(path: Path) -> list[Path]:
    """Return the checkpoints of a directory of which the newest is opened, damaged ones too; none of a single one.

    Raises:
        CheckpointError: As of `recognise`.
    """
    steps = recognise(path).steps
    return [] if steps is None else steps(path)


def _guess(path: Path) -> str:
    """Return why a path has no known format, as far as a look tells."""
    if path.is_dir():
        names = sorted(os.listdir(path))
        if any(name.endswith(".distcp") for name in names) and ".metadata" not in names:
            return (
                "files of torch.distributed.checkpoint without .metadata, which a save writes last: it was not "
                "finished, or .metadata is lost"
            )
        shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        return f"a directory with {shown}" if names else "an empty directory"
    head = read_head(path, 8)
    if not head:
        return "an empty file" if path.is_file() else "neither a file nor a directory"
    if head[:1] == b"\x80" and head[1] in (2, 3, 4, 5):
        return "a pickle, which runs code when it is loaded: only those of torch.save are read"
    return f"a file that starts with {head!r}"

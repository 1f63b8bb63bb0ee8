"""The metadata of a DCP directory: a pickle of PyTorch's dataclasses, read as their fields, nothing executed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError
from parity.formats.folder import inside
from parity.formats.symbolic import PLAIN_CALLS, Function, read_pickle
from parity.storage import read_bytes

__all__ = ["METADATA", "Record", "is_dcp", "place", "read_metadata", "shown"]

METADATA = ".metadata"

_PART = re.compile(r"__\d+\.metadata|shard-\d+-model-\d+-of-\d+\.safetensors")
"""What a directory without metadata for all ranks has."""


def is_dcp(path: Path) -> bool:
    """Return whether a directory has the metadata of DCP, that of single ranks, or shards in safetensors."""
    if not path.is_dir():
        return False
    return (path / METADATA).is_file() or any(_PART.fullmatch(one.name) for one in path.iterdir())


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the fields of a directory's metadata.

    Raises:
        CheckpointError: There is none for all of it, or it is damaged.
    """
    if not (path / METADATA).exists():
        if any(path.glob("shard-*.safetensors")):
            raise CheckpointError(
                f"{path} has shards of HuggingFaceStorageWriter, and nothing says how many there should be; "
                "consolidate them with consolidate_safetensors_files of torch.distributed.checkpoint"
            )
        raise CheckpointError(
            f"{path} has a metadata file for each rank (use_collectives=False) and none for all; "
            "load it with PyTorch and save it with collectives"
        )
    where = path / METADATA
    held = sum(one.stat().st_size for one in path.iterdir() if one.is_file())
    data = read_bytes(inside(path, METADATA), 1 << 30)
    found = read_pickle(data, str(where), CALLS, tensors=held // ITEM_BYTES)
    metadata = found.fields if isinstance(found, Record) and found.kind == "Metadata" else {}
    for field in ("state_dict_metadata", "storage_data"):
        if not isinstance(metadata.get(field), dict):
            raise CheckpointError(f"{where} is no metadata of DCP: it has no {field}")
    return metadata


class Record:
    """One of the dataclasses of `.metadata`: its fields as they are pickled, nothing more."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.fields: dict[str, Any] = {}

    def set_state(self, state: Any) -> None:
        if self.kind == "TensorProperties" and isinstance(state, tuple) and state:
            state = {"dtype": state[0]}
        if not isinstance(state, dict):
            raise ValueError(f"the state of a {self.kind} is a {type(state).__name__}")
        self.fields = state

    def __str__(self) -> str:
        """Return the text by which it is found where it is the key of a dictionary."""
        name, offset = self.fields.get("fqn"), self.fields.get("offset")
        if not isinstance(name, str) or not (offset is None or isinstance(offset, tuple)):
            raise ValueError("an index of metadata has no name, or no offset")
        if not all(type(n) is int for n in offset or ()):
            raise ValueError("an offset of metadata is no place")
        return place(name, offset)


def place(name: Any, offset: Any) -> str:
    """Return the text by which the place of an item is found: its name, and where in its tensor it starts.

    Args:
        name: Name of the value in the state dict.
        offset: Index of the first element of a chunk, one number for each axis; None for what is no tensor.

    Example:
        >>> place("model.weight", (4, 0)), place("step", None)
        ('["model.weight", [4, 0]]', '["step", null]')
    """
    return json.dumps([name, None if offset is None else list(offset)])


def shown(where: str) -> str:
    """Return a place for messages."""
    try:
        name, offset = json.loads(where)
    except (ValueError, TypeError):
        return repr(where)
    return str(name) if offset is None else f"{name} at {offset}"


def _records(module: str, *kinds: str) -> dict[str, Function]:
    return {f"torch.distributed.checkpoint.{module}.{kind}": partial(Record, kind) for kind in kinds}


ITEM_BYTES = 512
"""Bytes that an item of DCP takes at least: an archive of one tensor."""

CALLS: Mapping[str, Function] = {
    **PLAIN_CALLS,
    **_records("metadata", "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "TensorProperties"),
    **_records("metadata", "ChunkStorageMetadata", "MetadataIndex", "StorageMeta"),
    **_records("filesystem", "_StorageInfo"),
    "torch.Size": tuple,
    "torch.serialization._get_layout": lambda name: name,
}
"""What stands in for the classes of `.metadata`."""

"""The files of any tree: `torch.save` writes them, and `torch.load(weights_only=True)` reads them by itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from parity import storage
from parity.checkpoints import ByteRange
from parity.checkpoints.trees import ArrayType, Branch, LeafNode, Node, SavedPart, Written, leaves, sealed_name
from parity.errors import CheckpointError
from parity.storage import FileDigest, digest_range
from torch_side.formats.archive import places
from torch_side.formats.content import STATE, load_content, load_mapped, write_content
from torch_side.formats.pickled import TREE_GLOBALS

__all__ = ["file_of", "places_of", "read_parts", "records_of", "write_parts"]

CPU = torch.device("cpu")


def write_parts(draft: Path, parts: Iterable[SavedPart], values: Mapping[str, Any]) -> Written:
    """Write each part to a file of its own: `state.pt`, or `<item>.pt`; JSON to `<item>.json`.

    Args:
        draft: The new directory.
        parts: What is written.
        values: Name of each leaf to what is written.
    """
    with storage.named(draft, "mkdir"):
        draft.mkdir()
    files: dict[str, FileDigest] = {}
    found: dict[str, tuple[ByteRange, ...]] = {}
    for part in parts:
        content = part.content(values)
        if part.is_json:
            storage.write_file(draft / f"{part.item}.json", json.dumps(content))
            continue
        name = file_of(part)
        files[name] = write_content(draft / name, content)
        found |= places_of(draft, name, records_of(part, values))
    return files, found


def read_parts(
    path: Path,
    parts: Iterable[SavedPart],
    names: set[str],
    describe: Callable[[Any], Any],
    cuts: Mapping[str, Callable[[Tensor], Any]],
) -> dict[str, Any]:
    """Return tensors of a checkpoint by name, on the CPU.

    Args:
        path: The checkpoint.
        parts: What it holds.
        names: The tensors that are needed; the files of parts without any are not read.
        describe: Returns the type of a tensor.
        cuts: Those of the names of which a part is needed, to what makes it of the whole tensor, whose bytes are
            read where they are used.

    Raises:
        CheckpointError: A file cannot be loaded, or does not hold tensors of the types that its description says.
    """
    found: dict[str, Any] = {}
    for part in parts:
        if names.isdisjoint(leaves(part.node)):
            continue
        file = path / file_of(part)
        mapped = not cuts.keys().isdisjoint(leaves(part.node))
        content = load_mapped(file, TREE_GLOBALS) if mapped else load_content(file, CPU, TREE_GLOBALS)
        copies: dict[Any, Tensor] = {}
        for name, kind, value in _tensors(content, part.node):
            whole = type(value) is Tensor and value.is_contiguous()
            got = describe(value) if whole else None
            if not isinstance(got, ArrayType) or (got.dtype, got.shape) != (kind.dtype, kind.shape):
                raise CheckpointError(
                    f"{path / file_of(part)}: {name} is {got or type(value)}, and was saved as {kind}"
                )
            if name in names:
                found[name] = cuts[name](value) if name in cuts else _in_memory(value, copies) if mapped else value
    return found


def _in_memory(value: Tensor, copies: dict[Any, Tensor]) -> Tensor:
    """Return a copy of a mapped tensor, one for all that are the same."""
    key = (value.data_ptr(), value.shape, value.dtype)
    if key not in copies or not value.numel():
        copies[key] = value.clone()
    return copies[key]


def file_of(part: SavedPart) -> str:
    """Return the name of the file of a part that JSON does not hold."""
    return f"{part.item}.pt" if part.item else STATE


def places_of(
    draft: Path, file: str, numbers: Mapping[str, int], *, digest: bool = True
) -> dict[str, tuple[ByteRange, ...]]:
    """Return where the bytes of each tensor lie; ranges that tied ones share have digests of their own.

    Args:
        draft: The directory.
        file: The file in it.
        numbers: Name of a tensor in the seal to the number of its record.
        digest: Whether the bytes are there, so that shared ranges can be digested.
    """
    found = places(draft, file, numbers, TREE_GLOBALS)
    counts = Counter(numbers.values())
    digests: dict[ByteRange, ByteRange] = {}
    for name, number in numbers.items():
        (whole,) = found[name]
        if counts[number] > 1 and digest:
            if whole not in digests:
                text = digest_range(draft / file, whole.start, whole.size)
                digests[whole] = ByteRange(file, whole.start, whole.size, text)
            found[name] = (digests[whole],)
    return found


def records_of(part: SavedPart, values: Mapping[str, Any]) -> dict[str, int]:
    """Return the name of each tensor in the seal to its record: `torch.save` numbers storages as it meets them."""
    numbers: dict[int, int] = {}
    found = {}
    for name in part.arrays():
        found[sealed_name(name)] = numbers.setdefault(id(values[name]), len(numbers))
    return found


def _tensors(content: Any, node: Node) -> Iterator[tuple[str, ArrayType, Any]]:
    """Yield name, described type and value of each tensor of a file whose containers are those of a description.

    Raises:
        CheckpointError: They are not.
    """
    if isinstance(node, Branch):
        kind = {"list": list, "tuple": tuple}.get(node.form, dict)
        if type(content) is not kind or len(content) != len(node.keys):
            raise CheckpointError(
                f"{node.name}: the file has a {type(content).__name__}, and not the saved container"
            )
        for key, child in zip(node.keys, node.children, strict=True):
            if isinstance(content, dict) and key not in content:
                raise CheckpointError(f"{child.name} is not in the file")
            yield from _tensors(content[key], child)
    elif isinstance(node, LeafNode) and isinstance(node.value, ArrayType):
        yield node.name, node.value, content

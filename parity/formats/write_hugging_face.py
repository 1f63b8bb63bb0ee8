"""The writer of a Hugging Face model folder: safetensors in shards with their index, and the files beside them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from parity.formats.array import Array
from parity.formats.hugging_face import open_hugging_face
from parity.formats.tree import Tree
from parity.formats.write_safetensors import SAFETENSORS, write_safetensors
from parity.formats.writer import Writer, misfits

__all__ = ["HUGGING_FACE", "copy_companions", "write_hugging_face"]

SHARD_BYTES = 5_000_000_000
"""Most bytes of a shard, as transformers has it by default; an array that is larger has one of its own."""

COMPANIONS = (
    *("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "spiece.model", "chat_template.json", "chat_template.jinja"),
)
"""Files of a model folder that transformers reads beside the weights."""


def write_hugging_face(tree: Tree, path: Path) -> None:
    """Write the parameters of a model as a folder that `from_pretrained` reads, once `config.json` lies in it.

    Args:
        tree: A flat dict of arrays by PyTorch's names.
        path: A directory that does not exist.

    Raises:
        OSError: The disk is full, or failed.
    """
    path.mkdir()
    shards = list(_shards({str(name): array for name, array in tree.items()}))
    if len(shards) == 1:
        write_safetensors(shards[0], path / "model.safetensors")
        return
    where: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(shard, path / name)
        where |= dict.fromkeys(shard, name)
    index = {"metadata": {"total_size": sum(array.nbytes for array in tree.values())}, "weight_map": where}
    (path / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def copy_companions(source: Path, target: Path) -> list[str]:
    """Copy the configuration and the tokenizer of a model folder; return their names.

    Args:
        source: A model folder; of its files, those that `from_pretrained` reads beside the weights are copied.
        target: A directory that exists; files of these names in it are replaced.

    Raises:
        OSError: One cannot be read or written.
    """
    found = [name for name in COMPANIONS if (source / name).is_file()]
    for name in found:
        shutil.copyfile(source / name, target / name)
    return found


def _shards(tree: Tree) -> Iterator[dict[str, Array]]:
    shard: dict[str, Array] = {}
    size = 0
    for name, array in tree.items():
        if shard and size + array.nbytes > SHARD_BYTES:
            yield shard
            shard, size = {}, 0
        shard[name] = array
        size += array.nbytes
    yield shard


def _cannot_hold(tree: Tree) -> list[tuple[str, str]]:
    if not isinstance(tree, dict) or not all(isinstance(child, Array) for child in tree.values()):
        return [("the tree", "a model folder holds parameters by name and nothing else: --only params")]
    return [*SAFETENSORS.cannot_hold(tree), *misfits(tree, lambda leaf: "", flat="a model folder")]


HUGGING_FACE = Writer(
    format="hugging-face",
    directory=True,
    cannot_hold=_cannot_hold,
    write=write_hugging_face,
    read=lambda path: open_hugging_face(path).tree["model"],
)
"""The writer of a model folder."""

"""safetensors, one file and shards, are read to the last bit; what does not fit is one clear error."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from parity.errors import CheckpointError
from parity.formats import open_checkpoint
from tests.formats.shapes import bits, tensor

TYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.int64, torch.int32, torch.int16),
    *(torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2),
)


def test_every_type_is_read_bit_for_bit(tmp_path: Path) -> None:
    expected = {str(dtype).removeprefix("torch."): tensor(dtype) for dtype in TYPES}
    expected |= {"scalar": torch.tensor(1.5), "empty": torch.zeros(0, 4)}
    save_file(expected, tmp_path / "m.safetensors", metadata={"format": "pt"})
    source = open_checkpoint(tmp_path / "m.safetensors")
    assert (source.format, source.detail) == ("safetensors", "format pt")
    assert set(source.tree) == set(expected)
    for name, value in expected.items():
        found = source.tree[name]
        assert (found.shape, found.dtype.name) == (tuple(value.shape), str(value.dtype).removeprefix("torch."))
        assert bits(found) == bits(value)


def sharded(tmp_path: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    values = {f"layers.{n}.weight": torch.full((2, 3), float(n)) for n in range(4)}
    names = list(values)
    save_file({n: values[n] for n in names[:2]}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({n: values[n] for n in names[2:]}, tmp_path / "model-00002-of-00002.safetensors")
    where = {n: f"model-0000{1 + i // 2}-of-00002.safetensors" for i, n in enumerate(names)}
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 96}, "weight_map": where}))
    return path, values


def test_shards_are_one_tree(tmp_path: Path) -> None:
    path, values = sharded(tmp_path)
    source = open_checkpoint(path)
    assert source.detail == "2 shards"
    assert {name: bits(array) for name, array in source.tree.items()} == {n: bits(v) for n, v in values.items()}


def changed_index(path: Path, **where: str | None) -> None:
    value = json.loads(path.read_text())
    for name, shard in where.items():
        if shard is None:
            del value["weight_map"][name.replace("_", ".")]
        else:
            value["weight_map"][name.replace("_", ".")] = shard
    path.write_text(json.dumps(value))


def test_an_index_that_does_not_fit_its_shards_is_refused(tmp_path: Path) -> None:
    path, _ = sharded(tmp_path)
    whole = path.read_text()
    for where, message in (
        ({"layers_0_weight": "model-00002-of-00002.safetensors"}, "and the index says"),
        ({"layers_0_weight": None}, "the index says None"),
        ({"layers_9_weight": "model-00002-of-00002.safetensors"}, r"layers\.9\.weight is not in"),
        ({"layers_0_weight": "gone.safetensors"}, r"gone\.safetensors, which is missing: 1 array is in it"),
        ({"layers_0_weight": "../m.safetensors"}, "which is not in it"),
    ):
        path.write_text(whole)
        changed_index(path, **where)
        with pytest.raises(CheckpointError, match=message):
            open_checkpoint(path)


def test_a_shard_that_leads_out_of_the_directory_is_refused_by_its_index_too(tmp_path: Path) -> None:
    path, _ = sharded(tmp_path)
    shard = tmp_path / "model-00002-of-00002.safetensors"
    (tmp_path / "elsewhere").mkdir()
    shard.rename(tmp_path / "elsewhere" / "stolen")
    shard.symlink_to(tmp_path / "elsewhere" / "stolen")
    with pytest.raises(CheckpointError, match="is a link out of the directory"):
        open_checkpoint(path)


def test_an_index_of_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text('{"weight_map": {}}')
    with pytest.raises(CheckpointError, match="has no weight_map"):
        open_checkpoint(path)


def written(path: Path, header: Any, data: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


W = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ({"w": W}, bytes(4), "does not fit its place"),
        ({"w": W}, bytes(12), r"8: truncated, or with a tail"),
        ({"w": W, "v": W}, bytes(8), "a gap or an overlap"),
        ({"w": {**W, "data_offsets": [4, 12]}}, bytes(12), "a gap or an overlap"),
        ({"w": {**W, "dtype": "F4"}}, bytes(8), "dtype 'F4', which is unknown"),
        ({"w": {**W, "shape": [3]}}, bytes(8), "does not fit its place"),
        ({"w": {**W, "shape": [-2]}}, bytes(8), "does not fit its place"),
        ({"w": {**W, "shape": [1 << 62, 4]}}, bytes(8), "does not fit its place"),
        ({"w": {"dtype": "F32"}}, bytes(8), "not one of safetensors"),
        (b'{"w":1,"w":2}', b"", "a name occurs twice"),
        (b"{not json", b"", "cannot be read"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(tmp_path: Path, header: Any, data: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(written(tmp_path / "x.safetensors", header, data))

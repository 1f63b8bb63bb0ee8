"""Directories of torch.distributed.checkpoint: read bit for bit, and refused where they lie."""

from __future__ import annotations

import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

from parity.cli import main
from parity.errors import CheckpointError
from parity.formats import Array, open_checkpoint
from parity.formats.array import InMemory
from parity.formats.nesting import nest
from parity.formats.pieces import FlatArray, Piece, PiecedArray, Segment
from torch_side.formats import write_dcp

FSDP2 = Path(__file__).parent / "fixtures" / "fsdp2"

STATE: dict[str, Any] = {
    "model": {
        "w": torch.arange(12.0).reshape(3, 4),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "eighth": torch.tensor([1.5, -2.0]).to(torch.float8_e4m3fn),
        "none": torch.zeros(0, 3),
        "one": torch.tensor(2.5),
        "flags": torch.tensor([True, False]),
        "phase": torch.tensor([1 + 2j]),
    },
    "list": [torch.ones(2), {"x": torch.ones(1)}, {}, 5],
    "optim": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]},
    "step": 7,
    "cfg": {"none": None, "pair": (1, 2)},
}


def save(state: dict[str, Any], folder: Path, **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that one process needs no process group
        dcp.save(state, checkpoint_id=None if options else folder, **options)
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(STATE, tmp_path_factory.mktemp("dcp") / "one")


@pytest.fixture
def own(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "own"))


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_one_process(saved: Path) -> None:
    source = open_checkpoint(saved)
    assert (source.format, source.detail) == ("dcp", "DCP 1.0.0, 1 files")
    for name, tensor in STATE["model"].items():
        array = source.tree["model"][name]
        assert (array.shape, array.dtype.name) == (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        assert array.load().tobytes() == raw(tensor)
        assert b"".join(block.tobytes() for block in array.blocks(8)) == raw(tensor)
    assert source.tree["list"][2:] == [None, 5]
    assert source.tree["list"][1]["x"].load() == 1
    assert source.tree["optim"]["state"]["0"]["step"].load() == 3
    assert source.tree["optim"]["param_groups"] == [{"lr": 0.1, "params": [0, 1]}]
    assert (source.tree["step"], source.tree["cfg"]) == (7, {"none": None, "pair": (1, 2)})
    assert source.verify is not None
    assert source.verify() == []


def test_two_processes_of_fsdp2_are_what_they_gathered() -> None:
    source = open_checkpoint(FSDP2)
    gathered = {keys[0]: array for keys, array in open_checkpoint(FSDP2.with_suffix(".safetensors")).arrays().items()}
    found = {"/".join(map(str, keys)): array for keys, array in source.arrays().items()}
    assert found.keys() == gathered.keys()
    assert sum(len(array.pieces) == 2 for array in found.values() if isinstance(array, PiecedArray)) == 12
    for name, array in gathered.items():
        assert str(found[name]) == str(array)
        assert found[name].load().tobytes() == array.load().tobytes()
    group = source.tree["optim"]["param_groups"][0]
    assert (group["lr"], group["params"][0]) == (0.001, "0.weight")
    assert source.tree["scheduler"]["last_epoch"] == source.tree["step"] == 3


def test_a_read_opens_the_pieces_it_needs_only() -> None:
    opened = []

    def piece(low: int, value: int) -> Piece:
        def load() -> Array:
            opened.append(low)
            return InMemory(np.full((2, 3), value, np.int8))

        return Piece((low, 0), (2, 3), load)

    array = PiecedArray((6, 3), np.dtype("int8"), [piece(4, 3), piece(0, 1), piece(2, 2)])
    assert array.read(((3, 5), (1, 3))).tolist() == [[2, 2], [3, 3]]
    assert sorted(opened) == [2, 4]


def test_a_flat_array_is_read_by_any_box() -> None:
    whole = np.arange(2 * 3 * 4)
    parts = [
        Segment(InMemory(np.concatenate([[-1], whole[lo:hi]])), 1, hi - lo) for lo, hi in ((0, 5), (5, 5), (5, 24))
    ]
    array, expected = FlatArray((2, 3, 4), parts), whole.reshape(2, 3, 4)
    assert array.load().tolist() == expected.tolist()
    assert array.read(((0, 2), (1, 3), (2, 4))).tolist() == expected[:, 1:, 2:].tolist()
    assert array.read(((1, 1), (0, 3), (0, 4))).shape == (0, 3, 4)
    assert FlatArray((), [Segment(InMemory(whole), 7, 1)]).read(()) == 7
    with pytest.raises(CheckpointError, match=r"parts of 23 elements, expected 24"):
        FlatArray((2, 3, 4), [Segment(InMemory(whole), 0, 23)])
    with pytest.raises(CheckpointError, match=r"elements 20 to 44 of int64\[24\]"):
        FlatArray((2, 3, 4), [Segment(InMemory(whole), 20, 24)])


def test_what_megatron_saved_of_two_tensor_parallel_ranks() -> None:
    source = open_checkpoint(FSDP2.with_name("megatron"))
    tree = source.tree
    assert source.detail == "DCP 1.0.0, 3 files, with common.pt of Megatron"
    assert tree["model.weight"].load().tolist() == np.arange(24.0).reshape(4, 6).tolist()
    assert tree["model.weight"].read(((1, 2), (2, 5))).tolist() == [[8, 9, 10]]
    assert tree["model.bias"].load().tolist() == [0, 1, 2, 3]
    assert (tree["iteration"], tree["args"]) == (40, {"lr": 0.01})
    assert [tree[f"model.extra/shard_{rank}_2"] for rank in (0, 1)] == [[{"rank": 0}], [{"rank": 1}]]


def test_a_common_state_joins_the_tree_unless_both_have_a_leaf(own: Path) -> None:
    torch.save({"iteration": 40, "optim": {"scheduler": {"num_steps": 9}}}, own / "common.pt")
    tree = open_checkpoint(own).tree
    assert (tree["iteration"], tree["optim"]["scheduler"], tree["step"]) == (40, {"num_steps": 9}, 7)
    assert "0" in tree["optim"]["state"]
    torch.save({"step": 8}, own / "common.pt")
    with pytest.raises(CheckpointError, match=r"step is in common\.pt and in \.metadata"):
        open_checkpoint(own)


def alter(folder: Path, change: Callable[[Any], None]) -> None:
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    change(metadata)
    path.write_bytes(pickle.dumps(metadata))


def chunks(metadata: Any, *boxes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Divide a tensor otherwise; its chunks take the places of other items, which are then without."""
    found = metadata.state_dict_metadata["model.w"]
    found.chunks = [ChunkStorageMetadata(torch.Size(start), torch.Size(shape)) for start, shape in boxes]
    for start, _ in boxes:
        _, info = metadata.storage_data.popitem()
        metadata.storage_data = {MetadataIndex("model.w", torch.Size(start)): info, **metadata.storage_data}


def place(metadata: Any, **fields: Any) -> None:
    index = next(i for i in metadata.storage_data if i.fqn == "model.w")
    vars(metadata.storage_data[index]).update(fields)


WRONG: dict[str, tuple[Callable[[Any], None], str]] = {
    "overlap": (
        lambda m: chunks(m, ((0, 0), (2, 4)), ((1, 0), (1, 4))),
        r"model\.w.*pieces that overlap: \[0:2, 0:4\]",
    ),
    "hole": (lambda m: chunks(m, ((0, 0), (1, 4)), ((2, 0), (1, 4))), r"model\.w.*8 elements, expected 12: a hole"),
    "beyond": (lambda m: chunks(m, ((0, 0), (3, 4)), ((3, 0), (1, 4))), r"model\.w.*beyond its end: \[3:4, 0:4\]"),
    "axes": (lambda m: chunks(m, ((0,), (3,))), r"model\.w.*piece at \[0\] of shape \[3\]"),
    "no place": (
        lambda m: m.storage_data.popitem(),
        r"does not say in which file 'optim\.state\.0\.step' at \[\] is",
    ),
    "huge": (
        lambda m: (
            setattr(m.state_dict_metadata["model.w"], "size", (1 << 40, 4)),
            chunks(m, ((0, 0), (1 << 40, 4))),
        ),
        r"model\.w: the chunk at \[0, 0\] has 17,592,186,044,416 bytes, its place 1,577",
    ),
    "size": (
        lambda m: setattr(m.state_dict_metadata["model.w"], "size", (-3, 4)),
        r"has \(-3, 4\) where extents should",
    ),
    "negative": (lambda m: place(m, offset=-1), r"model\.w.* has no place in a file"),
    "past the end": (lambda m: place(m, length=1 << 60), r"__0_0\.distcp is truncated: it has .* model\.w"),
    "outside": (lambda m: place(m, relative_path="../own/__0_0.distcp"), r"names the file '\.\./own/__0_0\.distcp'"),
    "folder": (lambda m: place(m, relative_path=".."), r"names the file '\.\.', which is not in it"),
    "missing": (
        lambda m: place(m, relative_path="__9_0.distcp"),
        r"__9_0\.distcp, which is missing: 1 array is in it",
    ),
    "no name": (lambda m: place(m, relative_path=["x"]), r"model\.w at \[0, 0\] has no place in a file"),
    "compressed": (lambda m: place(m, transform_descriptors=["stream.zstd/1"]), r"went through \['stream\.zstd/1'\]"),
    "not an archive": (lambda m: place(m, offset=5), r"model\.w.*is no archive of torch\.save"),
    "same bytes": (lambda m: place(m, length=3000), r"model\.w at \[0, 0\] and .* take the same bytes"),
    "no entries": (lambda m: setattr(m, "state_dict_metadata", None), r"is no metadata of DCP: it has no state_dict"),
    "strange entry": (lambda m: m.state_dict_metadata.update(x=5), r"x is described by a int, which is unknown"),
    "index": (lambda m: m.planner_data.update(step=("list", 10**12)), r"a list has the indices .*1000000000000"),
    "negative index": (lambda m: m.planner_data.update(step=("list", -1)), r"a list has the indices"),
    "within": (lambda m: m.planner_data.update(step=("model", "w", "x")), r"step lies within another leaf, at 'w'"),
    "same": (lambda m: m.planner_data.update(step=("model", "w")), r"step stands where another leaf does"),
    "path": (lambda m: m.planner_data.update(step=(0,)), r"step has the path \(0,\)"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_metadata_that_lies_is_refused(own: Path, change: Callable[[Any], None], message: str) -> None:
    alter(own, change)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(own)


def test_a_chunk_that_is_another_than_said_is_named_when_it_is_read(own: Path) -> None:
    def swap(metadata: Any) -> None:
        first, second = ((i, s) for i, s in metadata.storage_data.items() if i.fqn in ("model.w", "model.half"))
        metadata.storage_data |= {first[0]: second[1], second[0]: first[1]}

    alter(own, swap)
    with pytest.raises(CheckpointError, match=r"the piece at \[0:3, 0:4\] is bfloat16\[2\], expected float32\[3,4\]"):
        open_checkpoint(own).tree["model"]["w"].load()


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


def test_nothing_of_the_metadata_is_executed(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own)
    alter(own, lambda metadata: setattr(metadata, "storage_meta", Bomb()))
    assert open_checkpoint(own).tree["step"] == 7
    (own / ".metadata").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="is no metadata of DCP"):
        open_checkpoint(own)
    assert not (own / "executed").exists()


def test_files_of_the_directory_that_are_damaged(own: Path, tmp_path: Path) -> None:
    data = own / "__0_0.distcp"
    content = bytearray(data.read_bytes())
    at = content.index(np.arange(12.0, dtype=np.float32).tobytes())
    content[at] ^= 1
    data.write_bytes(content)
    verify = open_checkpoint(own).verify
    assert verify is not None
    [(where, what)] = verify()
    assert ("model.w" in where, what) == (True, "data/0 does not fit its CRC-32")
    data.write_bytes(content[:-100])
    with pytest.raises(CheckpointError, match=r"__0_0\.distcp is truncated"):
        open_checkpoint(own)
    data.rename(tmp_path / "elsewhere")
    data.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"is a link out of the directory, to .*elsewhere"):
        open_checkpoint(own)
    data.unlink()
    with pytest.raises(CheckpointError, match=r"__0_0\.distcp, which is missing: 11 arrays are in it"):
        open_checkpoint(own)
    (own / ".metadata").write_bytes((own / ".metadata").read_bytes()[:-9])
    with pytest.raises(CheckpointError, match=r"\.metadata is no pickle"):
        open_checkpoint(own)
    (own / ".metadata").rename(own / "__0.metadata")
    with pytest.raises(CheckpointError, match=r"use_collectives=False"):
        open_checkpoint(own)


def test_chunks_of_safetensors_are_refused_with_the_reason(tmp_path: Path) -> None:
    writer = dcp.FileSystemWriter(tmp_path, serialization_format=dcp.filesystem.SerializationFormat.SAFETENSORS)
    save({"w": torch.ones(2), "v": torch.ones(2)}, tmp_path, storage_writer=writer)
    with pytest.raises(CheckpointError, match=r"is no archive of torch\.save.*SAFETENSORS"):
        open_checkpoint(tmp_path)


def test_shards_that_nothing_counts_are_refused(tmp_path: Path) -> None:
    save(
        {"w": torch.ones(2)},
        tmp_path,
        storage_writer=dcp.HuggingFaceStorageWriter(str(tmp_path), save_distributed=True),
    )
    assert [one.name for one in tmp_path.iterdir()] == ["shard-00001-model-00001-of-00001.safetensors"]
    with pytest.raises(CheckpointError, match=r"nothing says how many there should be; consolidate"):
        open_checkpoint(tmp_path)


def test_what_it_consolidates_is_a_model_folder(tmp_path: Path) -> None:
    writer = dcp.HuggingFaceStorageWriter(str(tmp_path), save_distributed=True, enable_consolidation=True)
    save({"w": torch.ones(2)}, tmp_path, storage_writer=writer)
    source = open_checkpoint(tmp_path)
    assert (source.format, source.tree["model"]["w"].load().tolist()) == ("hugging-face", [1, 1])


def test_a_flat_state_dict_that_was_not_flattened(tmp_path: Path) -> None:
    save(
        {"a.b": torch.ones(2)},
        tmp_path,
        storage_writer=dcp.FileSystemWriter(tmp_path),
        planner=dcp.DefaultSavePlanner(False),
    )
    assert open_checkpoint(tmp_path).tree.keys() == {"a.b"}


def test_paths_that_are_none() -> None:
    with pytest.raises(CheckpointError, match=r"here: a has the path 'a'"):
        nest({"a": ("a", 1)}, "here")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_what_we_write_gives_pytorchs_own_tool_no_key_of_ours(tmp_path: Path) -> None:
    state = {"model": {"w": torch.randn(3)}, "opt": {0: {"step": 5, "pair": (1, torch.ones(2))}}, "none": {}}
    torch.save(state, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "d"), "--to", "dcp"]) == 0
    dcp_to_torch_save(tmp_path / "d", tmp_path / "b.pt")
    loaded = torch.load(tmp_path / "b.pt", weights_only=False)
    assert set(loaded) == {"model", "opt"}
    assert torch.equal(loaded["model"]["w"], state["model"]["w"])
    assert main(["verify", str(tmp_path / "d")]) == 0
    assert open_checkpoint(tmp_path / "d").tree["opt"][0]["step"] == 5


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:Detected an existing checkpoint")
def test_the_description_of_an_earlier_save_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3), "step": 5}, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "d"), "--to", "dcp"]) == 0
    assert open_checkpoint(tmp_path / "d").tree["step"] == 5
    dcp.save({"w": torch.ones(3), "step": 6}, checkpoint_id=tmp_path / "d", no_dist=True)
    assert open_checkpoint(tmp_path / "d").tree["step"] == 6


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_all_pieces_are_written_from_one_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces with memory of their own left a heap as large as the checkpoint: 1,334 MB of 2,348."""
    seen: list[int] = []
    resolve = write_dcp._Planner.resolve_data

    def recorded(planner: Any, item: Any) -> Any:
        made = resolve(planner, item)
        if isinstance(made, torch.Tensor) and made.numel():
            assert made.untyped_storage().nbytes() == made.numel() * made.itemsize  # else PyTorch clones it
            seen.append(made.data_ptr())
        return made

    monkeypatch.setattr(write_dcp._Planner, "resolve_data", recorded)
    monkeypatch.setattr(write_dcp, "BLOCK_BYTES", 64)
    state = {f"w{n}": torch.arange(50.0) + n for n in range(4)} | {"s": torch.tensor(3.5), "e": torch.empty(0)}
    state |= {"b": torch.tensor([True, False]), "h": torch.ones(3, dtype=torch.float8_e4m3fn)}
    torch.save(state, tmp_path / "a.pt")
    write_dcp.write_dcp(open_checkpoint(tmp_path / "a.pt").tree, tmp_path / "dcp")
    assert len(seen) > 16
    assert len(set(seen)) == 1
    back = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    dcp.load(back, checkpoint_id=tmp_path / "dcp", no_dist=True)
    for name, tensor in state.items():
        assert back[name].reshape(-1).view(torch.uint8).tolist() == tensor.reshape(-1).view(torch.uint8).tolist(), (
            name
        )

"""Directories of Hugging Face and single files of other trainers: what the real libraries saved, bit for bit."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from parity.convert import seal_checkpoint
from parity.errors import CheckpointError
from parity.formats import Array, Opaque, open_checkpoint, recognise

FIXTURES = Path(__file__).parent / "fixtures" / "trainers"


def live(name: str) -> dict[tuple[str, ...], Array]:
    found = open_checkpoint(FIXTURES / f"{name}.safetensors").arrays()
    return {tuple(str(keys[0]).split("/", 2)): array for keys, array in found.items()}


def compare(tree: dict[str, Any], name: str) -> int:
    """Compare models and moments with what the live objects held, and return how many arrays there were."""
    expected = live(name)
    for (role, *keys), array in expected.items():
        found = tree[role][keys[0]] if len(keys) == 1 else tree[role]["state"][int(keys[0])][keys[1]]
        assert (str(found), found.load().tobytes()) == (str(array), array.load().tobytes())
    return len(expected)


def test_a_checkpoint_of_the_trainer() -> None:
    source = open_checkpoint(FIXTURES / "checkpoint-2")
    assert source.detail == "a checkpoint of the Trainer; not read: generation_config.json"
    assert compare(source.tree, "checkpoint-2") == 64
    assert (source.tree["scheduler"]["last_epoch"], source.tree["trainer_state"]["global_step"]) == (2, 2)
    assert source.tree["config"]["n_embd"] == 4
    assert source.tree["rng"]["python"][0] == 3
    assert source.tree["rng"]["cpu"].shape == (5056,)
    arguments = source.tree["training_args"]
    assert isinstance(arguments, Opaque)
    assert arguments.name == "transformers.training_args.TrainingArguments"
    assert source.verify is not None
    assert source.verify() == []


@pytest.mark.parametrize("name", ["accelerate", "accelerate_bin"])
def test_a_state_of_accelerate_with_two_models(name: str) -> None:
    source = open_checkpoint(FIXTURES / name)
    assert source.detail == "a state of Accelerate" if name == "accelerate" else "a model folder"
    assert compare(source.tree, "accelerate") == 12
    assert source.tree["custom"] == [{"row": 5}]
    assert source.tree["scheduler"]["last_epoch"] == 4
    if name == "accelerate":
        assert source.tree["rng"]["numpy_random_seed"][0] == "MT19937"


@pytest.mark.parametrize("name", ["model_folder", "model_shards"])
def test_a_model_folder_single_and_sharded(name: str) -> None:
    tree = open_checkpoint(FIXTURES / name).tree
    expected = {keys[1]: array for keys, array in live("checkpoint-2").items() if keys[0] == "model"}
    assert tree["model"].keys() == expected.keys()
    assert all(tree["model"][key].load().tobytes() == array.load().tobytes() for key, array in expected.items())
    assert tree["config"]["model_type"] == "gpt2"


def test_a_file_of_lightning() -> None:
    tree = open_checkpoint(FIXTURES / "lightning.ckpt").tree
    assert (tree["epoch"], tree["global_step"], tree["pytorch-lightning_version"]) == (2, 4, "2.6.6")
    assert tree["hyper_parameters"] == {"width": 3}
    assert tree["loops"]["fit_loop"]["epoch_progress"]["current"]["completed"] == 2
    [(name, callback)] = tree["callbacks"].items()
    assert name.startswith("ModelCheckpoint{")
    assert callback["monitor"] == "loss"
    real = torch.load(FIXTURES / "lightning.ckpt", weights_only=True)
    assert tree["state_dict"]["layer.weight"].load().tolist() == real["state_dict"]["layer.weight"].tolist()
    moments, found = real["optimizer_states"][0]["state"][1], tree["optimizer_states"][0]["state"][1]
    assert found["exp_avg_sq"].load().tolist() == moments["exp_avg_sq"].tolist()


@pytest.mark.parametrize(
    ("name", "key", "prefix"), [("nanogpt", "model", "_orig_mod."), ("ddp", "state_dict", "module.")]
)
def test_files_with_prefixes(name: str, key: str, prefix: str) -> None:
    tree, real = open_checkpoint(FIXTURES / f"{name}.pt").tree, torch.load(FIXTURES / f"{name}.pt", weights_only=True)
    assert [*tree[key]] == [prefix + of for of in ("0.weight", "0.bias", "1.weight", "1.bias")]
    assert all(array.load().tolist() == real[key][at].tolist() for at, array in tree[key].items())
    assert (
        tree["optimizer"]["state"][3]["exp_avg"].load().tolist() == real["optimizer"]["state"][3]["exp_avg"].tolist()
    )
    assert {at: value for at, value in tree.items() if type(value) is int} == (
        {"iter_num": 40} if name == "nanogpt" else {"epoch": 3}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "model_shards", tmp_path / "folder"))


def test_shards_of_torch_save(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": torch.zeros(3)}, tmp_path / "pytorch_model-00002-of-00002.bin")
    where = {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}
    index = tmp_path / "pytorch_model.bin.index.json"

    def refused(weight_map: Any, message: str) -> None:
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(CheckpointError, match=message):
            open_checkpoint(tmp_path)

    index.write_text(json.dumps({"weight_map": where}))
    assert {at: str(array) for at, array in open_checkpoint(tmp_path).tree["model"].items()} == {
        "a": "float32[2]",
        "b": "float32[3]",
    }
    refused(where | {"c": where["a"]}, r"c is not in pytorch_model-00001-of-00002\.bin, where the index says")
    refused({"a": where["a"], "b": where["a"]}, r"b is not in pytorch_model-00001")
    refused(where | {"b": "../x.bin"}, r"names the file '\.\./x\.bin', which is not in it")
    refused(
        where | {"b": "pytorch_model-9.bin", "c": "pytorch_model-9.bin"}, r"9\.bin, which is missing: 2 arrays are"
    )
    refused([], r"has no weight_map from names to files")
    torch.save({"a": torch.ones(2), "d": 1}, tmp_path / "pytorch_model-00001-of-00002.bin")
    refused(where, r"d is in pytorch_model-00001-of-00002\.bin, and the index says None")


def test_an_index_that_lost_the_rows_of_a_shard_is_refused(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    rows = json.loads(index.read_text())
    lost = "model-00002-of-00003.safetensors"
    rows["weight_map"] = {name: shard for name, shard in rows["weight_map"].items() if shard != lost}
    index.write_text(json.dumps(rows))
    for path in (folder, index):
        with pytest.raises(CheckpointError, match=rf"names no array of {lost}, which lies beside it"):
            open_checkpoint(path)
    with pytest.raises(CheckpointError, match="names no array of"):
        seal_checkpoint(index)
    (folder / lost).rename(folder / "model-00002-of-00004.safetensors")  # of another save: none of these shards
    whole = len(open_checkpoint(folder).tree["model"])
    (folder / "model-00002-of-00004.safetensors").unlink()  # a pruned model keeps the names of what it kept
    (folder / f"{lost}.lock").write_bytes(b"")
    assert len(open_checkpoint(folder).tree["model"]) == whole == len(rows["weight_map"])


def test_a_shard_or_its_index_that_is_missing(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"names the file model-00002-of-00003\.safetensors, which is missing"):
        open_checkpoint(folder)
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(CheckpointError, match=r"has model-00001-of-00003\.safetensors and no index"):
        open_checkpoint(folder)


def test_links_stay_in_the_directory_or_in_the_cache_of_the_hub(folder: Path, tmp_path: Path) -> None:
    shard = folder / "model-00001-of-00003.safetensors"
    shard.rename(tmp_path / "stolen")
    shard.symlink_to(tmp_path / "stolen")
    with pytest.raises(CheckpointError, match=r"is a link out of the directory, to .*stolen"):
        open_checkpoint(folder)
    (tmp_path / "hub" / "blobs").mkdir(parents=True)
    (tmp_path / "stolen").rename(tmp_path / "hub" / "blobs" / "0123")
    snapshot = Path(shutil.move(folder, tmp_path / "hub" / "snapshots" / "abc"))
    shard = snapshot / shard.name
    shard.unlink()
    shard.symlink_to("../../blobs/0123")
    assert len(open_checkpoint(snapshot).tree["model"]) == 16
    index = snapshot / "model.safetensors.index.json"
    index.rename(tmp_path / "hub" / "blobs" / "4567")  # as the hub's cache has it: everything is a link
    index.symlink_to("../../blobs/4567")
    assert len(open_checkpoint(snapshot).tree["model"]) == len(open_checkpoint(index).tree) == 16
    (snapshot / "text_encoder").mkdir()
    (snapshot / "text_encoder" / "model.safetensors").symlink_to("../../../blobs/0123")
    assert len(open_checkpoint(snapshot / "text_encoder").tree["model"]) > 0


def made(path: Path) -> Path:
    save_file({"w": torch.ones(2)}, path / "model.safetensors")
    return path


def pair(path: Path, first: str, second: str) -> None:
    for name in (first, second):
        torch.save({}, path / name)


MIXED: dict[str, tuple[Callable[[Path], object], str]] = {
    "optimizers": (
        lambda p: pair(p, "optimizer.pt", "optimizer.bin"),
        r"has optimizer\.bin and optimizer\.pt, two files",
    ),
    "models": (lambda p: (p / "model.safetensors.index.json").write_text("{}"), r"two files for model: which is it"),
    "number": (
        lambda p: torch.save({}, p / "optimizer_1.bin"),
        r"has optimizer_1\.bin, and that of number 0 is missing",
    ),
    "rank": (
        lambda p: pair(p, "rng_state_0.pth", "rng_state_2.pth"),
        r"rng_state_2\.pth, and that of number 1 is mis",
    ),
    "formats": (
        lambda p: (p / ".metadata").write_bytes(b""),
        r"looks like a directory of torch\.distributed\.checkpoint and a directory of Hugging Face; move",
    ),
    "truncated": (lambda p: (p / "optimizer.pt").write_bytes(b"PK\3\4"), r"optimizer\.pt is no whole archive"),
    "empty": (lambda p: (p / "model.safetensors").write_bytes(b""), r"model\.safetensors is no safetensors file"),
    "json": (lambda p: (p / "trainer_state.json").write_text("{"), r"trainer_state\.json cannot be read"),
    "nested json": (lambda p: (p / "config.json").write_text("[" * 99999), r"config\.json cannot be read"),
    "legacy, cut": (
        lambda p: (p / "random_states_0.pkl").write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2)),
        r"random_states_0\.pkl is no pickle",
    ),
    "big number": (lambda p: torch.save({}, p / f"optimizer_{'9' * 99}.bin"), r"of number 0 is missing"),
}


@pytest.mark.parametrize(("spoil", "message"), MIXED.values(), ids=MIXED)
def test_what_is_mixed_or_damaged_is_refused(tmp_path: Path, spoil: Callable[[Path], object], message: str) -> None:
    spoil(made(tmp_path))
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path)


def test_files_of_several_processes_and_plain_pickles(tmp_path: Path) -> None:
    made(tmp_path)
    torch.save({"w": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    for rank in (0, 1):
        (tmp_path / f"random_states_{rank}.pkl").write_bytes(pickle.dumps({"step": rank, "path": Path("/x")}))
    (tmp_path / "trainer_state.json").write_text('{"best_metric": NaN, "global_step": 5}')
    source = open_checkpoint(tmp_path)
    assert source.detail == "a checkpoint of the Trainer; not read: pytorch_model.bin"
    assert source.tree["rng"] == [{"step": 0, "path": "/x"}, {"step": 1, "path": "/x"}]
    assert source.tree["trainer_state"]["global_step"] == 5


def test_what_deepspeed_and_fsdp_wrote_in_it_joins_the_tree(tmp_path: Path) -> None:
    made(tmp_path)
    shutil.copytree(FIXTURES.parent / "deepspeed" / "zero2", tmp_path, dirs_exist_ok=True)
    assert recognise(tmp_path).name == "hugging-face"
    source = open_checkpoint(tmp_path)
    assert source.tree["exported"].keys() == {"w"}
    assert "net.embed.weight" in source.tree["model"]
    assert source.tree["step"] == 3
    for path in tmp_path.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(FIXTURES.parent / "fsdp2", tmp_path / "pytorch_model_fsdp_0")
    shutil.copytree(FIXTURES.parent / "fsdp2", tmp_path / "optimizer_0")
    source = open_checkpoint(tmp_path)
    assert str(source.tree["model"]["model"]["0.weight"]) == "float32[3,2]"
    assert "optim" in source.tree["optimizer"]
    assert source.verify is not None
    assert source.verify() == []
    (tmp_path / "optimizer_0" / "__1_0.distcp").write_bytes(b"short")
    with pytest.raises(CheckpointError, match=r"optimizer_0/__1_0\.distcp is truncated"):
        open_checkpoint(tmp_path)

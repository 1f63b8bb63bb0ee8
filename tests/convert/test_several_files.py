"""Checkpoints of several files, converted: keys of storages are counted anew in each, and tie nothing together."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from parity.cli import main
from parity.convert import open_any
from parity.formats import Array, Opaque, leaf_name, leaves
from tests.formats.shapes import bits

FIXTURES = Path(__file__).parents[1] / "formats" / "fixtures"


def shards(path: Path) -> None:
    where = {}
    for at in range(4):
        name = f"pytorch_model-{at // 2 + 1:05d}-of-00002.bin"
        where[f"w{at}"] = name
    for name in sorted(set(where.values())):
        torch.save({key: torch.randn(8) for key, file in where.items() if file == name}, path / name)
    (path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": where}))


def accelerate(path: Path) -> None:
    for at in ("", "_1"):
        torch.save({"w": torch.randn(3, 4)}, path / f"pytorch_model{at}.bin")
        state = {0: {"exp_avg": torch.randn(3, 4), "exp_avg_sq": torch.randn(3, 4)}}
        torch.save({"state": state, "param_groups": [{"params": [0]}]}, path / f"optimizer{at}.bin")
        torch.save({"row": torch.randn(3, 4)}, path / f"custom_checkpoint_{at.strip('_') or 0}.pkl")
    torch.save({"cpu": torch.randn(3, 4)}, path / "random_states_0.pkl")


def ranks(path: Path) -> None:
    torch.save({"w": torch.randn(16)}, path / "pytorch_model.bin")
    for rank in range(3):
        torch.save({"cpu": torch.randn(16), "cuda": torch.randn(16)}, path / f"rng_state_{rank}.pth")
    (path / "trainer_state.json").write_text("{}")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def tuples(path: Path) -> None:
    state = {f"t{at}": (torch.randn(5), [torch.randn(5)]) for at in range(3)}
    dcp.save({**state, "w": torch.randn(5)}, checkpoint_id=path, no_dist=True)


def copied(name: str) -> Callable[[Path], None]:
    def copy(path: Path) -> None:
        shutil.copytree(FIXTURES / name, path, dirs_exist_ok=True)

    return copy


SEVERAL: dict[str, Callable[[Path], None]] = {
    **{"shards": shards, "accelerate": accelerate, "ranks": ranks, "tuples": tuples},
    **{name: copied(name) for name in ("fsdp2", "trainers/accelerate_bin", "trainers/accelerate")},
    **{name: copied(name) for name in ("trainers/checkpoint-2", "trainers/model_shards")},
    **{
        f"deepspeed/{one.name}": copied(f"deepspeed/{one.name}") for one in sorted((FIXTURES / "deepspeed").iterdir())
    },
    **{f"megatron/{one.name}": copied(f"megatron/{one.name}") for one in sorted((FIXTURES / "megatron").iterdir())},
}
SEVERAL = {name: make for name, make in SEVERAL.items() if "." not in Path(name).name}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("name", SEVERAL)
def test_every_leaf_of_several_files_is_the_one_of_its_file(tmp_path: Path, name: str) -> None:
    source, target = tmp_path / "source", tmp_path / "out.pt"
    source.mkdir()
    SEVERAL[name](source)
    found = {leaf_name(keys): leaf for keys, leaf in leaves(open_any(source).tree)}
    objects = [word for key, leaf in found.items() if isinstance(leaf, Opaque) for word in ("--reset", key)]
    assert main(["convert", str(source), str(target), "--to", "torch.save", *objects]) == 0
    loaded = {leaf_name(keys): leaf for keys, leaf in leaves(torch.load(target, weights_only=True))}
    arrays = {key: leaf for key, leaf in found.items() if isinstance(leaf, Array)}
    assert arrays
    for key, array in arrays.items():
        assert bits(loaded[key]) == bits(array), key


def test_tied_weights_of_one_file_stay_tied(tmp_path: Path) -> None:
    tied = torch.randn(4)
    torch.save({"a": tied, "b": tied, "c": torch.randn(4)}, tmp_path / "model.pt")
    assert main(["convert", str(tmp_path / "model.pt"), str(tmp_path / "out.pt"), "--to", "torch.save"]) == 0
    loaded = torch.load(tmp_path / "out.pt", weights_only=True)
    assert loaded["a"].data_ptr() == loaded["b"].data_ptr() != loaded["c"].data_ptr()


def test_plain_pickles_of_several_ranks_keep_their_own_values(tmp_path: Path) -> None:
    torch.save({"w": torch.randn(2)}, tmp_path / "pytorch_model.bin")
    for rank in range(2):
        (tmp_path / f"random_states_{rank}.pkl").write_bytes(pickle.dumps({"step": rank, "seed": [rank] * 3}))
    assert main(["convert", str(tmp_path), str(tmp_path.with_suffix(".pt")), "--to", "torch.save"]) == 0
    loaded = torch.load(tmp_path.with_suffix(".pt"), weights_only=True)
    assert loaded["rng"] == [{"step": 0, "seed": [0] * 3}, {"step": 1, "seed": [1] * 3}]

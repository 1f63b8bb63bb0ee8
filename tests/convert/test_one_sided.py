"""What JAX's state has and PyTorch's has no place for: refused by name, left out by its name, key or component."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flax import serialization
from flax.serialization import msgpack_restore

from parity.cli import main
from parity.convert.to_jax import DOCUMENT
from tests.convert.states import saved, trained


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    """Save a converted state to which JAX added an average, keys, a count and one more parameter."""
    source = saved(tmp_path, trained())
    words = ["convert", str(source), str(tmp_path / "a.msgpack"), "--to", "flax-msgpack", "--class", "AdamW"]
    assert main([*words, "--reset", "optimizer"]) == 0
    tree: dict[str, Any] = msgpack_restore((tmp_path / "a.msgpack").read_bytes())
    tree["params"]["extra"] = {"w": np.ones(2, np.float32)}
    more = {"ema_params": {"w": np.ones(2, np.float32)}, "rng": np.array([1, 2], np.uint32), "epoch": 2}
    path = tmp_path / "b.msgpack"
    path.write_bytes(serialization.msgpack_serialize({**tree, **more}))
    return path


ALL = ("ema_params", "rng", "epoch", "params.extra.w")


def back(source: Path, target: Path, reset: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    given = [word for name in reset for word in ("--reset", name)]
    code = main(["convert", str(source), str(target), "--to", "torch.save", "--json", *given])
    return {"code": code, **json.loads(capsys.readouterr().out)}


def test_each_is_refused_with_the_flag_that_leaves_it_out(
    extended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = back(extended, tmp_path / "c.pt", (), capsys)
    refused = {row["leaf"]: row["how"] for row in found["entries"] if row["action"] == "refused"}
    assert found["code"] == 1
    assert set(refused) == {"ema_params.w", "rng", "epoch", "params.extra.w"}
    for name, how in refused.items():
        assert how.endswith(f"; --reset {name.removesuffix('.w') if name.startswith('ema') else name} leaves it out")


@pytest.mark.parametrize("named", [ALL, ("averaged parameters", "random streams", "counters", "params.extra.w")])
def test_all_are_left_out_by_what_they_are_called(
    extended: Path, tmp_path: Path, named: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    found = back(extended, tmp_path / "c.pt", named, capsys)
    assert (found["code"], found["counts"]["reset"], found["counts"]["refused"]) == (0, 4, 0)
    assert set(torch.load(tmp_path / "c.pt")["model"]) == set(trained()["model"])


@pytest.mark.parametrize("missing", ALL)
def test_what_was_not_asked_for_is_still_refused(
    extended: Path, tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = back(extended, tmp_path / "c.pt", (*(name for name in ALL if name != missing), "params"), capsys)
    assert (found["code"], found["counts"]["refused"]) == (1, 1)
    assert not (tmp_path / "c.pt").exists()


def test_a_reset_of_what_has_its_place_is_said_to_change_nothing(
    extended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = msgpack_restore(extended.read_bytes())
    placed = next(f"params.{key}.{inner}" for key, node in tree["params"].items() for inner in node if key != "extra")
    found = back(extended, tmp_path / "c.pt", (*ALL, placed), capsys)
    assert found["code"] == 0
    assert f"--reset {placed} changed nothing: it has its place, and is converted" in found["notes"]


def norms(home: Path) -> tuple[Path, Path]:
    """Save a model of PyTorch with BatchNorm, and its state as JAX has it, which counts no batches."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}, home / "like.pt")
    assert main(["convert", str(home / "like.pt"), str(home / "all.msgpack"), "--to", "flax-msgpack"]) == 0
    tree: dict[str, Any] = msgpack_restore((home / "all.msgpack").read_bytes())
    del tree["buffers"]["1"]["num_batches_tracked"], tree[DOCUMENT]
    (home / "own.msgpack").write_bytes(serialization.msgpack_serialize(tree))
    return home / "like.pt", home / "own.msgpack"


def test_a_count_of_batches_that_jax_has_not_is_that_of_the_checkpoint_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    like, own = norms(tmp_path)
    words = ["convert", str(own), str(tmp_path / "c.pt"), "--to", "torch.save", "--like", str(like)]
    assert main(words) == 2
    flag = "--reset buffers.1.num_batches_tracked"
    assert f"is made from it; {flag} takes that of --like" in capsys.readouterr().err
    assert main([*words, *flag.split()]) == 0
    assert torch.load(tmp_path / "c.pt")["model"]["1.num_batches_tracked"] == 1


def test_a_weight_that_is_not_asked_for_is_never_made_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    like, own = norms(tmp_path)
    tree = msgpack_restore(own.read_bytes())
    del tree["params"]["0"]["bias"]
    own.write_bytes(serialization.msgpack_serialize(tree))
    words = ["convert", str(own), str(tmp_path / "c.pt"), "--to", "torch.save", "--like", str(like)]
    assert main([*words, "--reset", "buffers.1.num_batches_tracked"]) == 2
    assert "params.0.bias is missing" in capsys.readouterr().err

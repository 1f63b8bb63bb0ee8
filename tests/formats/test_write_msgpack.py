"""The writer of Flax's MessagePack files writes what Flax writes, byte for byte, and Flax alone restores it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import serialization

import jax_side
from jax_side.formats import write_msgpack
from parity.cli import main
from parity.formats import Array, InMemory, Opaque, Writer, open_checkpoint
from tests.formats.flax_trees import array, every_length, every_type, lazy, loaded, same

WRITER: Writer = {writer.format: writer for writer in jax_side.writers()}["flax-msgpack"]


@pytest.mark.parametrize("most", [1 << 30, 8, 20, 100])
@pytest.mark.parametrize("block", [16 << 20, 24])
def test_the_bytes_are_those_of_flax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, block: int) -> None:
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", most)
    monkeypatch.setattr(write_msgpack, "CHUNK_BYTES", most)
    monkeypatch.setattr(Array.blocks, "__defaults__", (block,))
    tree = every_type()
    assert WRITER.cannot_hold(lazy(tree)) == []
    WRITER.write(lazy(tree), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == serialization.to_bytes(tree)
    assert same(
        loaded(open_checkpoint(tmp_path / "a").tree), serialization.msgpack_restore(serialization.to_bytes(tree))
    )


@pytest.mark.parametrize(
    "tree",
    [every_length(), {}, np.array(2, "f4"), array("bfloat16", 5, 7), [1, (array("int8", 2),)], None, 3, 1j, "text"],
)
def test_a_lone_leaf_or_list_is_written_as_flax_does(tmp_path: Path, tree: Any) -> None:
    WRITER.write(lazy(tree), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == serialization.to_bytes(tree)


def test_an_array_is_chunked_from_the_size_on_at_which_flax_does_it() -> None:
    assert write_msgpack.CHUNK_BYTES == serialization.MAX_CHUNK_SIZE


def test_elements_of_another_byte_order_are_turned(tmp_path: Path) -> None:
    WRITER.write({"w": InMemory(np.arange(3, dtype=">f4"))}, tmp_path / "a")
    assert serialization.msgpack_restore((tmp_path / "a").read_bytes())["w"].tolist() == [0, 1, 2]


def nested(depth: int) -> Any:
    return {"d": nested(depth - 1)} if depth else 1


@pytest.mark.parametrize(
    ("tree", "name", "why"),
    [
        ({"a": {"b": Opaque("x.Y")}}, "a.b", "object of x.Y"),
        ({"a": InMemory(np.zeros(2, "M8[s]"))}, "a", "no datetime64"),
        ({"a": InMemory(np.zeros(2, "f4,f4"))}, "a", "Flax has no"),
        ({"a": 1 << 64}, "a", "more than 64 bits"),
        ({"a": -(1 << 63) - 1}, "a", "more than 64 bits"),
        ({"a": "\ud800"}, "a", "the text is no UTF-8"),
        ({"a": {"\ud800": 1}}, "a.\ud800", "its key is no UTF-8"),
        ({"a": {1: 1, "1": 2}}, "a", "two keys of it are one as text"),
        ({"a": {"__msgpack_chunked_array__": 1}}, "a.__msgpack_chunked_array__", "an array in chunks"),
        ({"a": "//GDAPlaceholder:b"}, "a", "an array of several processes"),
        ({"a": {1, 2}}, "a", "Flax has no set"),
        (nested(101), ".".join("d" * 100)[:80], "nested more than 100 deep"),
    ],
)
def test_what_the_format_cannot_hold_is_named(tree: Any, name: str, why: str) -> None:
    ((found, reason),) = WRITER.cannot_hold(tree)
    assert found == name
    assert why in reason


def test_the_deepest_tree_that_is_written_is_read(tmp_path: Path) -> None:
    assert WRITER.cannot_hold(nested(100)) == []
    WRITER.write(nested(100), tmp_path / "a")
    assert open_checkpoint(tmp_path / "a").tree == nested(100)


ALONE = """
import sys
sys.modules.update({name: None for name in ("jax_side", "torch_side", "parity")})
import json, flax.linen as nn, jax, jax.numpy as jnp, optax
from flax import serialization
from flax.training import checkpoints
from flax.training.train_state import TrainState
path = sys.argv[1]
raw = checkpoints.restore_checkpoint(path, None)
torch = json.loads(raw["torch"]["state"])
assert torch["schema"] == "parity.torch_state/1" and raw["step"] == 3
model = nn.Dense(3)
params = model.init(jax.random.key(0), jnp.ones((1, 4)))["params"]
like = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3))
like = like.replace(params={"bias": jnp.zeros(3), "weight": jnp.zeros((3, 4))})
like = like.replace(opt_state=like.tx.init(like.params))
assert int(optax.tree.get(serialization.from_state_dict(like.opt_state, raw["opt_state"]), "count")) == 3
state = serialization.from_state_dict(like.params, raw["params"])
jnp.save(sys.argv[2], state["weight"])
"""


@pytest.mark.takes_seconds
def test_flax_restores_a_converted_training_state_without_this_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}
    torch.save(state, tmp_path / "a.pt")
    there, back = tmp_path / "checkpoint_3", tmp_path / "b.pt"
    assert main(["convert", str(tmp_path / "a.pt"), str(there), "--to", "flax-msgpack"]) == 0
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-I", "-W", "ignore", "-c", ALONE, str(there), str(tmp_path / "weight.npy")]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert np.load(tmp_path / "weight.npy").tobytes() == model.weight.detach().numpy().tobytes()
    assert main(["convert", str(there), str(back), "--to", "torch.save"]) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "a.pt"), str(back)]) == 0
    assert "equal bit for bit" in capsys.readouterr().out
    assert torch.load(back, weights_only=True)["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]

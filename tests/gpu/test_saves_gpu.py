"""Saves of what a GPU holds: every bit comes back, through page-locked memory, while training goes on."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import jax_side
import torch_side
from jax_side.formats.host import fetched
from jax_side.snapshot import Snapshot as JaxSnapshot
from tests.support.saving import SPECS
from tests.support.small import state_of
from torch_side.snapshot import Snapshot as TorchSnapshot


@pytest.mark.parametrize("side", [jax_side, torch_side], ids=["jax", "torch"])
def test_a_state_of_the_device_is_saved_beside_training_and_restored_bit_for_bit(side: Any, tmp_path: Path) -> None:
    trainer = side.build(SPECS["adam"], tmp_path)
    expected = {}
    for until in (3, 6, 9):
        list(trainer.steps(until))
        expected[until] = state_of(trainer)
        trainer.save(None)
    list(trainer.steps(12))
    trainer.close()
    again = side.build(SPECS["adam"], tmp_path)
    again.restore("latest")
    assert state_of(again) == expected[9]
    again.close()


def test_a_snapshot_of_the_pytorch_twin_is_page_locked_and_reused() -> None:
    trainer = torch_side.build(SPECS["adam"])
    list(trainer.steps(2))
    first = TorchSnapshot(trainer.layout, trainer.state)
    weights = list(first.content["model"].values())
    assert weights
    assert all(tensor.is_pinned() for tensor in weights)
    list(trainer.steps(4))
    second = TorchSnapshot(trainer.layout, trainer.state, first)
    assert [t.data_ptr() for t in second.content["model"].values()] == [t.data_ptr() for t in weights]


def test_a_snapshot_of_the_jax_twin_is_fetched() -> None:
    trainer = jax_side.build(SPECS["adam"])
    list(trainer.steps(2))
    params = jax.tree.leaves(trainer.state.params)
    assert fetched(params).keys() == {id(value) for value in params}
    content = JaxSnapshot(trainer.layout, trainer.state).content
    for live, copy in zip(params, jax.tree.leaves(content.params), strict=True):
        assert np.asarray(live).tobytes() == copy.tobytes()


def test_trees_of_the_device_come_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, other = (torch.nn.Linear(300, 200, device="cuda") for _ in range(2))
    narrow = torch.randn(5, device="cuda").bfloat16()
    torch_side.save(tmp_path / "torch", {"model": model, "narrow": narrow, "step": 7})
    got = torch_side.restore(tmp_path / "torch", {"model": other, "narrow": narrow * 0, "step": 0}).tree
    assert torch.equal(got["model"].weight, model.weight)
    assert got["narrow"].device == narrow.device
    assert torch.equal(got["narrow"], narrow)
    tree = {"w": jnp.arange(6.0).reshape(2, 3), "key": jax.random.key(1), "narrow": jnp.ones(3, jnp.bfloat16)}
    jax_side.save(tmp_path / "jax", tree)
    back = jax_side.restore(tmp_path / "jax", tree).tree
    assert back["w"].devices() == tree["w"].devices()
    assert np.asarray(back["w"]).tobytes() == np.asarray(tree["w"]).tobytes()
    assert jnp.array_equal(jax.random.key_data(back["key"]), jax.random.key_data(tree["key"]))

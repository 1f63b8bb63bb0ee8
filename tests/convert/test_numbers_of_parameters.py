"""Numbers that an optimizer keeps one of for each parameter (NAdam, ASGD) under rules that move elements."""

from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch

from parity.cli.main import main

RULES = """
[[rule]]
torch = "layers.*.weight"
jax = "layers.kernel"
transpose = true
stack = 0

[[rule]]
torch = "fused"
jax = ["query", "key"]
split = [3, 3]

[[rule]]
torch = ["head", "tied"]
jax = "head"
tie = true
"""


def saved(folder: Path, kind: str, *, unequal: bool = False) -> list[str]:
    """Save a state of three steps, and return the words that convert it; `unequal` changes one of its numbers."""
    torch.manual_seed(0)
    net = torch.nn.Module()
    net.layers = torch.nn.ModuleList(torch.nn.Linear(4, 2, bias=False) for _ in range(2))
    net.fused = torch.nn.Parameter(torch.randn(6, 5))
    net.head = torch.nn.Parameter(torch.randn(7))
    net.tied = net.head
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.01)
    for _ in range(3):
        for one in net.parameters():
            one.grad = torch.cos(one.detach())
        optimizer.step()
    state = optimizer.state_dict()
    names = [name for name, _ in net.named_parameters()]
    if unequal:
        state["state"][names.index("layers.0.weight")]["mu_product"] *= 0.5
    torch.save({"model": net.state_dict(), "optimizer": state, "step": 3}, folder / "s.pt")
    (folder / "rules.toml").write_text(RULES)
    (folder / "names.txt").write_text("\n".join(names))
    options = ["--rules", str(folder / "rules.toml"), "--names", str(folder / "names.txt"), "--class", kind]
    return ["convert", str(folder / "s.pt"), str(folder / "o"), "--to", "orbax", *options]


@pytest.mark.parametrize(("kind", "slots"), [("NAdam", ["momentum_product"]), ("ASGD", ["rate", "average_weight"])])
def test_they_are_those_of_each_part_and_come_back_bit_for_bit(kind: str, slots: list[str], tmp_path: Path) -> None:
    assert main(saved(tmp_path, kind)) == 0
    tree = ocp.PyTreeCheckpointer().restore(tmp_path / "o")["opt_state"]["slots"]
    for slot in slots:
        assert np.shape(tree[slot]["layers"]["kernel"]) == ()
        assert tree[slot]["query"] == tree[slot]["key"]
    assert main(["convert", str(tmp_path / "o"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    before, after = (torch.load(tmp_path / one, weights_only=True)["optimizer"] for one in ("s.pt", "b.pt"))
    assert before["param_groups"] == after["param_groups"]
    for number, entry in before["state"].items():
        assert entry.keys() == after["state"][number].keys()
        assert all(torch.equal(value, after["state"][number][key]) for key, value in entry.items())


def test_two_values_of_what_jax_keeps_once_are_refused(tmp_path: Path, capsys: Any) -> None:
    assert main(saved(tmp_path, "NAdam", unequal=True)) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "layers.0.weight and layers.1.weight have different values, and JAX keeps one for them" in said
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("other", [np.float32(0.25), np.ones(3, np.float32)], ids=["value", "shape"])
def test_two_values_of_what_pytorch_keeps_once_are_refused(other: Any, tmp_path: Path, capsys: Any) -> None:
    assert main(saved(tmp_path, "NAdam")) == 0
    tree = ocp.PyTreeCheckpointer().restore(tmp_path / "o")
    tree["opt_state"]["slots"]["momentum_product"]["key"] = np.asarray(other)
    ocp.PyTreeCheckpointer().save(tmp_path / "changed", tree)
    assert main(["convert", str(tmp_path / "changed"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 2
    assert "differ, and they are one number in PyTorch" in " ".join(capsys.readouterr().err.split())

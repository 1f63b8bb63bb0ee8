"""Optimizers before their first step, groups that keep different slots, and counters of different values."""

from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
import pytest
import torch

from jax_side import optim
from parity.cli.main import main
from parity.state import GroupRule


def alike() -> tuple[torch.nn.Module, list[dict[str, Any]]]:
    """Return a module of two weights of one shape, and two groups in the order that is not the module's."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    return net, [{"params": net[1].parameters(), "weight_decay": 0.0}, {"params": net[0].parameters()}]


def save(path: Path, net: torch.nn.Module, optimizer: torch.optim.Optimizer, **more: Any) -> Path:
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), **more}, path)
    return path


def convert(source: Path, target: Path, *words: str) -> int:
    to = "torch.save" if target.suffix == ".pt" else "orbax"
    return main(["convert", str(source), str(target), "--to", to, *words])


def test_groups_before_the_first_step_are_named_by_nothing_and_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which moments JAX makes would go to which number was a guess, and the wrong one here."""
    net, groups = alike()
    fresh = save(tmp_path / "fresh.pt", net, torch.optim.AdamW(groups, lr=0.01), step=0)
    assert convert(fresh, tmp_path / "refused", "--optimizer", "parity") == 2
    assert "nothing says which parameter each number is of" in (said := capsys.readouterr().err)
    assert "--names" in said
    assert not (tmp_path / "refused").exists()
    names = tmp_path / "names.txt"
    names.write_text("1.weight\n0.weight\n")
    assert convert(fresh, tmp_path / "named", "--names", str(names)) == 0
    assert convert(tmp_path / "named", tmp_path / "back.pt") == 0


def test_one_that_never_has_state_needs_no_names(tmp_path: Path) -> None:
    net, groups = alike()
    fresh = save(tmp_path / "fresh.pt", net, torch.optim.SGD(groups, lr=0.01), step=0)
    assert convert(fresh, tmp_path / "there") == 0


def paths(tree: Any) -> list[str]:
    return sorted(jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(dict(tree)))


UNEQUAL: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9}, {"momentum": 0}),
    ("Adam", {"amsgrad": True}, {"amsgrad": False}),
    ("RMSprop", {"momentum": 0.9}, {"centered": True}),
]


@pytest.mark.parametrize(("name", "first", "second"), UNEQUAL, ids=[name for name, *_ in UNEQUAL])
def test_a_slot_is_there_for_the_parameters_of_the_groups_that_keep_it(
    name: str, first: dict[str, Any], second: dict[str, Any], tmp_path: Path
) -> None:
    net = torch.nn.ParameterDict({"a": torch.ones(2, 3), "b": torch.ones(4)})
    groups = [{"params": [net["a"]], **first}, {"params": [net["b"]], **second}]
    optimizer = getattr(torch.optim, name)(groups, lr=0.1)
    for _ in range(3):
        net["a"].grad, net["b"].grad = torch.ones(2, 3), torch.full((4,), 0.5)
        optimizer.step()
    source = save(tmp_path / "s.pt", net, optimizer, step=3)
    assert convert(source, tmp_path / "there") == 0
    tree = ocp.PyTreeCheckpointer().restore(tmp_path / "there")
    rules = tuple(GroupRule(label=one, names=(one,), arguments=own) for one, own in (("a", first), ("b", second)))
    params = jax.tree.map(jax.numpy.asarray, tree["params"])
    template = getattr(optim, name.lower())(lr=0.1, groups=rules).init(params)
    assert paths(tree["opt_state"]["slots"]) == paths(template.slots)
    assert convert(tmp_path / "there", tmp_path / "back.pt") == 0
    before, after = (torch.load(path, weights_only=True)["optimizer"] for path in (source, tmp_path / "back.pt"))
    assert before["param_groups"] == after["param_groups"]
    for number, entry in before["state"].items():
        assert entry.keys() == after["state"][number].keys()
        for key, value in entry.items():
            assert value is None or torch.equal(torch.as_tensor(value), torch.as_tensor(after["state"][number][key]))


def test_a_counter_of_another_value_than_the_step_is_not_moved_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for _ in range(7):
        optimizer.zero_grad()
        net(torch.ones(2, 3)).square().mean().backward()
        optimizer.step()
    source = save(tmp_path / "a.pt", net, optimizer, step=7, global_step=7, steps=1000)
    assert convert(source, tmp_path / "a") == 0
    tree = ocp.PyTreeCheckpointer().restore(tmp_path / "a")
    tree["opt_state"][0]["count"] += 1
    tree["step"] = tree["step"] + 1
    ocp.PyTreeCheckpointer().save(tmp_path / "b", tree)
    assert convert(tmp_path / "b", tmp_path / "refused.pt") == 1
    assert "--reset 'steps' keeps it" in capsys.readouterr().out
    assert convert(tmp_path / "b", tmp_path / "b.pt", "--reset", "steps") == 0
    found = torch.load(tmp_path / "b.pt", weights_only=True)
    assert (found["step"], found["global_step"], found["steps"]) == (8, 8, 1000)
    assert convert(tmp_path / "a", tmp_path / "untouched.pt") == 0

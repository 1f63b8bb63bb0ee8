"""Optimizers under flat names (`state.NAME.SLOT`): converted with their groups, laid flat again, never mistaken."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parity.cli.main import main
from parity.convert import inspect_source, open_any
from parity.convert.flat_names import with_groups

STEP = 3


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(5, 4)
        self.layers = torch.nn.ModuleDict({str(at): torch.nn.Linear(4, 4) for at in range(2)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            x = torch.tanh(layer(x))
        return x


def flat_of(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> dict[str, Any]:
    """Return the state as `get_optimizer_state_dict` of torch.distributed has it with flat names."""
    entries = {names[id(p)]: entry for p, entry in optimizer.state.items()}
    made = {f"state.{name}.{slot}": value for name, entry in entries.items() for slot, value in entry.items()}
    for group in optimizer.param_groups:
        rest = {key: value for key, value in group.items() if key != "params"}
        made |= {f"param_groups.{names[id(p)]}.{key}": value for p in group["params"] for key, value in rest.items()}
    return made


def trained(groups: int = 1, kind: str = "AdamW", **arguments: Any) -> tuple[Net, Any, Any]:
    torch.manual_seed(0)
    model = Net()
    own = list(model.parameters())
    split: Any = [{"params": own[3:], "lr": 0.02, "weight_decay": 0.0}, {"params": own[:3]}]
    optimizer = getattr(torch.optim, kind)(own if groups == 1 else split, lr=0.01, **arguments)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    for _ in range(STEP):
        optimizer.zero_grad()
        model(model.table.weight).square().mean().backward()
        optimizer.step()
        schedule.step()
    return model, optimizer, schedule


def state_of(model: Net, optimizer: Any, schedule: Any, *, top: bool) -> dict[str, Any]:
    names = {id(p): name for name, p in model.named_parameters()}
    flat, own = flat_of(optimizer, names), model.state_dict()
    counted = {"step": torch.tensor(STEP, dtype=torch.int32)}
    rest = {"optimizer": flat, "lr_scheduler": schedule.state_dict(), "train_state": counted}
    return {**(own if top else {"model": own}), **rest}


def at(tree: Any, name: str) -> Any:
    for key in name.split("."):
        tree = tree[key]
    return tree.load()


@pytest.mark.parametrize("top", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
def test_moments_go_to_their_parameters_and_the_way_back_is_the_file(tmp_path: Path, top: bool, groups: int) -> None:
    model, optimizer, schedule = trained(groups)
    torch.save(state_of(model, optimizer, schedule, top=top), tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 0
    tree = open_any(tmp_path / "o").tree
    opt = tree["opt_state"]
    mu, nu = (opt[0]["mu"], opt[0]["nu"]) if groups == 1 else map(opt["slots"].get, ("first_moment", "second_moment"))
    for name, p in model.named_parameters():
        assert np.array_equal(at(tree["params"], name), p.detach().numpy())
        assert np.array_equal(at(mu, name), optimizer.state[p]["exp_avg"].numpy())
        assert np.array_equal(at(nu, name), optimizer.state[p]["exp_avg_sq"].numpy())
    assert tree["step"] == STEP
    assert "schedule" in tree
    assert main(["convert", str(tmp_path / "o"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    assert main(["compare", str(tmp_path / "a.pt"), str(tmp_path / "b.pt")]) == 0
    was, now = (torch.load(tmp_path / name)["optimizer"] for name in ("a.pt", "b.pt"))
    assert list(was) == list(now)


def test_the_order_of_groups_is_that_of_the_schedule(tmp_path: Path) -> None:
    model, optimizer, schedule = trained(2)
    state = state_of(model, optimizer, schedule, top=True)
    state["optimizer"] = dict(sorted(state["optimizer"].items(), reverse=True))
    torch.save(state, tmp_path / "a.pt")
    made, _ = with_groups(open_any(tmp_path / "a.pt").tree)
    assert [group["initial_lr"] for group in made["optimizer"]["param_groups"]] == [0.02, 0.01]


def test_a_schedule_of_another_position_is_refused_under_flat_names_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, optimizer, schedule = trained(2)
    state = state_of(model, optimizer, schedule, top=True)
    schedule.step()
    state["lr_scheduler"] = schedule.state_dict()
    torch.save(state, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) != 0
    assert "one was saved before and one after a step" in capsys.readouterr().err


def test_what_moved_on_comes_back_with_its_rates_and_its_count(tmp_path: Path) -> None:
    import orbax.checkpoint as ocp

    model, optimizer, schedule = trained()
    torch.save(state_of(model, optimizer, schedule, top=True), tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 0
    tree = ocp.PyTreeCheckpointer().restore(tmp_path / "o")
    tree["step"] = STEP + 2
    tree["opt_state"][0]["count"] = np.int32(STEP + 2)
    tree["opt_state"][2]["count"] = np.int32(STEP + 2)
    tree["params"]["table"]["weight"] = tree["params"]["table"]["weight"] + 1
    ocp.PyTreeCheckpointer().save(tmp_path / "p", tree)
    assert main(["convert", str(tmp_path / "p"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    for _ in range(2):
        optimizer.step()
        schedule.step()
    got = torch.load(tmp_path / "b.pt")
    assert torch.equal(got["train_state"]["step"], torch.tensor(STEP + 2, dtype=torch.int32))
    assert got["optimizer"]["state.layers.0.bias.step"] == STEP + 2
    assert got["optimizer"]["param_groups.layers.0.bias.lr"] == optimizer.param_groups[0]["lr"]
    assert got["lr_scheduler"]["last_epoch"] == STEP + 2
    assert torch.equal(got["table.weight"], open_tensor(tmp_path / "a.pt", "table.weight") + 1)


def open_tensor(path: Path, name: str) -> torch.Tensor:
    return torch.load(path)[name]


def test_what_is_of_no_parameter_stays_in_the_document_and_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, optimizer, schedule = trained()
    state = state_of(model, optimizer, schedule, top=True)
    state["queue"] = torch.ones(3)
    torch.save(state, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 0
    assert "JAX gets nothing of it: queue" in capsys.readouterr().out
    assert "queue" not in open_any(tmp_path / "o").tree["params"]
    state["optimizer"]["state.elsewhere.exp_avg"] = torch.ones(3)  # state that no group has
    torch.save(state, tmp_path / "c.pt")
    with_groups(open_any(tmp_path / "c.pt").tree)
    assert with_groups(open_any(tmp_path / "c.pt").tree)[1] == []


def test_top_level_arrays_that_no_optimizer_names_are_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, optimizer, schedule = trained()
    state = state_of(model, optimizer, schedule, top=True)
    del state["table.weight"]
    torch.save(state, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) != 0
    assert "expected one state dict of a model" in capsys.readouterr().err


def test_a_reset_of_the_optimizer_leaves_the_model_that_it_named(tmp_path: Path) -> None:
    model, optimizer, schedule = trained()
    torch.save(state_of(model, optimizer, schedule, top=True), tmp_path / "a.pt")
    options = ["--to", "orbax", "--reset", "optimizer"]
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), *options]) == 0
    tree = open_any(tmp_path / "o").tree
    assert np.array_equal(at(tree["params"], "table.weight"), model.table.weight.detach().numpy())
    assert "opt_state" not in tree
    assert main(["convert", str(tmp_path / "o"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    assert "optimizer" not in torch.load(tmp_path / "b.pt")


def test_inspection_says_what_they_are(tmp_path: Path) -> None:
    model, optimizer, schedule = trained()
    torch.save(state_of(model, optimizer, schedule, top=True), tmp_path / "a.pt")
    found = inspect_source(open_any(tmp_path / "a.pt"))
    groups = {group.component: group for group in found.groups}
    assert groups["parameters"].arrays == 5
    assert groups["parameters"].evidence == "by its keys that the optimizer names"
    assert groups["optimizer"].arrays == 15
    assert found.step == STEP


@pytest.mark.parametrize("kind", ["SGD", "Adagrad", "NAdam"])
def test_other_classes_too(tmp_path: Path, kind: str) -> None:
    model, optimizer, schedule = trained(kind=kind)
    torch.save(state_of(model, optimizer, schedule, top=False), tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 0
    assert main(["convert", str(tmp_path / "o"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    assert main(["compare", str(tmp_path / "a.pt"), str(tmp_path / "b.pt")]) == 0

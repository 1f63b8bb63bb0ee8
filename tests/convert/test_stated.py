"""What nothing in a file tells about an optimizer is stated by a flag, and what is left out needs no statement."""

from pathlib import Path
from typing import Any

import pytest
import torch

from parity.cli.main import main
from parity.convert import open_any
from parity.convert.selecting import without


def both() -> Any:
    model = torch.nn.Linear(3, 2)
    return model, torch.optim.Adamax(model.parameters())


def fresh(path: Path, kind: str) -> Path:
    """Save an optimizer before its first step, with the arguments that PyTorch 2.0 wrote."""
    model = torch.nn.Linear(3, 2)
    optimizer = getattr(torch.optim, kind)(model.parameters()).state_dict()
    optimizer["param_groups"][0].pop("decoupled_weight_decay", None)
    torch.save({"model": model.state_dict(), "optimizer": optimizer, "step": 0}, path)
    return path


@pytest.mark.parametrize("kind", ["RAdam", "Adamax"])
def test_a_class_that_nothing_tells_before_the_first_step_is_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    words = ["convert", str(fresh(tmp_path / "a.pt", kind)), str(tmp_path / "o"), "--to", "orbax"]
    assert main(words) == 2
    assert "--class RAdam or --class Adamax states it" in capsys.readouterr().err
    assert main([*words, "--class", "SGD"]) == 2
    assert "is of RAdam or Adamax by its arguments" in capsys.readouterr().err
    assert main([*words, "--class", kind]) == 0
    assert main(["convert", str(tmp_path / "o"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    assert main(["compare", str(tmp_path / "a.pt"), str(tmp_path / "b.pt")]) == 0


def test_the_optimizer_of_a_model_states_its_class(tmp_path: Path) -> None:
    words = ["convert", str(fresh(tmp_path / "a.pt", "Adamax")), str(tmp_path / "o"), "--to", "orbax"]
    assert main([*words, "--model", f"{__name__}:both"]) == 0


def test_an_argument_that_one_class_alone_writes_tells_it(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.RAdam(model.parameters()).state_dict()
    torch.save({"model": model.state_dict(), "optimizer": optimizer, "step": 0}, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 0


def grouped(path: Path) -> Path:
    """Save an optimizer of two groups, whose parameters nothing names."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    groups = [{"params": model[1].parameters()}, {"params": model[0].parameters(), "lr": 0.1}]
    optimizer = torch.optim.AdamW(groups)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.save({"app": {"model": model.state_dict(), "optims": [optimizer.state_dict()]}, "step": 1}, path)
    return path


def test_a_reset_optimizer_needs_no_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["convert", str(grouped(tmp_path / "a.pt")), str(tmp_path / "o"), "--to", "orbax"]
    assert main(words) == 2
    assert "--names FILE" in capsys.readouterr().err
    assert main([*words, "--reset", "optimizer"]) == 0
    assert "opt_state" not in open_any(tmp_path / "o").tree
    assert "left out on request" in " ".join(capsys.readouterr().out.split())
    assert main(["convert", str(tmp_path / "o"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    assert torch.load(tmp_path / "b.pt", weights_only=True)["app"]["optims"] == [None]


def test_a_part_of_a_list_leaves_its_place() -> None:
    assert without({"a": [1, {"b": 2, "c": 3}]}, ("a", 1, "b")) == {"a": [1, {"c": 3}]}
    assert without({"a": [1, 2]}, ("a", 0)) == {"a": [None, 2]}


def test_arguments_that_people_add_to_a_group_need_the_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Layer-wise decay of timm, BEiT and MAE keeps `lr_scale` in each group, which no class of torch.optim has."""
    model = torch.nn.Linear(3, 2)
    own = ({"lr_scale": 0.5, "group_name": "a"}, {"lr_scale": 1.0, "group_name": "b"})
    optimizer = torch.optim.AdamW([{"params": [p], **one} for p, one in zip(model.parameters(), own, strict=True)])
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    source, target, back = (str(tmp_path / name) for name in ("a.pt", "b", "c.pt"))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, source)
    words = ["convert", source, target, "--to", "orbax"]
    assert main(words) == 2
    assert "--class AdamW if your code added group_name, lr_scale" in capsys.readouterr().err
    assert main([*words, "--class", "RAdam"]) == 2  # amsgrad is an argument of another class, added by nobody
    assert main([*words, "--class", "AdamW"]) == 0
    assert main(["convert", target, back, "--to", "torch.save"]) == 0
    assert main(["compare", source, back]) == 0

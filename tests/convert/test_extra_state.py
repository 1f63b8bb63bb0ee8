"""What stands among the arrays of a model and is none: extra state of modules, and objects of classes."""

import json
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
import pytest
import torch
from torch import nn

from parity.cli import main


class Scaling(nn.Module):
    """A module with state beside its parameters, as those for float8 have."""

    def __init__(self, extra: Any) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.extra = extra

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        self.extra = state


def convert(*words: object) -> int:
    return main(["convert", *map(str, words)])


EXTRA = {"dict": {"amax": [1, torch.ones(2)], "on": True}, "array": torch.ones(3), "none": None, "text": "e4m3"}


@pytest.mark.parametrize("beside", ["fc", "head"])
@pytest.mark.parametrize("kind", EXTRA)
def test_a_model_with_extra_state_is_the_model_whatever_lies_beside(tmp_path: Path, kind: str, beside: str) -> None:
    """The other state dict was taken for the model, and the model itself was kept for the way back alone."""
    state = {"model": nn.Sequential(Scaling(EXTRA[kind])).state_dict(), beside: nn.Linear(3, 2).state_dict()}
    torch.save({**state, "step": 2}, tmp_path / "a.pt")
    assert convert(tmp_path / "a.pt", tmp_path / "o", "--to", "orbax") == 0
    found = ocp.PyTreeCheckpointer().restore(tmp_path / "o")
    assert found["params"]["0"]["fc"]["weight"].tolist() == state["model"]["0.fc.weight"].tolist()
    assert {name: list(below) for name, below in found["params"].items()} == {"0": ["fc"]}
    assert main(["compare", str(tmp_path / "a.pt"), str(tmp_path / "o")]) == 0
    assert convert(tmp_path / "o", tmp_path / "b.pt", "--to", "torch.save") == 0
    back = torch.load(tmp_path / "b.pt", weights_only=True)
    assert repr(back["model"]["0._extra_state"]) == repr(EXTRA[kind])
    assert list(back["model"]) == list(state["model"])


def test_the_parameters_alone_have_no_extra_state_and_it_has_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"model": Scaling(EXTRA["dict"]).state_dict()}, tmp_path / "a.pt")
    assert convert(tmp_path / "a.pt", tmp_path / "b.pt", "--to", "torch.save", "--only", "params", "--json") == 0
    lines = {one["leaf"]: one["action"] for one in json.loads(capsys.readouterr().out)["entries"]}
    assert lines["model._extra_state.on"] == "left out"
    assert lines["fc.weight"] == "copied"
    assert list(torch.load(tmp_path / "b.pt")) == ["fc.weight", "fc.bias"]


@pytest.mark.parametrize("words", [(), ("--only", "params")])
@pytest.mark.parametrize("to", ["orbax", "torch.save"])
def test_an_object_among_the_arrays_is_named_and_left_out_by_the_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str, words: tuple[str, ...]
) -> None:
    net = nn.Linear(3, 2)
    net.register_buffer("mask", torch.eye(3).to_sparse())
    torch.save({"model": net.state_dict(), "head": nn.Linear(2, 1).state_dict()}, tmp_path / "a.pt")
    assert convert(tmp_path / "a.pt", tmp_path / "b", "--to", to, *words) in (1, 2)
    said = capsys.readouterr()
    assert "--reset model.mask leaves it out" in " ".join((said.out + said.err).split())
    assert convert(tmp_path / "a.pt", tmp_path / "b", "--to", to, *words, "--reset", "model.mask") == 0


@pytest.mark.parametrize("other", [{"width": 3}, 7])
def test_a_model_that_is_no_state_dict_is_not_passed_over_for_another_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: object
) -> None:
    state = {"model": {"w": torch.ones(2), "about": other}, "head": nn.Linear(2, 1).state_dict()}
    torch.save(state, tmp_path / "a.pt")
    assert convert(tmp_path / "a.pt", tmp_path / "b", "--to", "orbax") == 2
    assert "model." in capsys.readouterr().err
    assert not (tmp_path / "b").exists()

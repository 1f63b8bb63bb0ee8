"""Versions of modules in a state dict, and parameters among tensors: what is left out is said."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from parity.formats import open_checkpoint

VERSIONS = "versions of the state of 1 modules"
TRAINED = "tensors that are parameters or require gradients are read as plain ones"


def _notes(saved: Any, home: Path) -> str:
    torch.save(saved, home / "saved.pt")
    return "; ".join(open_checkpoint(home / "saved.pt").notes)


def test_versions_that_a_module_reads_are_said_to_be_left_out(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.InstanceNorm1d(3))
    said = _notes({"model": model.state_dict()}, tmp_path)
    assert VERSIONS in said
    assert "the first that of 1:" in said


@pytest.mark.parametrize(
    "model",
    [nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), nn.BatchNorm1d(3), nn.Linear(2, 3)],
    ids=["norm_within", "norm_alone", "first_versions"],
)
def test_versions_that_change_nothing_are_not_mentioned(model: nn.Module, tmp_path: Path) -> None:
    assert _notes(model.state_dict(), tmp_path) == ""


def test_a_norm_without_its_count_of_batches_needs_its_version(tmp_path: Path) -> None:
    state = nn.BatchNorm1d(3).state_dict()
    del state["num_batches_tracked"]
    assert VERSIONS in _notes(state, tmp_path)
    assert "the first that of the module itself" in _notes(state, tmp_path)


def test_other_attributes_of_a_dict_are_said(tmp_path: Path) -> None:
    marked: OrderedDict[str, Any] = OrderedDict(w=torch.ones(2))
    vars(marked)["origin"] = "elsewhere"
    assert "attributes of 1 dicts are left out" in _notes(marked, tmp_path)


def test_parameters_and_tensors_that_require_gradients_are_counted(tmp_path: Path) -> None:
    layer = nn.Linear(2, 3)
    assert f"2 {TRAINED}" in _notes({"weights": list(layer.parameters())}, tmp_path)
    assert f"1 {TRAINED}" in _notes({"w": torch.ones(2, requires_grad=True), "v": torch.ones(2)}, tmp_path)
    assert TRAINED not in _notes({"w": torch.ones(2), "model": layer.state_dict()}, tmp_path)
